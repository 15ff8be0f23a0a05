"""A group changes its type while it has members (KIP-848): classic to consumer, and back. Pure.

policy.py       group.consumer.migration.policy: which directions are allowed
upgrade.py      a member of the consumer protocol joins a classic group
classic_join.py classic_members.py    classic members of a KIP-848 group: JoinGroup; SyncGroup and Heartbeat
removal.py      members leave or expire, of either protocol
downgrade.py    the last member of the consumer protocol leaves

Called by `group/classic_requests.py` and `group/consumer_requests.py`; driven by `runtime/coordinators/group_host.py`.
"""
