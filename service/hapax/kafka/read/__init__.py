"""Reading alongside the pipeline: joins no group, commits nothing.

range_reader    records of ranges of many partitions; every range is read by its RangeFetch
offset_range    one range, under both isolation levels
offset_queries  every query for offsets of logs and of the group
offset_client   these queries for commands, with patience
log_offsets     ends of logs, seen twice
end_offsets     last stable offsets, without waiting for a broker that is away
neighbours      who writes the inputs, and who reads the outputs
lag_probe       offsets for the lag monitor
probe           what a reader meets first: a record, an undecodable set, the end
task_progress   what tasks of Spark have committed before they report
claim_owners    the records that own claims
"""
