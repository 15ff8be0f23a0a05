"""What consumers and tools ask about share groups (KIP-932), which read partitions as queues.

share_group_heartbeat.py share_group_describe.py    membership
describe_share_group_offsets.py alter_share_group_offsets.py delete_share_group_offsets.py    where groups are
gate.py    whether the cluster has share groups
"""
