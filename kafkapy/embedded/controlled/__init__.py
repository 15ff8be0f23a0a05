"""Nodes that are processes and do what a test's `Cluster` asks of them: faults, events, the record of requests.

channel.py      a pair of sockets between the two processes: calls, and their results, in both directions
node_main.py    what such a node runs instead of `kafkapy start`
node.py         does what is asked of it; the end of its channel is its end, too
node_faults.py  copies of the faults in a node: they match requests; the test's process counts, and says which are hit
cluster.py      the test's end: the channels of all nodes, and what `cluster.faults` and `cluster.requests` need of them
world.py        events, which happen in one node or another

Only the process that started a node has the other end of its channel: nothing of it listens anywhere.
"""
