"""Background work on logs, so that no request waits for it.

recovery.py closing.py       load all logs at the start; fsync and close them at a clean stop
flusher.py maintenance.py    flushes that responses wait for; due flushes, checkpoints, retention, file deletion
checkpoint_writes.py         offset checkpoints, written by a worker
cleaner.py cleaner_worker.py    compaction, in a helper process: `storage/cleaner/` does it
log_dir_mover.py             moves replicas between directories while they are in use
full_directories.py          gives the replicas of a full directory away until there is room

Built by `server/broker.py`; driven by timers. Files are read and written by `storage/`, on workers if it takes long.
"""
