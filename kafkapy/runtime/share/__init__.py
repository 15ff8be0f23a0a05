"""Share partitions in use on this broker: loads, locks, waiting fetches, and the writes of their state (KIP-932).

share_partitions.py    all of them, by group; sessions; acknowledgements: begin here
acknowledging.py       the outcomes of a request's acknowledgements, once they are written
in_use.py              one share partition with the partition that it reads, its timer, and who waits for it
share_wait.py          a fetch that waits for records of its share partitions
batch_headers.py       the headers of what was read
dead_letters.py        copies what is given up to the group's dead-letter topic (KIP-1191), before it is archived
originals.py           the records that are copied; dead_letter_outbox.py sends them to the leader of their partition

Driven by `handlers/share/`, the end of connections, and timers. Imported at the first request of a share group.
"""
