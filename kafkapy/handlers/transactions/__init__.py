"""APIs of transactions, in the order in which a producer uses them.

init_producer_id.py          a producer id and epoch; fences older producers of the same transactional id
add_partitions_to_txn.py     partitions join the transaction, or a leader verifies that they have
add_offsets_to_txn.py txn_offset_commit.py    consumed offsets join it
end_txn.py                   commit or abort
list_transactions.py describe_transactions.py    administration

Called by `serving/router.py`; they call `runtime/coordinators/transaction_coordinator.py`, and `transaction/shard.py`
decides.
"""
