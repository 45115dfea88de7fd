"""Claims: which record owns an id. The only talkers to Redis.

store             the table: scheme of an address -> kind of store
kind              what each kind gives to those who have only its address
redis_url         the kind "Redis", without its client
redis             the claim store in Redis: what it holds, and its door
redis_claim       one batch on its way through the buckets
redis_buckets     the store as the last answer had it; redis_turn.lua and redis_replace.lua
redis_layout      where a claim stands, requests for many; redis_owners: owners as bytes
redis_exchange    a request that is sent now and answered later; redis_replies reads it
redis_canary      epoch, cluster and time in every answer; redis_clock: a clock that jumps ahead
redis_eviction    whether it deletes claims where its memory is full
redis_desk        look claims up, and delete them
redis_packing     requests, topics and numbers as bytes
redis_connection  one client from one URL
redis_info        what the server says of itself, at a start and for the doctor; redis_health judges

A further store is one file and one row in ``store``. Called by settings (addresses), wiring and
operations (opening), through the port ``core.claim_store`` by all others. Knows the core alone.
"""
