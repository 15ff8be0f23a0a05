"""How far a pass may go, which log is due, and which segments become one."""

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.storage.cleaner.plan import (
    MAX_SEGMENTS_IN_GROUP,
    LogState,
    SegmentSizes,
    SegmentState,
    first_dirty_offset,
    group_segments,
    log_to_clean,
    needs_timestamps,
)

NOW_MS = 1_000_000
DAY_MS = 86_400_000


def state(*, clean_to: int | None = None, last_stable_offset: int = 350, recovery_point: int = 350,
          log_start_offset: int = 0, **config: int) -> LogState:  # fmt: skip
    """Segments at 0, 100, 200, 300 (active) of 10, 20, 30, 40 bytes; the log ends at 350."""
    segments = [
        SegmentState(base, size, largest_timestamp_ms=NOW_MS - 1000 + base, first_timestamp_ms=NOW_MS - 1100 + base)
        for base, size in ((0, 10), (100, 20), (200, 30), (300, 40))
    ]
    settings = LogConfig(cleanup_policy=("compact",), **config)
    return LogState(segments, log_start_offset, 350, last_stable_offset, recovery_point, clean_to, settings)


@pytest.mark.parametrize(
    ("clean_to", "last_stable_offset", "recovery_point", "expected"),
    [
        (None, 350, 350, (0, 300, 0, 60)),  # all but the active segment
        (100, 350, 350, (100, 300, 10, 50)),
        (150, 350, 350, (150, 300, 30, 50)),  # the segment that holds the first dirty offset counts as both
        (100, 250, 350, (100, 200, 10, 20)),  # the segment that holds an open transaction stays
        (100, 350, 299, (100, 200, 10, 20)),  # so does one that is not durable
        (100, 100, 350, (100, 100, 10, 0)),
        (300, 350, 350, (300, 300, 60, 0)),
        (250, 120, 350, (250, 200, 60, 0)),
    ],
)
def test_bounds_of_a_pass(
    clean_to: int | None, last_stable_offset: int, recovery_point: int, expected: tuple[int, int, int, int]
) -> None:
    found = log_to_clean(
        state(clean_to=clean_to, last_stable_offset=last_stable_offset, recovery_point=recovery_point), NOW_MS
    )
    assert found[:4] == expected


@pytest.mark.parametrize(
    ("lag_ms", "expected"), [(0, 300), (750, 300), (799, 300), (801, 200), (850, 200), (901, 100), (2000, 0)]
)
def test_segments_younger_than_the_minimal_lag_stay(lag_ms: int, expected: int) -> None:
    assert log_to_clean(state(min_compaction_lag_ms=lag_ms), NOW_MS).first_uncleanable_offset == expected


@pytest.mark.parametrize(("lag_ms", "is_overdue"), [(1200, False), (1000, False), (999, True), (1, True)])
def test_a_log_is_overdue_by_its_first_dirty_record(lag_ms: int, is_overdue: bool) -> None:
    found = log_to_clean(state(clean_to=100, max_compaction_lag_ms=lag_ms), NOW_MS)
    assert found.is_overdue is is_overdue
    assert found.is_due(0.99) is is_overdue


def test_times_matter_only_where_a_lag_is_set() -> None:
    assert not needs_timestamps(LogConfig())
    assert needs_timestamps(LogConfig(min_compaction_lag_ms=1))
    assert needs_timestamps(LogConfig(max_compaction_lag_ms=DAY_MS))


def test_a_log_is_due_above_its_dirty_ratio() -> None:
    found = log_to_clean(state(clean_to=200), NOW_MS)
    assert found.dirty_ratio == 0.5
    assert not found.is_due(0.5)
    assert found.is_due(0.49)


@pytest.mark.parametrize(("clean_to", "expected"), [(None, 50), (49, 50), (50, 50), (70, 70), (100, 100), (101, 50)])
def test_a_checkpoint_outside_of_the_log_is_taken_back_to_its_start(clean_to: int | None, expected: int) -> None:
    assert first_dirty_offset(50, 100, clean_to) == expected


def test_a_reset_is_reported() -> None:
    assert log_to_clean(state(clean_to=400), NOW_MS).is_reset
    assert not log_to_clean(state(clean_to=None), NOW_MS).is_reset


def grouped(*segments: SegmentSizes, end_offset: int = 1 << 40) -> list[list[int]]:
    groups = group_segments(segments, max_bytes=100, max_index_bytes=50, end_offset=end_offset)
    return [[segment.base_offset for segment in group] for group in groups]


def test_groups_fit_into_a_segment_by_bytes() -> None:
    sizes = [60, 40, 1, 99, 100, 200, 30]
    assert grouped(*(SegmentSizes(at, size, 0, 0) for at, size in enumerate(sizes)), end_offset=7) == [
        [0, 1], [2, 3], [4], [5], [6],
    ]  # fmt: skip


def test_groups_fit_by_the_sizes_of_their_indexes() -> None:
    by_offset = [SegmentSizes(at, 1, 25, 0) for at in range(4)]
    by_time = [SegmentSizes(at, 1, 0, 26) for at in range(3)]
    assert grouped(*by_offset, end_offset=4) == [[0, 1], [2, 3]]
    assert grouped(*by_time, end_offset=3) == [[0], [1], [2]]


def test_groups_span_no_more_offsets_than_an_index_can_say() -> None:
    last = 2**31 - 1
    assert grouped(SegmentSizes(0, 1, 0, 0), SegmentSizes(5, 1, 0, 0), end_offset=last + 1) == [[0, 5]]
    assert grouped(SegmentSizes(0, 1, 0, 0), SegmentSizes(5, 1, 0, 0), end_offset=last + 2) == [[0], [5]]
    assert grouped(SegmentSizes(0, 1, 0, 0), SegmentSizes(5, 0, 0, 0), end_offset=last + 2) == [[0, 5]]  # is empty


def test_groups_are_renamed_between_two_requests() -> None:
    groups = grouped(*(SegmentSizes(at, 1, 0, 0) for at in range(MAX_SEGMENTS_IN_GROUP + 1)), end_offset=65)
    assert [len(group) for group in groups] == [MAX_SEGMENTS_IN_GROUP, 1]
