"""Share groups (KIP-932), which read partitions as queues: requests of members and tools, and between brokers.

share_fetch.py share_reading.py share_fetch_wire.py    a member acquires records: begin here
share_acknowledge.py acknowledgements.py    it accepts, releases, rejects or renews them
share_group_heartbeat.py share_group_describe.py    membership
describe_share_group_offsets.py alter_share_group_offsets.py delete_share_group_offsets.py    start offsets
in_flight.py    the records in flight on a broker, for `kafkapy groups explain`
gate.py    whether the cluster has share groups
initialize_share_group_state.py write_share_group_state.py delete_share_group_state.py    brokers change the state of
    share partitions, which runtime/coordinators/share_coordinator.py keeps
read_share_group_state.py read_share_group_state_summary.py    with and without its batches
state_requests.py    shared by these five
"""
