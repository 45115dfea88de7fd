"""What every other folder shares: records and results, headers, errors, and the ports.

``ports`` has all that the service knows of the world, ``errors`` every error, named by what happens
next. The steps of a batch are in ``hapax.processing``.
"""
