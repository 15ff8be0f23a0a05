"""`__cluster_metadata-0` on disk: what the Raft core relies on after a restart.

metadata_log.py    the log with its snapshots, as the quorum's driver uses it
snapshot.py        snapshots: written in slices, read, verified (KIP-630)
quorum_state.py    the leader epoch and this node's vote in it

Driven by `runtime/quorum/quorum.py` and `runtime/quorum/effects.py`.
"""
