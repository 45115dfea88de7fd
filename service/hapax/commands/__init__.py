"""The command line, a file a command: parse, call operations or wiring, print.

screen         what all of them read and show: times, tables, JSON, errors
tree           all commands, for help and completion

Called by __main__. No logic of Kafka, Redis or Spark here.
"""
