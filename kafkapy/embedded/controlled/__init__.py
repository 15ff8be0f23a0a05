"""Nodes in processes of their own that a test's `Cluster` controls: faults, events, the record of requests.

channel.py      a pair of sockets between the two processes: calls, and their results, in both directions
node_main.py    the main program of such a node, instead of `kafkapy start`
node.py         the node's end: serves the calls of the test; the node stops when its channel ends
node_faults.py  copies of the faults in a node, which match requests; the test's process counts, and decides the hits
cluster.py      the test's end: the channels of all nodes, for `cluster.faults` and `cluster.requests`
world.py        events, each in the node that it concerns

Only the process that started a node has the other end of its channel; there is no listener.
"""
