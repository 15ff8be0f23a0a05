"""Records, groups and requests of a broker or a cluster, for tests to inspect and to wait for.

nodes.py        sends requests to brokers, past logins, rights, quotas, faults and the record of requests
fetching.py     the records of partitions, read from their leaders
decoding.py     Record: a decoded record, by the decoders of the console
topics.py       `broker.topics["orders"]`: records, waits for them, checks that each is there once
seeding.py rows.py    produces records from dicts, files and data frames; reads these
groups.py described.py    `broker.groups["g"]`: lag, members, assignment; by the APIs of each kind of group
requests.py     `broker.requests`: the last requests of clients, off unless it is turned on
recorder.py     records requests, before a broker's router
report.py       the last records, groups and requests, for the message of a wait that fails
waiting.py      waits with a time limit, and their errors
observation.py  all of these for one broker or cluster
"""
