"""Partitions on this broker: leader or follower, who is in sync, and requests that wait for it. Synchronous callbacks.

replica_manager.py      append, read and wait, over many partitions: begin here
hosted_partitions.py    the partitions that have a replica here, and how metadata changes them
plain_appends.py        plain batches that a request has for several partitions
partition.py follower_state.py brokers.py    one partition: epochs, ISR, high watermark; a follower's progress
delayed_produce.py delayed_fetch.py delayed_delete_records.py    requests in purgatory
fetch_read.py partition_read.py offset_lookup.py    reading for a Fetch; its outcome; offsets by time
fetch_session.py follower_watch.py    incremental fetch sessions (KIP-227); which partitions have data for a follower
replica_selector.py throttle.py    reading from a replica nearby; replication quotas
follower_log.py log_move.py    a follower's changes to its log; a replica that moves to another directory

Called by `handlers/data/`; driven by `runtime/broker/metadata_publisher.py` (leaders and epochs),
`runtime/broker/isr_updates.py`, `runtime/followers/replica_fetcher.py` and `runtime/logs/log_dir_mover.py`.
"""
