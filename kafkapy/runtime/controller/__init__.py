"""Runs `metadata/controller.py` on the metadata quorum: decide, append, replay, and respond once committed.

controller.py        on every node: publishes images of committed records; on the active controller: writes decisions
term.py              one term as the active controller: its tables, and the steps of a decision
decision_queue.py    one decision at a time
schedule.py          decisions at intervals: fencing, leader balance, expiry
settings.py          configuration

Built by `server/quorum_node.py`; driven by requests, timers, and commits of `runtime/quorum/quorum.py`.
"""
