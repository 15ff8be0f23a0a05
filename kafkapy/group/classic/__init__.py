"""Classic consumer groups: members join, a leader assigns, and all continue together in a generation. Pure.

states.py       PreparingRebalance, CompletingRebalance, Stable, Empty, Dead, and the allowed transitions
state.py        the state in the log, as replayed: generation, protocol and members
group.py        ClassicGroup: decides JoinGroup, SyncGroup, Heartbeat and LeaveGroup: begin here
join.py         the steps of a JoinGroup
rebalance.py    the phases of a rebalance, with parked requests and time-outs
members.py      members, their common protocols, their leader

Called by `group/classic_requests.py`; driven by `runtime/coordinators/group_host.py`.
"""
