"""Claims: which record owns an id. The only talkers to Redis.

A further store is one file with its kind and one row in ``store``. Settings (addresses),
wiring and operations open stores; all others call them through the port ``core.ports``.
"""
