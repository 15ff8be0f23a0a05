"""What happened on a broker or a cluster: records, groups and requests, for tests to look at and to wait for.

nodes.py        asks brokers, without logins, rights, quotas, faults and the record of requests
fetching.py     the records of partitions, read from their leaders
decoding.py     Record: decoded as the console decodes
topics.py       `broker.topics["orders"]`: records, waits, what is there once
seeding.py      what is produced: from dicts, files and data frames; rows.py reads these
groups.py       `broker.groups["g"]`: lag, members, assignment; described.py asks for them by the kind of the group
requests.py     `broker.requests`: a bounded ring of who asked what, off unless it is turned on
recorder.py     records them, before a broker's router
report.py       the last records, groups and requests, for the message of a wait that fails
waiting.py      waits with a bound; the errors
observation.py  all this of one broker or cluster
"""
