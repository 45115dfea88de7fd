"""Reading alongside the pipeline: joins no group, commits nothing.

offsets_client  offsets of logs and of a group: one attempt, blocking, in the background
lag_probe       offsets for the lag monitors
range_reader    records of ranges of many partitions; one range for an audit; counts
spans           where a span begins and stops
group_start     where a group begins, and whether its pipeline has worked before
input_logs      which logs the inputs are
claim_owners    the records that own claims
probe           what a reader meets first: a record, an undecodable set, the end
too_large       responses that the client does not take
"""
