"""Runs coordinator shards, of any kind, on the partitions led here: decide, append, replay, respond once committed.

coordinator.py    finds the shard of a key; loads and unloads shards as leadership changes
shard_host.py     one shard on its partition, over writer.py (appends), shared_write.py (decisions in one batch)
                  and commit_waits.py (responses until the high watermark)
group_coordinator.py group_host.py regex_matching.py    groups: deadlines, offset expiry, regular expressions
share_states.py share_offsets.py latest_offsets.py    states of share groups' partitions: created, deleted, described
long_decisions.py    decisions that need large target assignments or topologies, computed in turns
transaction_coordinator.py transaction_host.py    transactional ids: time-outs, markers of decided transactions
marker_writer.py markers.py    writes markers until every partition has its own
transaction_verification.py remote_verification.py    a leader asks whether its partition is in a transaction (KIP-890)
share_groups.py    the parts of share groups, made when they are first needed:
share_coordinator.py share_host.py    states of share partitions: cold snapshots, pruning of the log
share_persister.py    requests to the share coordinator, on this broker or another
late_transactions.py forced_rebalance.py    finds transactions that stay open too long; a rebalance for a test

Built by `server/coordinators.py`; driven by `handlers/groups/`, `handlers/transactions/`, changes of leadership, and
timers.
"""
