"""Recovers a log after a crash: completes interrupted work, truncates damage, rebuilds indexes.

loader.py              loads one log: begin here
crash_cleanup.py       files pending deletion, interrupted replacements of segments
segment_recovery.py    batches validated from the first byte, indexes as appends would write them
segment_split.py       a segment whose offsets overflow its indexes

Called by `storage/log/opening.py`; in a helper process by `storage/manager/recovery_process.py`.
"""
