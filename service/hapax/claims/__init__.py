"""Claims: which record owns an id. The only talkers to Redis.

A further store is one file with its ``StoreKind`` and one row in ``store``. Settings (addresses),
wiring and operations open stores; all others call them through the port ``core.claim_store``.
"""
