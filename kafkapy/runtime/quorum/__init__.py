"""The driver of `raft/core.py`: gives it requests, responses, ends of fsyncs and time, and carries out its effects.

quorum.py        owns the core and `__cluster_metadata-0`: begin here
effects.py       carries out an effect: appends, writes quorum-state, sends messages
effect_queue.py room_wait.py    the effects of a step in order; waits for room on a full disk
flush.py         fsyncs of the log, each for all appends so far
exchange.py transport.py    messages to other nodes, and their connections
listeners.py waiters.py    notifies listeners of commits, snapshots and leaders, in order; callers that wait for them
snapshots.py     when to take one, written in turns of the loop
voter_candidates.py hand_over.py identity.py    checks new voters; hands leadership over at a stop; the node's identity
description.py counting.py    DescribeQuorum; counts for /metrics

Built by `server/quorum_node.py`; driven by `handlers/cluster/raft_requests.py`, the transport, and a timer.
"""
