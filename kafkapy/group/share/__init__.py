"""Share groups (KIP-932): members that read the partitions of their topics together. Pure.

member.py           a member with its epochs and its assignment
states.py           which share partitions have a state at the share coordinator: only those are assigned
state.py group.py    the state in the log, as replayed; ShareGroup adds sessions, and checks of requests
heartbeat.py        a heartbeat's decision: begin here
offsets.py          altered and deleted offsets, which are the states of share partitions
target.py           the target assignment, and a member's step towards it
removal.py          members leave, or their session expires
decision.py         the result of a request, with effects on the states of share partitions
settings.py         the keys of the broker and of the group
records.py history.py      the records; the history of rebalances, from the records
simple_assignor.py  Apache Kafka's assignor `simple`
"""
