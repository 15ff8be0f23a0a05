"""Share groups (KIP-932): members that read the partitions of their topics together. Pure.

simple_assignor.py hash_order.py    who gets which partitions, as Apache Kafka's assignor `simple` decides
"""
