"""`kafkapy record` and `kafkapy replay`: a client's frames and their responses, recorded, and sent again to any broker.

file.py        the recording: a line for each frame
secrets.py     passwords, tokens and keys, which a recording leaves out
proxy.py       forwards and records frames between clients and a cluster, whose brokers get addresses of the proxy
roles.py       ids, addresses and times that differ from one cluster to the next
memberships.py epochs and assignments of members, which another cluster gives at other times
compare.py     compares two responses, field by field
player.py      sends a recording, and finds the responses that differ
main.py        the commands
"""
