"""`kafkapy record` and `kafkapy replay`: a client's frames and their responses, recorded, and sent again to any broker.

file.py        the recording: a line for each frame
secrets.py     what is left out of it
proxy.py       between a client and a cluster: forwards frames, records them, has brokers found through itself
roles.py       ids, addresses and times that differ from one cluster to the next
memberships.py epochs and assignments of members, which another cluster brings at other times
compare.py     two responses, field by field
player.py      sends a recording, and finds the responses that differ
main.py        the commands
"""
