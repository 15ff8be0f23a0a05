"""A partition's log: its segments in order, its offsets, producers and leader epochs.

log.py            Log, which the others work on: begin here
opening.py        opens or recovers its directory
append.py         an append's parts and result; and its special ways:
  plain_append.py own_append.py coalesced_append.py    a plain batch; what this broker encodes; several with one write
local_log.py      the files: rolled, truncated, deleted
reader.py lookup.py    offsets to regions of files; offsets by time, aborted transactions
flush.py          fsync off the loop
truncation.py replacement.py    a replica that has diverged; a log that was moved
retention.py maintenance.py pending_files.py    which segments are due; deletes them; files that readers may still use

Four functions append to a log. The last two are fast paths for the usual case: they refuse what they do not support
before they change anything, and their caller then uses the first. Bytes, indexes and producer state are the same.

Log.append_as_leader      a client's records: checked, placed, written; append_checked goes on after a check on a worker
Log.append_as_follower    as the leader placed them: only headers, CRCs and the order of offsets are checked
own_append                records that this broker encodes itself, and does not parse again: 7 us a record, not 19
coalesced_append          small batches of several requests, each checked, in one write: 3.5 us a batch, not 8

Called by `replication/`, `storage/manager/` and `runtime/coordinators/`.
"""
