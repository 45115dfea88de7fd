"""One port for whoever watches: metrics, probes, the status page. Standard library only.

server  connections: bounded in number and life
routes  from a path to an answer
status  what the page and /status.json say
history what rates follow from; partition_rows: its rows of partitions
page    that as HTML; page_* its boxes, tables, values, script and looks
"""
