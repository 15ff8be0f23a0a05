"""The Python API: `kafkapy.Broker` and `kafkapy.Cluster`, real nodes inside a test or a program.

broker.py        Broker: one node, on an event loop in a thread (loop_thread.py)
security.py topics.py    its TLS, users and ACLs in one argument; creates topics without a client
cluster.py       Cluster: several nodes, each a process, with proxies.py between them to cut or slow down their network
observer.py      asks the cluster's brokers for leaders, replicas in sync and the controller, and waits for them
options.py temporary.py    typed keyword arguments of both; directories that are removed with the process
faults/          `broker.faults`: requests that fail, are late or lose their response
observed/        `broker.topics`, `groups`, `requests`: records, groups and requests to inspect and to wait for
controlled/      both for nodes that are processes
interception.py responses.py    puts faults and the recorder before a broker's router; decodes its responses
network.py       `broker.network`: a network to cut, delay and limit, through proxies.py
failures.py      errors of a broker that cannot start, or has failed
snapshots.py     the data of a broker, copied to start others with it
virtual_time.py  `broker.clock`: time that a test advances
in_process.py    a cluster whose nodes share one loop, with links.py between them: starts quickly, uses one core
pytest_plugin.py    fixtures of these for tests of users

The user's thread calls; each call runs on the loop's thread, or waits for a process.
"""
