"""One port for whoever watches: metrics, probes, the status page. Standard library only.

server  connections, bounded in number and life; from a path to an answer
status  what ``/status.json`` says
page    page.html, page.css and page.js show it in a browser, with charts by uPlot
"""
