"""The audit: every input record has its effects exactly once, or is named.

``run`` leads from settings to a verdict, on one of two engines: ``local*`` reads and judges in this
process with bounded memory (sorted streams), ``spark*`` on Spark (DataFrames).
"""
