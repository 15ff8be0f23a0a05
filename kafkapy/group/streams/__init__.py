"""Streams groups (KIP-1071) as Apache Kafka has written them: kept, but not served. Pure.

group.py    a group, of which the members and the epoch are known
"""
