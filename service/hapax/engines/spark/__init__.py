"""The Spark engine for records: a driver that plans and never reads, tasks that do.

driver              the loop
lanes, lane         partitions in shares, one task each
plan                what a task is given and returns
task                what runs in one, with task_suspects: records that may kill its process
jobs                one Spark job a plan
reports             reactions to what tasks return
ports               what the driver knows of the world
session, jvm_start  Spark as the service starts it
jvm_output          what it prints, as events
executor_watch      which executors it has, for the status page
dataframe           the DataFrame form, a room of its own
"""
