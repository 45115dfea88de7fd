"""Claims: which record owns an id. The only talkers to Redis.

store             the table: scheme of an address -> kind of store
kind              what each kind gives to those who have only its address
redis_url         the kind "Redis", without its client
redis             the claim store in Redis; redis.lua is its script
redis_packing     owners as bytes
redis_connection  one client from one URL
redis_admin       look claims up, and delete them
redis_info        what the server says of itself, at a start and for the doctor; redis_health judges

A further store is one file and one row in ``store``. Called by settings (addresses), wiring and
operations (opening), through the port ``core.claim_store`` by all others. Knows the core alone.
"""
