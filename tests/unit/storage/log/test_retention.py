from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.storage.log.retention import SegmentFacts, due_segments

SEGMENTS = [
    SegmentFacts(0, 10, 1000, 1000),
    SegmentFacts(10, 20, 1000, 2000),
    SegmentFacts(20, 30, 1000, 3000),
    SegmentFacts(30, 40, 500, 4000),
]


def due(segments: list[SegmentFacts] = SEGMENTS, **facts: Any) -> int:
    """Return how many segments are due; by default nothing calls for any."""
    high_watermark = facts.pop("high_watermark", 40)
    log_start_offset = facts.pop("log_start_offset", 0)
    now_ms = facts.pop("now_ms", 4000)
    config = LogConfig(**{"retention_ms": -1, **facts})
    return due_segments(
        segments, config, high_watermark=high_watermark, log_start_offset=log_start_offset, now_ms=now_ms
    ).segment_count


def test_nothing_is_due_without_limits() -> None:
    assert due(now_ms=1 << 50) == 0


@pytest.mark.parametrize(("now_ms", "count"), [(1100, 0), (1101, 1), (2101, 2), (4101, 4)])
def test_segments_go_by_the_age_of_their_newest_record(now_ms: int, count: int) -> None:
    assert due(retention_ms=100, now_ms=now_ms) == count


@pytest.mark.parametrize(("retention_bytes", "count"), [(3501, 0), (3500, 0), (2501, 0), (2500, 1), (500, 3), (0, 4)])
def test_segments_go_while_what_remains_is_no_less_than_the_limit(retention_bytes: int, count: int) -> None:
    assert due(retention_bytes=retention_bytes) == count


@pytest.mark.parametrize(("log_start_offset", "count"), [(9, 0), (10, 1), (25, 2), (40, 3)])
def test_segments_below_the_log_start_go_but_for_the_last(log_start_offset: int, count: int) -> None:
    assert due(log_start_offset=log_start_offset) == count


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    assert due(retention_bytes=0, high_watermark=29) == 2


def test_an_empty_last_segment_stays() -> None:
    assert due([SegmentFacts(40, 40, 0, 0)], retention_ms=0, now_ms=1 << 50) == 0
    assert due([*SEGMENTS, SegmentFacts(40, 40, 0, 0)], retention_ms=0, now_ms=1 << 50) == 4


def test_a_compacted_log_loses_only_what_is_below_its_start() -> None:
    assert due(cleanup_policy=("compact",), retention_ms=0, retention_bytes=0, log_start_offset=10, now_ms=9999) == 1
    assert due(cleanup_policy=("compact", "delete"), retention_ms=0, now_ms=9999) == 4


def test_a_young_segment_keeps_the_old_ones_behind_it() -> None:
    segments = [SegmentFacts(0, 10, 10, 9000), SegmentFacts(10, 20, 10, 1000), SegmentFacts(20, 30, 10, 9000)]
    assert due(segments, retention_ms=100, now_ms=9000, high_watermark=30) == 0
