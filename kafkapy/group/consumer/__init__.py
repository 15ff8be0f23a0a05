"""KIP-848 consumer groups: the coordinator computes a target assignment, and heartbeats bring each member to it. Pure.

member.py reconcile.py    a member with its epochs; its next step towards the target, revoking before assigning
state.py group.py         the state in the log, as replayed; ConsumerGroup adds deadlines, and checks of requests
heartbeat.py update.py checks.py    a heartbeat's decision: begin here; its steps; its refusals
subscriptions.py regex_schedule.py regex_resolution.py    subscribed names and regular expressions, resolved to topics
timers.py                 session and rebalance deadlines: soft state
records.py history.py     the records; the history of rebalances, from the records

Called by `group/consumer_requests.py`; driven by `runtime/coordinators/group_host.py`, and by
`runtime/coordinators/regex_matching.py` for regular expressions.
"""
