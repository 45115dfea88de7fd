"""The Spark engine for records: a driver that plans and never reads, tasks that do.

``driver`` is the loop; ``lanes`` are partitions in shares, one task each; ``plan`` is what a task
is given and returns; ``dataframe`` is the DataFrame form, a room of its own.
"""
