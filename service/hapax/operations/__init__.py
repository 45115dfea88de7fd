"""What the commands do. Commands parse and print; the work is here.

audit, doctor         rooms of their own
trace                 what became of a record
dead_letters          show dead letters; write them back
offsets, moving       show and move the offsets of a group; its lag in records
claims                look claims up, rebuild them; take over after a move of clusters
transactions          open transactions, and ending them
publish               lines to records of an input
local_process         the service on this machine, by its telemetry port: status, pause, resume
reading               what several of them read: ranges with progress, waiting for open transactions

Called by commands and demo. Knows everything below.
"""
