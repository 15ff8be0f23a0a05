"""Decide which log to clean next, up to which offset, and which segments are merged.

No IO. The rules are Apache Kafka's (LogCleanerManager, Cleaner.groupSegmentsBySize). A log is clean up to the end of
the last pass, and dirty from there to the first uncleanable offset:

    [ clean ............ )[ dirty ................ )[ not yet ........... active segment ]
    log start offset      first dirty offset        first uncleanable offset

Deviation: Apache Kafka's pass ends at the active segment. Here it ends at the recovery point, because it drops old
values for newer ones, and a power failure could lose both. Deviation: Apache Kafka merges any number of segments. Here
at most MAX_SEGMENTS_IN_GROUP become one, because the swap blocks the event loop.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.types import INT32_MAX, INT64_MAX

MAX_SEGMENTS_IN_GROUP: Final = 64
"""Renaming the four files of this many segments takes a few milliseconds."""


class SegmentState(NamedTuple):
    """A segment of a LogState. Timestamps are -1 if there is none or they are not needed (`needs_timestamps`)."""

    base_offset: int
    size_bytes: int
    largest_timestamp_ms: int = -1
    first_timestamp_ms: int = -1


class LogState(NamedTuple):
    """A compacted log: all its segments, the active one last. clean_to: the end of the last pass, None if unknown."""

    segments: Sequence[SegmentState]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    recovery_point: int
    clean_to: int | None
    config: LogConfig


class LogToClean(NamedTuple):
    """The extent of a pass over a log. Sizes in bytes; overdue_ms: the time since max.compaction.lag.ms has passed."""

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    is_reset: bool
    """Whether clean_to was invalid: the log was truncated below it, or starts above it."""

    @property
    def is_overdue(self) -> bool:
        return self.overdue_ms > 0

    @property
    def dirty_ratio(self) -> float:
        total_bytes = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total_bytes if total_bytes else 0.0

    def is_due(self, min_dirty_ratio: float) -> bool:
        return (self.is_overdue and self.dirty_bytes > 0) or self.dirty_ratio > min_dirty_ratio


def needs_timestamps(config: LogConfig) -> bool:
    """Return whether a compaction lag is configured, so that the dirty segments' timestamps are needed."""
    return config.min_compaction_lag_ms > 0 or config.max_compaction_lag_ms < INT64_MAX


def first_dirty_offset(log_start_offset: int, log_end_offset: int, clean_to: int | None) -> int:
    """Return the start of the dirty section: `clean_to`, or the log start offset if that is outside the log."""
    if clean_to is None or not log_start_offset <= clean_to <= log_end_offset:
        return log_start_offset
    return clean_to


def log_to_clean(log: LogState, now_ms: int) -> LogToClean:
    """Return the range that a pass could clean, and how dirty the log is."""
    assert log.segments, "a log has at least one segment"
    assert log.log_start_offset <= log.last_stable_offset <= log.log_end_offset, f"{log.last_stable_offset} of {log}"
    first_dirty = first_dirty_offset(log.log_start_offset, log.log_end_offset, log.clean_to)
    dirty = _inactive_from(log.segments, first_dirty)
    uncleanable = max(_first_uncleanable(log, dirty, now_ms), first_dirty)
    assert first_dirty <= uncleanable, f"dirty from {first_dirty} on, not to be cleaned from {uncleanable} on"
    containing = _floor(log.segments, uncleanable)
    end_offset = containing.base_offset if containing is not None else log.segments[-1].base_offset
    dirty_start = min(first_dirty, end_offset)
    floor = _floor(log.segments, dirty_start)
    from_offset = floor.base_offset if floor is not None else dirty_start
    return LogToClean(
        first_dirty,
        end_offset,
        sum(segment.size_bytes for segment in log.segments if segment.base_offset < first_dirty),
        sum(segment.size_bytes for segment in log.segments if from_offset <= segment.base_offset < end_offset),
        _overdue_ms(dirty, log.config, now_ms),
        log.clean_to is not None and log.clean_to != first_dirty,
    )


def _first_uncleanable(log: LogState, dirty: Sequence[SegmentState], now_ms: int) -> int:
    """Return the first offset not to clean: active, unstable, not durable, or newer than min.compaction.lag.ms."""
    limits = [log.last_stable_offset, log.recovery_point, log.segments[-1].base_offset]
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        young = (segment.base_offset for segment in dirty if segment.largest_timestamp_ms > now_ms - lag_ms)
        limits.extend(list(young)[:1])
    return min(limits)


def _overdue_ms(dirty: Sequence[SegmentState], config: LogConfig, now_ms: int) -> int:
    first_timestamps = [segment.first_timestamp_ms for segment in dirty if segment.first_timestamp_ms > 0]
    due_ms = now_ms - max(config.max_compaction_lag_ms, 0)
    return max(due_ms - min(first_timestamps), 0) if first_timestamps else 0


def _floor(segments: Sequence[SegmentState], offset: int) -> SegmentState | None:
    """Return the last segment with a base offset at or below `offset`, or None."""
    found = None
    for segment in segments:
        if segment.base_offset > offset:
            break
        found = segment
    return found


def _inactive_from(segments: Sequence[SegmentState], offset: int) -> list[SegmentState]:
    """Return the segments from the one that contains `offset` on, without the active one."""
    floor = _floor(segments, offset)
    return [segment for segment in segments[:-1] if floor is None or segment.base_offset >= floor.base_offset]


class SegmentSizes(NamedTuple):
    """A segment's sizes, for group_segments."""

    base_offset: int
    size_bytes: int
    offset_index_bytes: int
    time_index_bytes: int


def group_segments(
    segments: Iterable[SegmentSizes], *, max_bytes: int, max_index_bytes: int, end_offset: int
) -> list[list[SegmentSizes]]:
    """Return runs of segments, each to be merged into one: all of their records would fit into one segment.

    end_offset: of the last segment. A segment's last offset must fit its index: 31 bits relative to the base offset.
    """
    segments = list(segments)
    ends = [segment.base_offset for segment in segments[1:]] + [end_offset]
    groups: list[list[SegmentSizes]] = []
    for segment, end in zip(segments, ends, strict=True):
        group = groups[-1] if groups else None
        if group is not None and _fits(group, segment, end - 1, max_bytes, max_index_bytes):
            group.append(segment)
        else:
            groups.append([segment])
    return groups


def _fits(
    group: list[SegmentSizes], segment: SegmentSizes, last_offset: int, max_bytes: int, max_index_bytes: int
) -> bool:
    together = [*group, segment]
    return (
        len(together) <= MAX_SEGMENTS_IN_GROUP
        and sum(each.size_bytes for each in together) <= max_bytes
        and sum(each.offset_index_bytes for each in together) <= max_index_bytes
        and sum(each.time_index_bytes for each in together) <= max_index_bytes
        and (segment.size_bytes == 0 or last_offset - group[0].base_offset <= INT32_MAX)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningPlan:
    """The input of a pass, JSON-serializable. Segments are (base offset, size in bytes), oldest first.

    segments: those below end_offset, which is the first uncleanable offset and a segment's base offset. aborted:
    (producer id, first, last, last stable offset) of the aborted transactions that overlap them. last_records:
    (producer id, last data offset or None, producer epoch) of the known producers.
    """

    directory: str
    segments: Sequence[tuple[int, int]]
    first_dirty_offset: int
    end_offset: int
    now_ms: int
    aborted: Sequence[tuple[int, int, int, int]]
    last_records: Sequence[tuple[int, int | None, int]]
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    dedupe_buffer_bytes: int
    load_factor: float
    io_buffer_bytes: int


class CleanedSegment(NamedTuple):
    """A group ready to swap in: the .cleaned files at base_offset replace the segments with the offsets `replaced`."""

    base_offset: int
    replaced: list[int]
    size_bytes: int
    has_txn_index: bool
