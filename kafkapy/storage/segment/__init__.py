"""One file of record batches with its sparse indexes, and the open files of all of them.

segment.py segments.py    a segment: append, read, truncate; those of a log, found by offset
sparse_index.py           fixed-size entries, written and searched in place:
  offset_index.py time_index.py    offset to position; timestamp to offset
txn_index.py              aborted transactions
time_search.py scan.py    records by timestamp; sequential reading for recovery
open_files.py             a bounded cache of open files, and pins of those being sent

Called by `storage/log/local_log.py` and `storage/recovery/`.
"""
