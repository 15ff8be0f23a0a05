"""Decide which segments of a log are due for deletion: by age, by size, or below the log start offset.

Pure functions: the log passes facts about its segments and deletes those returned. Kafka's rules: always a run of the
oldest segments; none with offsets at or above the high watermark; the active (last) segment, too, unless it is empty.
"""

from collections.abc import Callable, Sequence

from kafkapy.config.log import LogConfig
from kafkapy.named_tuple import NamedTuple


class SegmentFacts(NamedTuple):
    """A segment as retention sees it. end_offset: the next segment's base offset; for the last, the log end offset.

    largest_timestamp_ms: of its records, or the file's modification time if no record has a timestamp.
    """

    base_offset: int
    end_offset: int
    size_bytes: int
    largest_timestamp_ms: int


class DueSegments(NamedTuple):
    """The number of oldest segments that are due for deletion, and the reason."""

    segment_count: int
    reason: str


def due_segments(
    segments: Sequence[SegmentFacts], config: LogConfig, *, high_watermark: int, log_start_offset: int, now_ms: int
) -> DueSegments:
    """Return how many of the oldest segments are due, by the rule that deletes the most of them.

    retention.ms and retention.bytes do not apply without `delete` in cleanup.policy: then only segments below the log
    start offset are due.
    """
    assert log_start_offset <= high_watermark, f"a log start offset {log_start_offset} above {high_watermark}"
    deletable = _below_high_watermark(segments, high_watermark)
    due = DueSegments(
        _count_below_start(segments, deletable, log_start_offset), f"log start offset {log_start_offset} breach"
    )
    if not config.is_deleted_by_retention:
        return due
    by_size = DueSegments(
        _count_over_size(segments, deletable, config.retention_bytes),
        f"log retention size {config.retention_bytes} breach",
    )
    by_age = DueSegments(
        _count_too_old(segments, deletable, config.retention_ms, now_ms),
        f"log retention time {config.retention_ms}ms breach",
    )
    return max(due, by_size, by_age, key=lambda candidate: candidate.segment_count)


def _count_while(deletable: Sequence[SegmentFacts], is_due: Callable[[SegmentFacts], bool]) -> int:
    count = 0
    for segment in deletable:
        if not is_due(segment):
            break
        count += 1
    return count


def _below_high_watermark(segments: Sequence[SegmentFacts], high_watermark: int) -> Sequence[SegmentFacts]:
    """Return the segments that may be deleted at all; never an empty active segment."""
    count = _count_while(segments, lambda segment: segment.end_offset <= high_watermark)
    if count == len(segments) and segments and segments[-1].size_bytes == 0:
        count -= 1
    return segments[:count]


def _count_below_start(
    segments: Sequence[SegmentFacts], deletable: Sequence[SegmentFacts], log_start_offset: int
) -> int:
    """Count the segments below log_start_offset. The last one stays: a log keeps at least one segment."""
    return _count_while(deletable[: len(segments) - 1], lambda segment: segment.end_offset <= log_start_offset)


def _count_over_size(segments: Sequence[SegmentFacts], deletable: Sequence[SegmentFacts], retention_bytes: int) -> int:
    """Count the segments to delete while the remaining size is at least retention_bytes."""
    excess = sum(segment.size_bytes for segment in segments) - retention_bytes
    if retention_bytes < 0 or excess < 0:
        return 0
    count = 0
    for segment in deletable:
        excess -= segment.size_bytes
        if excess < 0:
            break
        count += 1
    return count


def _count_too_old(
    segments: Sequence[SegmentFacts], deletable: Sequence[SegmentFacts], retention_ms: int, now_ms: int
) -> int:
    if retention_ms < 0:
        return 0
    return _count_while(deletable, lambda segment: now_ms - segment.largest_timestamp_ms > retention_ms)
