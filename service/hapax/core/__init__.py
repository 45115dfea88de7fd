"""The promise: what happens to one batch, decided without a broker, a clock or a disk.

``exactly_once`` has the seven steps of one batch in order, ``ports`` all that the core knows of the
world, ``errors`` every error, named by what happens next.
"""
