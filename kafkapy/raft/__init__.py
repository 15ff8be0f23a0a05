"""KRaft as a pure machine: an event and the time in, effects out. It knows offsets, epochs and voters, never records.

Driven by `runtime/quorum/quorum.py`; by tests/simulator/raft_cluster.py in simulations. Source: KIP-595, 630, 853, 996.

core.py           RaftCore.step: begin here; it owns an object for each concern below
events.py messages.py effects.py    what goes in, what nodes send each other, what comes out
config.py local_node.py replica.py log_view.py    settings; what the parts share; the log's shape
roles.py current_role.py    the roles and their transitions; their changes
election.py voting.py    votes counted and granted; requests and responses of elections
replication.py progress.py commitment.py linger.py    pull replication, how far each replica is, what is committed
voters.py membership.py control_records.py    voter sets by offset; their changes; their records
connections.py    requests in flight to other nodes
wire/             the core's messages as Kafka's requests
"""
