"""Partitions that are read as queues (KIP-932): what members ask, and what brokers ask the share coordinator.

share_fetch.py share_reading.py share_fetch_wire.py    a member acquires records: begin here
share_acknowledge.py acknowledgements.py    and accepts, releases, rejects, renews them

initialize_share_group_state.py write_share_group_state.py delete_share_group_state.py    change it
read_share_group_state.py read_share_group_state_summary.py    with and without its batches
state_requests.py    what the five have in common

The state is kept by `runtime/coordinators/share_coordinator.py`.
"""
