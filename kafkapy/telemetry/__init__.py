"""Metrics that clients push (KIP-714): subscriptions, and received values. Pure.

subscriptions.py    which metrics, of which clients, how often
instances.py        client instances, and when each may push
otlp.py protobuf.py histograms.py    decode a push, within bounds
received.py         the last values by instance, for /metrics

Driven by `runtime/client_telemetry.py`.
"""
