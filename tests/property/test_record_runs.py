"""The walk over runs of equally laid out records finds what the careful one does, wherever runs begin or end."""

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record.builder import NewRecord, build_batch
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.record.walk import WalkedRecords, _walk_with_care, walk_records_in

BASE_MS = 1_000_000
BEFORE = b"before"
EDGES = (1, 2, 23, 24, 25, 63, 64, 65, 255, 256, 257, 4095, 4097, 8190)
"""Lengths of runs about which the walk's parts change."""
STEPS_MS = (0, 0, 1, 3, 63, 64, 65, 8192, -1)

runs = st.lists(
    st.tuples(
        st.one_of(st.sampled_from(EDGES), st.integers(1, 150)),  # records
        st.sampled_from((None, b"", b"k", b"key", bytes(64))),
        st.sampled_from((None, b"", b"v", bytes(57), bytes(63), bytes(64))),
        st.sampled_from(STEPS_MS),  # before the run
        st.sampled_from((1, 3, 40)),  # records a ms in it
        st.sampled_from(((), (), (), (("h", b"1"),))),
    ),
    min_size=1,
    max_size=6,
)
damages = st.lists(
    st.tuples(st.integers(0), st.sampled_from((0, 1, 2, 3, 126, 127, 128, 129, 254, 255)), st.integers(0, 9)),
    max_size=3,
)


def records_of(
    drawn: list[tuple[int, bytes | None, bytes | None, int, int, tuple[tuple[str, bytes], ...]]],
) -> list[NewRecord]:
    found: list[NewRecord] = []
    now_ms = BASE_MS
    for count, key, value, step_ms, per_ms, headers in drawn:
        now_ms += step_ms
        found += [(now_ms + index // per_ms, key, value, headers) for index in range(count)]
        now_ms += count // per_ms
    return found


def careful(payload: bytes, count: int) -> WalkedRecords | str:
    try:
        return _walk_with_care(payload, 0, len(payload), count)
    except InvalidRecordsError as error:
        return error.message


def as_walked(data: bytes, start: int, end: int, count: int) -> WalkedRecords | str:
    try:
        return walk_records_in(data, start, end, count)
    except InvalidRecordsError as error:
        return error.message


@settings(max_examples=100, deadline=None)
@given(runs, damages, st.sampled_from((b"", bytes(300), b"\x10\0\0\0\1\1\0" * 60)), st.sampled_from((0, 0, 0, 1, -1)))
def test_runs_are_walked_as_record_by_record(
    drawn: list[tuple[int, bytes | None, bytes | None, int, int, tuple[tuple[str, bytes], ...]]],
    damaged: list[tuple[int, int, int]],
    after: bytes,
    miscounted: int,
) -> None:
    """Damage changes a byte at any place, and perhaps the same byte of records at about equal distances after it."""
    records = records_of(drawn)
    payload = bytearray(build_batch(records)[61:])
    for place, byte, repeats in damaged:
        stride = len(payload) // len(records)
        for repeat in range(repeats + 1):
            payload[(place + repeat * stride) % len(payload)] = byte
    alone = careful(bytes(payload), len(records) + miscounted)
    data = BEFORE + bytes(payload) + after
    assert as_walked(data, len(BEFORE), len(BEFORE) + len(payload), len(records) + miscounted) == alone
