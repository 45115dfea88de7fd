"""Kafka: the only talkers to it. Errors leave here translated; nothing here logs.

``consume`` is the Source port, ``produce`` the Transaction port and all else that writes; ``read``
reads alongside the pipeline and joins nothing; ``admin`` is what commands and the doctor query.
Called by wiring and operations, and through ports by core and engines. Knows the core alone.
"""
