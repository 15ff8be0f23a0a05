"""The counters of a node that serves clients, for /metrics. Nothing is counted without an admin listener.

registry.py     all counters of a node
histogram.py recent_histogram.py    distributions: dense ones, and sparse ones for many keys
sampled.py rates.py idle.py    kinds of values: recent averages, rates per second, idle time
requests.py errors.py traffic.py    requests and their errors; bytes and records by topic
operations.py quorum.py verifications.py    the controller's work; the metadata quorum; transactions
shares.py coordinators.py    share groups; appends of group and share coordinators

The code that does the work counts it; `server/admin/gauges.py` reads the counters and gives them Kafka's names.
"""
