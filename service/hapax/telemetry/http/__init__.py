"""One port for whoever watches: metrics, probes, the status page. Standard library only.

server  connections: bounded in number and life
routes  from a path to an answer
status  what the page and /status.json say
page    that as HTML; page_style is its looks
"""
