"""``hapax demo``: real processes, real faults, and an audit that counts what came out.

The service is used only as a user does: by its environment, its topics, and its audit. ``story``
has the order of things.
"""
