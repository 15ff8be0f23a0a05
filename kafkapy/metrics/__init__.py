"""The counters of a node that serves clients, for /metrics. Nothing is counted without an admin listener."""
