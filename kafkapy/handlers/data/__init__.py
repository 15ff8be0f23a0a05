"""The data plane: APIs that write, read and look up records of partitions led here, and replication's Fetch.

produce.py produced_batch.py    all steps of a Produce request: begin here; fields of a batch's header
small_produces.py   its fast path for consecutive small requests; delayed_responses.py has their responses with acks=-1
wide_produces.py    its fast path for requests to several partitions
transactional_produce.py    batches of a transaction, verified first; own_produce.py    this broker's own dead letters
fetch.py            Fetch of a consumer, over fetch_reading.py (read, wait, read again) and fetch_wire.py (sessions);
                    wide_fetch.py has those of many partitions
follower_fetch.py   Fetch of a follower, whose progress moves the high watermark
fetch_counts.py     counts of fetches
list_offsets.py offset_for_leader_epoch.py    offsets by time, by epoch
delete_records.py   advances the log start offset
write_txn_markers.py describe_producers.py    the end of transactions; producers of a partition

Called by `serving/router.py`; they call `replication/replica_manager.py`.
"""
