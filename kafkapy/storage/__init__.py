"""The disk, synchronously: logs of records, their indexes, and what is left of them after a crash.

From bottom to top; each imports only those below it:
file_names.py errors.py checkpoint.py leader_epochs.py log_dir.py    names, errors, small files, a directory's health
system_disk.py workers.py    the production Disk; yielding the GIL on workers
segment/      a file of records with its indexes
producers/    idempotence and open transactions of a log
recovery/     what a log is after a crash
log/          a partition's log: append, read, truncate, flush, retention
metadata/     the metadata log with its snapshots and votes
manager/      all logs of a node, by directory
cleaner/      compaction
offline/      tools for directories that no broker uses

Called by `replication/`, `runtime/logs/` and `runtime/quorum/`. Formats are Apache Kafka's, to the byte.
"""
