"""Share groups as pure machines, without network, disk or clock (KIP-932): queues over partitions.

Imported when the first request of a share group arrives: most brokers have none.

persister.py    the seam between a share partition and its persisted state
state_shard.py  the share coordinator: the states of one partition of `__share_group_state`, driven by
                `runtime/coordinators/share_host.py`
state_batches.py state_records.py    runs of offsets in one state, merged; the coordinator's records
state_messages.py    the coordinator's APIs: what is asked and answered, as messages and back
"""
