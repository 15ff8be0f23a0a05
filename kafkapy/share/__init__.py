"""Share groups as pure machines, without network, disk or clock (KIP-932): queues over partitions.

Imported when the first request of a share group arrives: most brokers have none.

partition.py    a share partition: which records are in flight, held by which member, delivered how often: begin here
in_flight.py in_flight_batch.py record_state.py    its batches in order; the runs of a batch; the states
session.py      share sessions: which partitions a member reads from a broker
acquisition.py aborted.py fetched.py    what a member acquires of the batches that were read, within the limits
acknowledgement.py lock_expiry.py       how deliveries end: accepted, released, rejected; the lock timed out
pending_write.py        the change that a delivery's end writes to the persisted state, and what follows
dead_letters.py letter_headers.py    the records of a dead-letter topic (KIP-1191), and the names of their headers
partition_settings.py group_settings.py    configuration of a share partition, and of its group
explain.py      the records in flight of a share partition, as JSON
persister.py    the seam between a share partition and its persisted state
state_shard.py  the share coordinator: the states of one partition of `__share_group_state`, driven by
                `runtime/coordinators/share_host.py`
state_batches.py state_records.py    runs of offsets in one state, merged; the coordinator's records
state_messages.py    the coordinator's APIs: requests and responses, as messages and back
"""
