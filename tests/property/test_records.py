"""Whatever is built is read back; whatever is damaged is read or refused with the family's errors, nothing else."""

import contextlib
import gzip
import json
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches, has_valid_crc, scan_headers
from kafkapy.record.builder import NewRecord
from kafkapy.record.compression import NONE, ZSTD, compress, decompress
from kafkapy.record.errors import InvalidRecordsError, RecordsError
from kafkapy.record.legacy import build_message_set
from kafkapy.record.validate import AppendOrigin, ValidationRules, check_as_is, validate_and_assign
from kafkapy.record.varint import encode_varint, read_varint, read_varlong
from kafkapy.record.walk import WalkedRecords, walk_records
from tests.support.batches import build_batch

CODECS = st.sampled_from(range(5))
MAYBE_BYTES = st.none() | st.binary(max_size=150)
HEADERS = st.lists(st.tuples(st.text(max_size=5), MAYBE_BYTES), max_size=3).map(tuple)
TIMES = st.integers(-1, 2**45)
NEW_RECORDS: st.SearchStrategy[list[NewRecord]] = st.lists(
    st.tuples(TIMES, MAYBE_BYTES, MAYBE_BYTES, HEADERS), min_size=1, max_size=150
)
MAX_BYTES = 1 << 20


def _golden() -> list[bytes]:
    path = Path(__file__).parents[1] / "golden" / "record_batches.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return [bytes.fromhex(json.loads(line)["hex"]) for line in lines]


GOLDEN = _golden()
DAMAGE = st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), min_size=1, max_size=4)


def damaged(data: bytes, damage: list[tuple[int, int]], cut: int = 0) -> bytes:
    mutable = bytearray(data)
    for position, byte in damage:
        mutable[position % len(mutable)] = byte
    return bytes(mutable[: len(mutable) - cut % len(mutable)])


@given(NEW_RECORDS, CODECS, st.integers(0, 2**62))
def test_built_batch_is_read_back(records: list[NewRecord], codec: int, base_offset: int) -> None:
    batch = RecordBatch(build_batch(records, base_offset=base_offset, compression=codec))
    assert batch.has_valid_crc()
    assert list(batch.records()) == [Record(base_offset + index, *record) for index, record in enumerate(records)]


@given(NEW_RECORDS)
def test_walk_agrees_with_reading(records: list[NewRecord]) -> None:
    data = build_batch(records)
    deltas = [record.timestamp_ms - records[0][0] for record in RecordBatch(data).records()]
    null_keys = sum(record[1] is None for record in records)
    expected = WalkedRecords(max(deltas), deltas.index(max(deltas)), min(0, *deltas, 0), null_keys, True)
    assert walk_records(data[61:], len(records)) == expected


@given(NEW_RECORDS, CODECS, st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]))
def test_validated_batch_holds_the_records_it_came_with(records: list[NewRecord], codec: int, target: str) -> None:
    rules = ValidationRules(compression_type=target, timestamp_after_max_ms=2**62)
    data = build_batch(records, compression=codec)
    result = validate_and_assign(data, rules, next_offset=70, leader_epoch=3, now_ms=10**12)
    (batch,) = batches(b"".join(result.data))
    read = list(batch.records())
    assert batch.has_valid_crc()
    assert read == [Record(70 + index, *record) for index, record in enumerate(records)]
    assert result.max_timestamp == batch.max_timestamp == max(record.timestamp_ms for record in read)
    assert read[result.offset_of_max_timestamp - 70].timestamp_ms == result.max_timestamp


@given(
    st.lists(st.tuples(st.integers(0, 2**40), MAYBE_BYTES, MAYBE_BYTES), min_size=1, max_size=20),
    st.sampled_from([0, 1]),
    st.sampled_from([0, 1, 2, 3]),
    st.integers(1, 2**40),
)
def test_message_set_is_read_back(
    fields: list[tuple[int, bytes | None, bytes | None]], magic: int, codec: int, base: int
) -> None:
    records = [Record(base + 2 * index, *field) for index, field in enumerate(fields)]
    data = build_message_set(records, magic=magic, compression=codec)
    read = [record for batch in batches(data) for record in batch.records()]
    assert read == [record if magic else record._replace(timestamp_ms=-1) for record in records]
    assert all(batch.has_valid_crc() for batch in batches(data))


@settings(max_examples=600)
@given(st.sampled_from(GOLDEN), DAMAGE, st.integers(0, 30))
def test_damaged_golden_bytes_are_read_or_refused(data: bytes, damage: list[tuple[int, int]], cut: int) -> None:
    read_everything(damaged(data, damage, cut))


@settings(max_examples=300)
@given(NEW_RECORDS, CODECS, DAMAGE)
def test_damaged_payloads_with_a_right_crc_are_read_or_refused(
    records: list[NewRecord], codec: int, damage: list[tuple[int, int]]
) -> None:
    """A CRC made afterwards lets damage through to the codecs and the walk."""
    header = build_batch(records, compression=codec)
    payload = damaged(header[61:], damage)
    for data in (header[:61] + payload, damaged(header, damage)):
        sealed = bytearray(data)
        sealed[17:21] = _crc(bytes(sealed[21:]))
        if not read_everything(bytes(sealed)):
            continue
        rules = ValidationRules(origin=AppendOrigin.CLIENT, timestamp_after_max_ms=2**63 - 1)
        try:
            result = validate_and_assign(bytes(sealed), rules, next_offset=5, leader_epoch=0, now_ms=0)
        except RecordsError:
            continue
        stored = RecordBatch(b"".join(result.data))
        assert stored.has_valid_crc()
        assert [record.offset for record in stored.records()] == list(range(5, 5 + stored.record_count))


def _crc(data: bytes) -> bytes:
    from crc32c import crc32c

    return int(crc32c(data)).to_bytes(4, "big")


def read_everything(data: bytes) -> bool:
    """Read all that can be read of the data; return whether nothing was refused."""
    try:
        for header in scan_headers(data):
            has_valid_crc(data, header.position, header.size_bytes)
        for batch in batches(data):
            list(batch.records(MAX_BYTES))
            batch.base_offset  # noqa: B018  # inflates a wrapper
        check_as_is(data, ValidationRules(origin=AppendOrigin.REPLICATION), next_offset=0, leader_epoch=1 << 30)
    except RecordsError:
        return False
    return True


@settings(max_examples=400)
@given(CODECS, st.binary(max_size=2000), st.none() | DAMAGE, st.sampled_from([0, 1, 2]))
def test_codecs_inflate_or_refuse(codec: int, data: bytes, damage: list[tuple[int, int]] | None, magic: int) -> None:
    packed = compress(codec, data, magic=magic)
    if damage is None:
        assert decompress(codec, packed, magic, len(data)) == data
        return
    try:
        inflated = decompress(codec, damaged(packed, damage) if packed else packed, magic, 5000)
    except RecordsError:
        return
    assert len(inflated) <= 5000 or codec == NONE


@given(st.sampled_from([1, 2, 3, ZSTD]), st.binary(max_size=200))
def test_any_bytes_inflate_or_are_refused(codec: int, data: bytes) -> None:
    with contextlib.suppress(RecordsError):
        assert len(decompress(codec, data, 2, 1000)) <= 1000


@given(st.binary(max_size=300), st.integers(0, 30))
def test_any_bytes_are_walked_or_refused(data: bytes, count: int) -> None:
    with contextlib.suppress(InvalidRecordsError):
        walk_records(data, count)


@given(st.integers(-(2**31), 2**31 - 1), st.integers(-(2**63), 2**63 - 1))
def test_varints(small: int, large: int) -> None:
    data = encode_varint(small) + encode_varint(large)
    value, position = read_varint(data, 0)
    assert (value, read_varlong(data, position)) == (small, (large, len(data)))
