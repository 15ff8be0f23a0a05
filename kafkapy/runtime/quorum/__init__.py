"""The driver of `raft/core.py`: gives it requests, responses, ends of fsyncs and time, and carries out its effects.

quorum.py        owns the core and `__cluster_metadata-0`: begin here
effects.py       carries out an effect: on the log, on quorum-state, towards peers
effect_queue.py room_wait.py    those of a step in order; what a full disk does not take waits for room
flush.py         fsyncs, one for everything appended so far
exchange.py transport.py    messages to other nodes, and their connections
listeners.py waiters.py    commits, snapshots and leaders announced in order; waiting for them
snapshots.py     when to take one, written in turns of the loop
voter_candidates.py hand_over.py identity.py    new voters; a leader that stops; a node's identity and directory
description.py counting.py    DescribeQuorum; counts for /metrics

Built by `server/quorum_node.py`; driven by `handlers/cluster/raft_requests.py`, the transport, and a timer.
"""
