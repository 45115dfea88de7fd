"""Producing: the Transaction port, and everything else that writes.

Does not know consume: offsets arrive as a value (core/offset_commit.py).
"""
