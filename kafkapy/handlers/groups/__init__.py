"""APIs of groups: each finds the coordinator of its group here, or answers NOT_COORDINATOR.

find_coordinator.py    where a group or transactional id is coordinated: a client's first request
join_group.py sync_group.py heartbeat.py leave_group.py    members of classic groups
consumer_group_heartbeat.py    members of KIP-848 groups: one API for all of it
offset_commit.py offset_fetch.py offset_delete.py    committed offsets
list_groups.py describe_groups.py consumer_group_describe.py delete_groups.py    administration

Called by `serving/router.py`; they call `runtime/coordinators/group_coordinator.py`, and `group/shard.py` decides.
"""
