"""APIs of groups. Each calls the coordinator of its group if that is on this broker, else responds NOT_COORDINATOR.

find_coordinator.py    the coordinator of a group or transactional id: a client's first request
join_group.py sync_group.py heartbeat.py leave_group.py    members of classic groups
consumer_group_heartbeat.py    members of KIP-848 groups: one API for join, assignment and leave
offset_commit.py offset_fetch.py offset_delete.py    committed offsets
list_groups.py describe_groups.py consumer_group_describe.py delete_groups.py    administration

Called by `serving/router.py`; they call `runtime/coordinators/group_coordinator.py`, and `group/shard.py` decides.
"""
