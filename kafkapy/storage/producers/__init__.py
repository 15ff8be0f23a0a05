"""A log's producer state: sequences of idempotent producers, open transactions, the last stable offset.

entry.py        one producer: epoch, last five batches, open transaction
state.py        all of a partition: duplicates, gaps, fenced epochs
producer_counts.py  how many a broker keeps, of ids that the cluster granted and of others
snapshots.py    `.snapshot` files: the state at an offset
replay.py       rebuilt from a snapshot and the batches after it

Called by `storage/log/log.py` for each append, and by `storage/recovery/loader.py`.
"""
