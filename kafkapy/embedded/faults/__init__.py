"""Faults by name, for tests of clients: what no client meets on a broker of which it uses none.

shapes.py       where requests name topics and groups, and responses have room for an error
rules.py        `broker.faults`: Fault, Faults, what they hit, and what is refused by name
injection.py    stands before a broker's router from the first fault on, and carries faults out
actions.py      events: a session that expires, a leader that moves, by the broker's own paths; damage.py: of records
installing.py   puts that there
"""
