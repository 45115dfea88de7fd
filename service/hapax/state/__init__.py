"""Keyed state on this machine: LMDB, and how it comes to where the group is."""
