"""The console: pages about a cluster in a browser."""
