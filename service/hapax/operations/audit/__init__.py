"""The audit: every input record has its effects exactly once, or is named.

run              settings to a verdict, on one of two engines
topics           bounds and ranges of the pipeline's topics; what is read, in which order
rows             records to narrow rows
local*           reads and judges in this process: sorted streams, memory bounded
spark*           reads and judges on Spark: DataFrames
result           bounds, counts, anomalies, the verdict
"""
