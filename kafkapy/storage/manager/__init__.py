"""All logs of a node, over its log directories.

log_manager.py         create, find, move and delete logs; work that is due: begin here
loading.py recovery_process.py damaged_logs.py    all logs at the start; names without a usable log
log_directories.py log_directory.py    the directories, which of them gets a new log; one with its lock and identity
log_table.py pending_logs.py    logs by partition; deleted logs until their files are gone
checkpoints.py         recovery points, high watermarks and log start offsets, written by a worker
closing.py             the end of a clean stop, in steps
space_reserve.py       disk space kept for the metadata log

Driven by `runtime/logs/recovery.py` and `runtime/logs/maintenance.py`; called by `replication/hosted_partitions.py`.
"""
