"""API versions that Apache Kafka 4 removed (KIP-896), for clients from 0.9 on: kafkapy.legacy.clients.enable=true.

Each handler converts a request to the oldest version that is still served, and the response back.
"""
