"""Faults of requests, disks and clusters by name (`broker.faults`), for tests of clients.

rules.py        Fault and Faults: which requests are hit, how often, and what happens to them: begin here
selectors.py    the arguments that select requests
injection.py    FaultInjector: applies the faults to requests before the broker's router gets them
shapes.py       where requests of each API name topics and groups, and where responses have room for an error
whole_errors.py responses to requests that fail as a whole
whole_requests.py    requests completed: a Fetch with all partitions of its session
actions.py      events: a session that expires, a leader that moves, by the broker's own paths
events.py damage.py    these events at one broker; damage to its records
faulty_disk.py  a disk that is full, fails, is slow, or loses what was not synced
worlds.py       the interface of events to one broker, and to a cluster

Without a fault no request passes a FaultInjector: it is put before the router when a test sets the first one.
"""
