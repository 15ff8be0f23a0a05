"""Share partitions in use on this broker: loads, locks, waiting fetches, and the writes of their state (KIP-932).

share_partitions.py    all share partitions in use, by group; sessions; acknowledgements: begin here
acknowledging.py       the outcomes of a request's acknowledgements, once they are written
in_use.py              one share partition with the partition that it reads, its timer, and waiting fetches
share_wait.py          a fetch that waits for records of its share partitions
session_ends.py        releases the records of ended sessions, in turns; removes groups without sessions
batch_headers.py       the headers of the batches that were read
dead_letters.py        copies rejected records to the group's dead-letter topic (KIP-1191), then archives them
originals.py dead_letter_outbox.py    reads the records to copy; sends dead letters to the leader of their partition

Driven by `handlers/share/`, the end of connections, and timers. Imported at the first request of a share group.
"""
