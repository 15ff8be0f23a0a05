"""The Python API: `kafkapy.Broker` and `kafkapy.Cluster`, real nodes inside a test or a program.

broker.py        Broker: one node, on an event loop in a thread (loop_thread.py)
security.py topics.py    its TLS, users and ACLs in one argument; topics without a client
cluster.py       Cluster: several nodes, each a process, with proxies.py between them to cut or slow down their network
observer.py      asks its brokers for leaders, replicas in sync and the controller, and waits for them
options.py       their keyword arguments, typed; temporary.py: directories that go with the process
controlled/      faults, events and the record of requests of nodes that are processes
faults/          requests that fail, wait or lose their response, by name
observed/        what happened: records, groups and requests to look at and to wait for; topics that are filled
interception.py  faults and the record of requests, before a broker's router; responses.py: what it answers, read
network.py       a network to cut, delay and limit, through proxies.py
failures.py      what becomes of a broker that cannot start, or cannot go on
snapshots.py     data that is filled once, and given to many brokers
virtual_time.py  time that a test moves on
in_process.py    a cluster whose nodes share one loop, with links.py between them: starts quickly, uses one core
pytest_plugin.py    fixtures of these for tests of users

The user's thread calls; each call runs on the loop's thread, or waits for a process.
"""
