"""One way into the log: whatever every append entails happens for those of a leader, of a follower, and gathered."""

from typing import Any

import pytest

from kafkapy.storage.log.gathered_append import GatheredAppend
from kafkapy.storage.log.log import Log
from kafkapy.types import OffsetAndEpoch
from tests.simulator.disk import SimDisk
from tests.support.logs import NOW_MS, batch, open_small_log


def append_alone(log: Log, leader_epoch: int) -> None:
    log.append_as_leader(batch(), leader_epoch=leader_epoch, now_ms=NOW_MS)


def append_replicated(log: Log, leader_epoch: int) -> None:
    data = batch(base_offset=log.log_end_offset, leader_epoch=leader_epoch)
    log.append_as_follower(data, NOW_MS, leader_epoch=leader_epoch)


def append_gathered(log: Log, leader_epoch: int) -> None:
    assert GatheredAppend.is_possible(log)
    gathered = GatheredAppend(log, leader_epoch=leader_epoch, now_ms=NOW_MS)
    data = bytes(batch())
    assert gathered.add(data, 0, len(data))
    assert gathered.write()


WAYS = [append_alone, append_replicated, append_gathered]


@pytest.fixture
def log() -> Log:
    log = open_small_log(SimDisk())
    append_alone(log, 3)
    return log


@pytest.mark.parametrize("append", WAYS)
def test_a_new_leader_epoch_is_noted(log: Log, append: Any) -> None:
    append(log, 3)
    append(log, 5)
    assert log.leader_epochs.entries == [(3, 0), (5, 2)]
    assert log.end_offset_for_epoch(3) == OffsetAndEpoch(2, 3)


@pytest.mark.parametrize("append", [append_alone, append_replicated])
def test_reaching_flush_messages_is_noted(append: Any) -> None:
    log = open_small_log(SimDisk(), flush_messages=2)
    append(log, 0)
    log.update_high_watermark(1)
    assert log.is_committed(1)
    append(log, 0)
    log.update_high_watermark(2)
    assert not log.is_committed(2)
    log.note_flushed(2, NOW_MS)
    assert log.is_committed(2)


@pytest.mark.parametrize("append", WAYS)
def test_an_append_behind_broken_offsets_is_an_assertion(log: Log, append: Any) -> None:
    log.high_watermark = 2
    with pytest.raises(AssertionError):
        append(log, 3)


def test_a_truncation_keeps_the_offsets_in_order(log: Log) -> None:
    log.update_high_watermark(1)
    with pytest.raises(AssertionError):
        log.note_truncated(0, 1)
    log.note_truncated(0, 0)
    assert log.high_watermark == 0


def test_what_is_not_there_is_not_durable(log: Log) -> None:
    with pytest.raises(AssertionError):
        log.note_flushed(2, NOW_MS)
