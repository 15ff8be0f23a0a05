"""Share groups as pure machines, without network, disk or clock (KIP-932): queues over partitions.

Imported when the first request of a share group arrives: most brokers have none.

partition.py    a share partition: which records are in flight, with whom, how often: begin here
in_flight.py in_flight_batch.py record_state.py    its batches in order; the runs of a batch; the states
session.py      share sessions: of a member with a broker
acquisition.py aborted.py fetched.py    what a member acquires of the batches that were read
acknowledgement.py lock_expiry.py       how deliveries end
pending_write.py        what has to be written, and what follows
dead_letters.py letter_headers.py    the records of a dead-letter topic (KIP-1191), and what their headers are called
partition_settings.py group_settings.py    configuration of a share partition, and of its group
persister.py    the seam between a share partition and its persisted state
state_shard.py  the share coordinator: the states of one partition of `__share_group_state`, driven by
                `runtime/coordinators/share_host.py`
state_batches.py state_records.py    runs of offsets in one state, merged; the coordinator's records
state_messages.py    the coordinator's APIs: what is asked and answered, as messages and back
"""
