"""What consumers and tools ask about share groups (KIP-932), which read partitions as queues.

share_group_heartbeat.py share_group_describe.py    membership
gate.py    whether the cluster has share groups
"""
