"""Files as a source of records: rows of several forms, files that grow, places to resume from.

rows    lines of bytes to rows: each its value, or what is wrong with it
lines   bytes that arrive in pieces to lines
place   where reading is, as the spool keeps it with the records
names   which file a name means after a rotation, and whether it is still the same file
growing one file that may grow, be renamed, be truncated
stream  a pipe or standard input
"""
