"""A partition's log: segments in order, and what is known of its offsets, producers and leader epochs.

log.py            Log, which the others work on: begin here
opening.py        opens or recovers its directory
append.py         an append's parts and result; and its special ways:
  plain_append.py own_append.py coalesced_append.py    a plain batch; what this broker encodes; several with one write
local_log.py      the files: rolled, truncated, deleted
reader.py lookup.py    offsets to regions of files; offsets by time, aborted transactions
flush.py          fsync off the loop
truncation.py replacement.py    a replica that has diverged; a log that was moved
retention.py maintenance.py pending_files.py    which segments go; deletes them; files that readers may still use

Records enter a log by four doors. The last two are short ways for the usual case: what they do not know they refuse
before any change, and their caller takes the first door. The outcome is the same: bytes, indexes, producer state.

Log.append_as_leader      a client's records: checked, placed, written; append_checked goes on after a check on a worker
Log.append_as_follower    as the leader placed them: only headers, CRCs and the order of offsets are checked
own_append                what this broker encodes itself, not parsed again: 7 us a record in place of 19
coalesced_append          small batches that came together: checked one by one, one write: 3.5 us each in place of 8

Called by `replication/`, `storage/manager/` and `runtime/coordinators/`.
"""
