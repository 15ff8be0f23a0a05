"""What a node counts while it serves, for /metrics. Nothing is counted without an admin listener."""
