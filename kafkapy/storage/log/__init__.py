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

Called by `replication/`, `storage/manager/` and `runtime/coordinators/`.
"""
