"""The command line, a file a command: parse, call operations or wiring, print.

screen, times  printing and durations, shared
*_screen       the tables of a command
tree           all commands, for help and completion

Called by __main__. No logic of Kafka, Redis or Spark here.
"""
