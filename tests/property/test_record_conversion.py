"""Message sets become batches, and batches message sets: nothing is lost but what the older format has no room for."""

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.errors import ApiError
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.record.compression import GZIP, LZ4, NONE, SNAPPY
from kafkapy.record.convert import down_convert, up_convert
from kafkapy.record.legacy import build_message_set
from tests.support.batches import build_batch

NULLABLE = st.none() | st.binary(max_size=30)
TIMES = st.integers(-1, 2**41)
NEW_RECORDS = st.lists(
    st.tuples(TIMES, NULLABLE, NULLABLE, st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=2)), min_size=1
)
CODECS = st.sampled_from((NONE, GZIP, SNAPPY, LZ4))
MAGICS = st.sampled_from((0, 1))


def read(data: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    return [(r.offset, r.timestamp_ms, r.key, r.value) for batch in batches(data) for r in batch.records()]


@given(NEW_RECORDS, MAGICS, CODECS)
def test_a_message_set_comes_back_as_it_was(records: list[tuple], magic: int, codec: int) -> None:
    numbered = [Record(n, time, key, value, ()) for n, (time, key, value, _) in enumerate(records)]
    message_set = build_message_set(numbered, magic=magic, compression=codec)
    converted = up_convert(message_set)
    assert [batch.magic for batch in batches(converted)] == [2]
    assert [batch.compression for batch in batches(converted)] == [codec]
    assert read(converted) == read(message_set)
    assert read(down_convert(converted, magic, 0)) == read(message_set)


@given(NEW_RECORDS, MAGICS, CODECS, st.integers(0, 2**40), st.integers(0, 40))
def test_a_consumer_gets_all_from_its_offset_on(
    records: list[tuple], magic: int, codec: int, base_offset: int, skipped: int
) -> None:
    batch = build_batch(records, base_offset=base_offset, compression=codec)
    first = base_offset + min(skipped, len(records) - 1)
    found = read(down_convert(batch, magic, first))
    expected = [(offset, time if magic else -1, key, value) for offset, time, key, value in read(batch)]
    assert [row for row in found if row[0] >= first] == [row for row in expected if row[0] >= first]
    assert found[0][0] == (first if codec == NONE else base_offset)


@given(NEW_RECORDS, MAGICS, CODECS, st.integers(0), st.integers(1, 255))
def test_a_damaged_message_set_is_refused_or_still_means_something(
    records: list[tuple], magic: int, codec: int, where: int, change: int
) -> None:
    numbered = [Record(n, time, key, value, ()) for n, (time, key, value, _) in enumerate(records)]
    data = bytearray(build_message_set(numbered, magic=magic, compression=codec))
    data[where % len(data)] ^= change
    try:
        converted = up_convert(data)
    except ApiError:
        return
    assert len(read(converted)) <= len(records)
