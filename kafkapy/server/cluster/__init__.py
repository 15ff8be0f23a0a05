"""`kafkapy cluster`: several nodes on this machine, each a background process.

plan.py         nodes, roles, ports, and a configuration for each
local.py        the cluster in its directory: created, started, inspected, stopped, extended
processes.py    one node's process and its pid file
queries.py      asks a running cluster for brokers, leaders, quorum
voters.py moving.py    changes the quorum's voters; moves partitions

Called by `cli/cluster.py` and `embedded/cluster.py`.
"""
