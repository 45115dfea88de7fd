"""The audit: every input record has its effects exactly once, or is named.

run, tasks  settings to topics; each task reads a range
rows        records to narrow rows
spark*      the judgement in DataFrames
result      bounds, counts, anomalies, the verdict
"""
