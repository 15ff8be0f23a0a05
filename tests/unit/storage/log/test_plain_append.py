"""A client's plain batch is appended as one that a worker has examined, and any other batch is left to that way."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.record.builder import NewRecord
from kafkapy.storage.log.append import AppendResult, validate_on_worker
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.plain_append import MAX_PLAIN_BYTES, append_plain
from kafkapy.types import INT32_MAX
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import NOW_MS, open_small_log
from tests.unit.storage.log.test_own_append import state_of

EPOCH = 3
ONE: list[NewRecord] = [(NOW_MS, b"key", b"value", ())]
TEN: list[NewRecord] = [(NOW_MS + index, None, b"x" * 100, ()) for index in range(10)]
KNOWN: dict[str, Any] = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 1}
"""The next batch of the producer that `logs` knows."""


def logs(**config: Any) -> tuple[Log, Log]:
    """Return two equal logs with a batch of producer 7."""
    pair = open_small_log(SimDisk(), **config), open_small_log(SimDisk(), **config)
    for log in pair:
        batch = bytearray(build_batch(ONE, **KNOWN | {"base_sequence": 0}))
        log.append_as_leader(batch, leader_epoch=EPOCH, now_ms=NOW_MS)
    return pair


def facts_of(result: AppendResult) -> dict[str, object]:
    offsets = (result.first_offset, result.last_offset, result.log_start_offset)
    times = (result.max_timestamp, result.log_append_time_ms)
    return {"offsets": offsets, "times": times, "bytes": result.size_bytes, "is_duplicate": result.is_duplicate}


def append_plainly(log: Log, batch: bytes) -> dict[str, object] | None:
    result = append_plain(log, batch, EPOCH, NOW_MS)
    return None if result is None else facts_of(result)


def append_examined(log: Log, batch: bytes) -> dict[str, object]:
    checked = validate_on_worker(bytearray(batch), log.client_rules, NOW_MS)
    return facts_of(log.append_checked(checked, leader_epoch=EPOCH, now_ms=NOW_MS))


def outcome(log: Log, batch: bytes, *, is_examined: bool) -> object:
    try:
        if is_examined:
            return append_examined(log, batch)
        return facts_of(log.append_as_leader(bytearray(batch), leader_epoch=EPOCH, now_ms=NOW_MS))
    except ApiError as error:
        return error.code, error.message


@pytest.mark.parametrize("fields", [{}, KNOWN])
@pytest.mark.parametrize("records", [ONE, TEN])
def test_plain_batches_end_as_examined_ones(records: list[NewRecord], fields: dict[str, Any]) -> None:
    plain, examined = logs(index_interval_bytes=1_000)
    for _ in range(8):
        batch = build_batch(records, **fields)
        found = append_plainly(plain, bytearray(batch))
        assert found is not None
        assert found == append_examined(examined, batch)
        fields = fields | {"base_sequence": fields["base_sequence"] + len(records)} if fields else {}
    assert state_of(plain) == state_of(examined)


def test_a_batch_that_does_not_fit_the_segment_rolls_it() -> None:
    plain, examined = logs(segment_bytes=2_000)
    for _ in range(3):
        assert append_plainly(plain, bytearray(build_batch(TEN))) == append_examined(examined, build_batch(TEN))
    assert len(plain.segments) == len(examined.segments) == 3
    assert state_of(plain) == state_of(examined)


def test_bytes_that_must_not_be_changed_are_copied() -> None:
    plain, examined = logs()
    batch = build_batch(TEN)
    before = bytes(batch)
    assert append_plainly(plain, batch) == append_examined(examined, batch)
    assert batch == before
    assert state_of(plain) == state_of(examined)


OTHERS: dict[str, bytes] = {
    "wrong CRC": build_batch(TEN)[:-1] + b"\1",
    "part of a batch": build_batch(TEN)[:-1],
    "a header alone": build_batch(TEN)[:61],
    "two batches": build_batch(ONE) * 2,
    "a base offset": bytes(7) + b"\1" + build_batch(ONE)[8:],
    "old records": build_batch([(5, None, b"x", ()), *TEN]),
    "new records": build_batch([*TEN, (NOW_MS + 10_000_000, None, b"x", ())]),
    "an unknown producer": build_batch(TEN, producer_id=8, producer_epoch=0, base_sequence=0),
    "a duplicate": build_batch(ONE, **KNOWN | {"base_sequence": 0}),
    "a gap in the sequence": build_batch(ONE, **KNOWN | {"base_sequence": 2}),
    "an older epoch": build_batch(ONE, **KNOWN | {"producer_epoch": -1}),
    "a transaction not verified": build_batch(ONE, **KNOWN, is_transactional=True),
    "a transaction of no producer": build_batch(ONE, is_transactional=True),
    "compressed": build_batch(TEN, compression=1),
    "large": build_batch([(NOW_MS, None, bytes(MAX_PLAIN_BYTES), ())]),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_batches_are_left_to_be_examined(name: str) -> None:
    log, examined = logs(message_timestamp_before_max_ms=1_000, max_message_bytes=1 << 20, segment_bytes=1 << 20)
    before = state_of(log)
    assert append_plain(log, bytearray(OTHERS[name]), EPOCH, NOW_MS) is None
    assert state_of(log) == before
    assert outcome(log, OTHERS[name], is_examined=False) == outcome(examined, OTHERS[name], is_examined=True)
    assert state_of(log) == state_of(examined)


@pytest.mark.parametrize(
    "config", [{"max_message_bytes": 200}, {"segment_bytes": 400}, {"message_timestamp_type": "LogAppendTime"}]
)
def test_batches_that_the_topic_does_not_take_as_they_are_are_left_too(config: dict[str, Any]) -> None:
    log, examined = logs(**config)
    batch = build_batch(TEN)
    assert outcome(log, batch, is_examined=False) == outcome(examined, batch, is_examined=True)
    assert state_of(log) == state_of(examined)


def test_a_sequence_that_wraps_is_left_too() -> None:
    log, examined = logs()
    for each in (log, examined):
        first = build_batch(TEN[:1], producer_id=9, producer_epoch=0, base_sequence=INT32_MAX - 3)
        outcome(each, first, is_examined=True)
    batch = build_batch(TEN, producer_id=9, producer_epoch=0, base_sequence=INT32_MAX - 2)
    assert append_plain(log, bytearray(batch), EPOCH, NOW_MS) is None
    assert outcome(log, batch, is_examined=False) == outcome(examined, batch, is_examined=True)
    assert state_of(log) == state_of(examined)
