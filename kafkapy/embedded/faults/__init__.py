"""Faults by name, for tests of clients. No FaultInjector stands before a router until a test sets the first fault.

shapes.py       where requests name topics and groups, and responses have room for an error
whole_errors.py responses to requests of which nothing was done
whole_requests.py    requests that name all that they are about: the partitions of a Fetch's session
selectors.py    which requests a fault hits
rules.py        `broker.faults`: Fault, Faults, what they hit, and what is refused by name
injection.py    stands before a broker's router from the first fault on, and carries faults out
actions.py      events: a session that expires, a leader that moves, by the broker's own paths
events.py       what they do at one broker; damage.py: to its records
faulty_disk.py  a disk that is full, fails, is slow or forgets
worlds.py       what one broker and a cluster have for events
"""
