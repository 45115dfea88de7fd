"""Engines: who brings records and owns progress. They know the ports of the core, no client.

``worker`` is one process, one member, one batch at a time; ``spark`` the same promise on Spark, a
room of its own. Called by wiring.
"""
