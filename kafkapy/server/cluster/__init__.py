"""`kafkapy cluster`: several nodes on this machine, each a background process; changes of any cluster.

plan.py         nodes, roles, ports, and a configuration for each
local.py        the cluster in its directory: created, started, inspected, stopped, extended
rolling.py      restarts the nodes of a local cluster one by one
processes.py    one node's process and its pid file
queries.py status.py    requests to any running cluster: brokers, leaders, quorum; all of these as one state
voters.py joining.py    changes the quorum's voters; finds the directory and the address of a new one
moving.py electing.py throttling.py    moves partitions, elects their leaders, limits how fast they move

Called by `cli/cluster*.py` and `embedded/cluster.py`.
"""
