"""Share groups (KIP-932): members that read the partitions of their topics together. Pure.

member.py           a member with its epochs and its assignment
states.py           which share partitions have a state at the share coordinator: only those are assigned
state.py group.py    what the log holds, as replayed; ShareGroup, which adds sessions and answers questions
heartbeat.py        a heartbeat's decision
offsets.py          altered and deleted offsets, which are the states of share partitions
target.py           the target assignment, and a member's step towards it
removal.py          members leave, or their session expires
decision.py         what a request leads to, with effects on the states of share partitions
settings.py         the keys of the broker and of the group
records.py history.py      the records; the rebalances that they tell of
simple_assignor.py  who gets which partitions, as Apache Kafka's assignor `simple` decides
"""
