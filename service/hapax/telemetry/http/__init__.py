"""One port for watchers: metrics, probes, the status page. Standard library only."""
