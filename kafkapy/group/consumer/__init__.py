"""KIP-848 consumer groups: the coordinator computes a target assignment, and heartbeats bring each member to it. Pure.

member.py reconcile.py    a member with its epochs; its next step towards the target, revoking before assigning
state.py group.py         what the log holds, as replayed; ConsumerGroup, which adds deadlines and answers questions
heartbeat.py update.py checks.py    a heartbeat's decision, its steps, and what is refused
subscriptions.py regex_schedule.py regex_resolution.py    subscribed names and regular expressions, resolved to topics
timers.py                 session and rebalance deadlines: soft state
records.py history.py     the records; the rebalances that they tell of

Called by `group/consumer_requests.py`; driven by `runtime/coordinators/group_host.py`, and by
`runtime/coordinators/regex_matching.py` for regular expressions.
"""
