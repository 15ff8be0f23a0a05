"""The Python API: `kafkapy.Broker` and `kafkapy.Cluster`, real nodes inside a test or a program.

broker.py        Broker: one node, on an event loop in a thread (loop_thread.py)
security.py topics.py    its TLS, users and ACLs in one argument; topics without a client
cluster.py       Cluster: several nodes, each a process, with proxies.py between them to cut or slow down their network
options.py       their keyword arguments, typed; temporary.py: directories that go with the process
faults/          requests that fail, wait or lose their answer, by name
in_process.py    a cluster whose nodes share one loop, with links.py between them: starts quickly, uses one core
pytest_plugin.py    fixtures of these for tests of users

The user's thread calls; each call runs on the loop's thread, or waits for a process.
"""
