"""What brokers ask the share coordinator (KIP-932): the persisted state of partitions that are read as queues.

initialize_share_group_state.py write_share_group_state.py delete_share_group_state.py    change it
read_share_group_state.py read_share_group_state_summary.py    with and without its batches
state_requests.py    what the five have in common

The state is kept by `runtime/coordinators/share_coordinator.py`.
"""
