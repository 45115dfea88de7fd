"""Claims: which record owns an id. The only talkers to Redis.

redis             the claim store; redis.lua is its script
redis_connection  one client from one URL
redis_admin       look claims up, and delete them
redis_info        what the server says of itself
redis_tls         certificates before the first connection

Called by wiring and operations, through the Claims port by core. Knows the core alone.
"""
