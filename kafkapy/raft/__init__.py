"""KRaft as a pure machine: an event and the time in, effects out. It knows offsets, epochs and voters, never records.

Driven by `runtime/quorum/quorum.py`; by tests/simulator/raft_cluster.py in simulations. Source: KIP-595, 630, 853, 996.

core.py           RaftCore.step: begin here; it owns an object for each concern below
events.py messages.py effects.py    its input; messages between nodes; its output
config.py local_node.py replica.py log_view.py    settings; objects that the parts share; offsets and epochs of the log
roles.py current_role.py    the roles and their legal transitions; the current role and its changes
election.py voting.py    counting and granting votes; requests and responses of elections
replication.py progress.py commitment.py linger.py    fetches; progress of replicas; the high watermark; batched appends
voters.py membership.py control_records.py    voter sets by offset; their changes; their records
connections.py    requests in flight to other nodes
wire/             the core's messages as Kafka's requests
"""
