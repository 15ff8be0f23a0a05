"""Streams groups (KIP-1071): Kafka Streams with group.protocol=streams, and its tools.

streams_group_heartbeat.py    membership, with the tasks to run: begin here
internal_topics.py    repartition and changelog topics, made with the member's rights
streams_group_describe.py    groups with topology, members and tasks
streams_group_topology_description_update.py    refused: no plug-in keeps descriptions
gate.py    whether the cluster has streams groups
"""
