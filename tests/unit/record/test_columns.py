"""Records by columns, and records copied without being read."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.record.batch import RecordBatch
from kafkapy.record.columns import (
    join_records,
    latest_timestamp_delta,
    one_by_one,
    record_columns,
    record_starts,
    with_base_timestamp,
)
from kafkapy.record.errors import InvalidRecordsError
from tests.support.batches import build_batch

BLOBS = st.one_of(st.none(), st.binary(max_size=300))
RECORDS = st.lists(
    st.tuples(
        st.integers(0, 1 << 41), BLOBS, BLOBS, st.lists(st.tuples(st.text(max_size=3), BLOBS), max_size=3).map(tuple)
    ),
    min_size=1,
    max_size=80,
)


def batch_of(records: list, **fields: object) -> RecordBatch:
    return RecordBatch(build_batch(records, **fields))


@given(RECORDS, st.data())
def test_columns_hold_what_records_hold(records: list, data: st.DataObject) -> None:
    deltas = sorted(data.draw(st.sets(st.integers(0, 1 << 30), min_size=len(records), max_size=len(records))))
    batch = batch_of(records, offset_deltas=deltas)
    columns = record_columns(batch.records_payload(), batch.record_count)
    assert columns.offset_deltas == deltas
    assert columns.starts == record_starts(batch.records_payload(), batch.record_count)
    assert columns.keys == [key for _, key, _, _ in records]
    assert columns.null_values == [at for at, (_, _, value, _) in enumerate(records) if value is None]


@st.composite
def similar_records(draw: st.DrawFn) -> list[tuple[int, bytes | None, bytes | None, tuple]]:
    """Records with keys of one length and values of any, as of one producer; at times one is unlike the others."""
    key_length = draw(st.integers(0, 60))
    value_lengths = draw(st.lists(st.integers(60, 300), min_size=8, max_size=150))
    records: list = [
        (at // 3, bytes([at]) * key_length, None if length % 37 == 0 and key_length > 20 else bytes(length), ())
        for at, length in enumerate(value_lengths)
    ]
    odd = draw(st.sampled_from([None, (70, b"key", b"value", ()), (0, None, bytes(90), ()), (0, b"", bytes(8200), ())]))
    if odd is not None:
        records[draw(st.integers(1, len(records) - 1))] = odd
    return records


@given(similar_records(), st.data())
def test_similar_records_are_read_as_any_others_also_if_they_are_damaged(records: list, data: st.DataObject) -> None:
    payload = bytearray(batch_of(records).records_payload())
    assert record_columns(bytes(payload), len(records)) == one_by_one(bytes(payload), len(records))
    at = data.draw(st.integers(0, min(len(payload), 800) - 1))
    payload[at] = data.draw(st.integers(0, 255))
    assert read(record_columns, payload, len(records)) == read(one_by_one, payload, len(records))


def read(columns_of: Callable[[bytes, int], object], payload: bytearray, record_count: int) -> object:
    try:
        return columns_of(bytes(payload), record_count)
    except InvalidRecordsError:
        return None


@given(RECORDS, st.data())
def test_joined_records_are_those_that_were_chosen(records: list, data: st.DataObject) -> None:
    batch = batch_of(records)
    payload = batch.records_payload()
    columns = record_columns(payload, len(records))
    indexes = sorted(data.draw(st.sets(st.integers(0, len(records) - 1), min_size=1)))
    chosen = [records[at] for at in indexes]
    joined = join_records(payload, columns.starts, indexes)
    base_timestamp = records[0][0]
    assert joined == batch_of([records[0], *chosen], offset_deltas=[0, *indexes]).records_payload()[columns.starts[1] :]
    at_most = batch.max_timestamp - base_timestamp
    latest = latest_timestamp_delta(payload, columns.starts, indexes, at_most=at_most)
    assert latest == max(time for time, *_ in chosen) - base_timestamp
    moved = with_base_timestamp(payload, columns.starts, indexes, moved_by_ms=12345)
    wanted = batch_of(chosen, offset_deltas=indexes, delete_horizon_ms=base_timestamp + 12345).records_payload()
    assert moved == wanted


@given(st.binary(max_size=40), st.integers(0, 5))
def test_garbage_is_refused(payload: bytes, record_count: int) -> None:
    try:
        columns = record_columns(payload, record_count)
    except InvalidRecordsError:
        return
    assert columns.starts[-1] == len(payload)


@pytest.mark.parametrize("read", [record_columns, record_starts])
@pytest.mark.parametrize("cut", [1, 5, 20])
def test_records_cut_short_are_refused(cut: int, read: Callable[[bytes, int], object]) -> None:
    payload = batch_of([(0, b"key", b"value" * 5, ())] * 3).records_payload()
    with pytest.raises(InvalidRecordsError):
        read(payload[:-cut], 3)
    with pytest.raises(InvalidRecordsError):
        read(payload, 2)
