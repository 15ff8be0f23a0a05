"""Indexes that become full amid an append of several batches: the rest gets no entries, and the next append rolls."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.storage.log.log import Log
from kafkapy.storage.log.own_append import ProducerMarker, append_own_markers
from tests.simulator.disk import SimDisk
from tests.support.logs import NOW_MS, batch, open_small_log

CONFIG: dict[str, Any] = {"index_interval_bytes": 0, "segment_index_bytes": 60, "segment_bytes": 100_000}
BATCHES = 20
"""More than the five entries that the time index has room for."""


def append_fetched(log: Log) -> None:
    end_offset = log.log_end_offset
    batches = [
        batch(base_offset=offset, leader_epoch=0, timestamp_ms=NOW_MS + offset)
        for offset in range(end_offset, end_offset + BATCHES)
    ]
    log.append_as_follower(b"".join(batches), NOW_MS, leader_epoch=0)


def append_markers(log: Log) -> None:
    markers = [ProducerMarker(producer_id, 0, True, 0) for producer_id in range(BATCHES)]
    now_ms = NOW_MS + log.log_end_offset
    assert append_own_markers(log, markers, leader_epoch=0, now_ms=now_ms, transaction_version=0)


@pytest.mark.parametrize("append", [append_fetched, append_markers])
def test_an_append_that_fills_the_indexes_is_written(append: Callable[[Log], None]) -> None:
    disk = SimDisk()
    log = open_small_log(disk, **CONFIG)
    append(log)
    assert log.log_end_offset == BATCHES
    is_full = log.segments.active.is_index_full
    append_fetched(log)
    assert log.log_end_offset == 2 * BATCHES
    assert len(log.segments) == (2 if is_full else 1)
    log.update_high_watermark(2 * BATCHES)
    for offset in range(2 * BATCHES):
        region = log.read(offset, 1, wait=True).region
        assert region is not None
        assert int.from_bytes(region.read()[:8], "big") == offset
        region.release()
    disk.crash("all")
    log = open_small_log(disk, was_clean_shutdown=False, **CONFIG)
    assert log.log_end_offset == 2 * BATCHES


def test_a_segment_is_used_until_one_of_its_indexes_is_full() -> None:
    """A time index that gets no entries, as timestamps do not rise, ends a segment no sooner than the offset index."""
    log = open_small_log(SimDisk(), **CONFIG)
    segment = log.segments.active
    while log.segments.active is segment:
        assert segment.index_room <= min(segment.offset_index.room, segment.time_index.room)
        log.append_as_follower(
            batch(base_offset=log.log_end_offset, leader_epoch=0, timestamp_ms=NOW_MS), NOW_MS, leader_epoch=0
        )
    assert segment.offset_index.entry_count == CONFIG["segment_index_bytes"] // segment.offset_index.ENTRY_BYTES
    assert segment.time_index.entry_count == 1
