"""Maintenance of a log's segments: delete those past retention, replace segments by their cleaned version."""

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError, StorageError
from kafkapy.storage.log.retention import due_segments
from kafkapy.storage.segment.segment import Segment

if TYPE_CHECKING:
    from kafkapy.storage.log.log import Log

logger = logging.getLogger("kafkapy.storage")


def delete_old_segments(log: "Log", now_ms: int) -> int:
    """Delete the segments that are due by retention or the log start offset; return their number.

    The last segment is kept if there is no space to create another. Files are deleted later: LocalLog.pop_due_files.
    """
    log.log_dir.check_online()
    log.record_time(now_ms)
    if len(log.segments) == 1 and not log.segments.active.size:
        return 0  # as many logs are: nothing to look up in the file system
    with log.failures("deleting segments"):
        due = due_segments(
            log.local_log.facts(log.log_end_offset),
            log.config,
            high_watermark=log.high_watermark,
            log_start_offset=log.log_start_offset,
            now_ms=now_ms,
        )
        if not due.segment_count:
            return 0
        segments = log.segments.all()[: due.segment_count]
        if due.segment_count == len(log.segments):  # the active one, too: an empty one takes its place
            try:
                log.roll(now_ms)
            except ApiError:
                segments.pop()
                if not segments:
                    raise
        following = log.segments.after(segments[-1])
        assert following is not None, "a log keeps at least one segment"
        # the start offset first: a read below it is refused before the file that it wants is gone
        log.maybe_increment_log_start_offset(following.base_offset)
        log.local_log.schedule_deletion(segments)
        assert log.segments.first is following, f"{log} begins with {log.segments.first}, not {following}"
    logger.info("Deleting %d segments of %s due to %s", len(segments), log.topic_partition, due.reason)
    return len(segments)


def delete_due_files(log: "Log", now_ms: int) -> int | None:
    """Delete the files whose delay has passed; return when the next are due (ms), or None. Blocks."""
    with log.failures("deleting files"):
        return log.local_log.delete_due_files(now_ms)


def swap_in_cleaned(
    log: "Log", base_offset: int, replaced: Sequence[Segment], *, has_txn_index: bool, now_ms: int
) -> None:
    """Replace adjacent segments by the cleaned segment in the .cleaned files at the first one's base offset.

    The old files are deleted after file.delete.delay.ms; pinned regions of them stay readable. Raises ApiError if a
    shortage (space, descriptors, memory) prevents the start of the swap. Raises StorageError if it fails halfway: the
    directory goes offline, and the next start finishes the swap.
    """
    log.log_dir.check_online()
    assert replaced[0].base_offset == base_offset, "a cleaned segment begins where the first one did"
    with log.failures("looking at a cleaned segment"):
        cleaned = log.local_log.load_cleaned(base_offset, has_txn_index=has_txn_index, now_ms=now_ms)
    try:
        log.local_log.swap_in_cleaned(cleaned, list(replaced))
    except OSError as error:
        log.log_dir.go_offline(f"swapping in a cleaned segment of {log.topic_partition}: {error}")
        raise StorageError(log.log_dir.path, f"cleaning {log.topic_partition}: {error}") from error
