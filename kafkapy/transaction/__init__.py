"""Transactions as a pure machine: the transaction coordinator without network, disk or clock.

A request is decided from the current state, its records are appended to a partition of `__transaction_state`, and only
replaying them changes the state. Driven by `runtime/coordinators/transaction_host.py`. Source: KIP-98, 360, 890.

shard.py         the transactional ids of one partition: begin here
states.py        Empty, Ongoing, PrepareCommit, CompleteCommit, ..., and the allowed transitions
metadata.py      one transactional id, and the metadata after each step
init_producer_id.py end_txn.py    what is checked when a producer begins, and when a transaction ends
decision.py records.py settings.py    what a shard returns; its records; configuration
filters.py hash_order.py    ListTransactions; Java's order of partitions
"""
