"""Hostile lengths and counts, and what may not be written: at the edges of the generated codec."""

import tracemalloc

import pytest

from kafkapy import compiled
from kafkapy.errors import ProtocolError
from kafkapy.protocol.messages.fetch_request import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    ReplicaState,
)
from kafkapy.protocol.messages.fetch_response import FetchableTopicResponse, FetchResponse, PartitionData
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.protocol.messages.transaction_log_value import TransactionLogValue
from kafkapy.protocol.primitives import EncodeError, Writer, read_uvarint, write_uvarint
from kafkapy.seams import FileRegion

# Metadata v1: int32 count of topics, -1 for all. v9: the same as an unsigned varint, one more, 0 for all.
# Produce v8: int16 transactional id, int16 acks, int32 timeout, int32 topics of (int16 name, int32 partitions of
# (int32 index, int32 records)). v9: the same lengths as unsigned varints, one more.
HOSTILE = [
    (MetadataRequest, 1, "7fffffff"),
    (MetadataRequest, 1, "80000000"),
    (MetadataRequest, 1, "fffffffe"),
    (MetadataRequest, 9, "ffffffff0f 000000"),
    (MetadataRequest, 9, "ffffffff08 000000"),
    (MetadataRequest, 9, "ffffffffff01 000000"),
    (MetadataRequest, 9, "808080808000 000000"),
    (MetadataRequest, 9, "02 ffffffff0f"),
    (MetadataRequest, 9, "01 010000 ffffffff0f"),
    (MetadataRequest, 9, "01 010000 01 05 ffffffff07 00"),
    (SaslHandshakeRequest, 0, "7fff 61"),
    (SaslHandshakeRequest, 0, "fffe 61"),
    (SaslHandshakeRequest, 0, "ffff"),
    (SaslHandshakeRequest, 0, "0002 c328"),
    (SaslHandshakeRequest, 0, ""),
    (ProduceRequest, 8, "ffff ffff 00007530 00000001 0001 74 00000001 00000000 7fffffff 00"),
    (ProduceRequest, 8, "ffff ffff 00007530 00000001 0001 74 00000001 00000000 fffffffe"),
    (ProduceRequest, 8, "ffff ffff 00007530 00000001 0001 74 7fffffff 00000000"),
    (ProduceRequest, 9, "00 ffff 00007530 02 0274 02 00000000 ffffffff0f 00"),
    (ProduceRequest, 9, "00 ffff 00007530 00"),
]


@pytest.mark.parametrize(("kind", "version", "data"), HOSTILE)
def test_hostile_length_raises_before_anything_is_allocated_from_it(kind, version, data):
    with pytest.raises(ProtocolError):
        kind.decode(bytes.fromhex(data), version)
    tracemalloc.start()
    with pytest.raises(ProtocolError, match=kind.NAME):
        kind.decode(bytes.fromhex(data), version)
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 100_000


def test_count_is_checked_against_what_its_elements_need_at_least():
    # Fetch v4: a partition takes 16 bytes; a count of two with room for one and a half is refused as a count.
    data = bytes.fromhex("ffffffff 000001f4 00000001 00100000 00 00000001 0001 74 00000002") + bytes(24)
    with pytest.raises(ProtocolError, match="array of 2 elements in 24 bytes"):
        FetchRequest.decode(data, 4)


def test_known_tagged_field_must_be_as_long_as_its_size_says():
    request = FetchRequest(replica_state=ReplicaState(replica_id=3, replica_epoch=4))
    data = request.encode(15)
    assert data.endswith(bytes.fromhex("01 01 0d 00000003 0000000000000004 00"))
    assert FetchRequest.decode(data, 15) == request
    damaged = data.replace(bytes.fromhex("01 01 0d"), bytes.fromhex("01 01 0e")) + b"\0"
    with pytest.raises(ProtocolError, match="tagged field 1 of 14 bytes ends at byte 13"):
        FetchRequest.decode(damaged, 15)


def test_tagged_field_given_twice_is_refused():
    data = MetadataRequest(topics=None).encode(9)
    assert data == bytes.fromhex("00 01 00 00 00")
    with pytest.raises(ProtocolError, match="given twice"):
        MetadataRequest.decode(data[:-1] + bytes.fromhex("02 05 01 aa 05 01 bb"), 9)


def test_tagged_fields_are_written_in_rising_order_of_tag():
    request = FetchRequest(replica_state=ReplicaState(replica_id=1), unknown_tagged_fields={7: b"z", 5: b"y"})
    request.cluster_id = "c"
    data = request.encode(15)
    assert data.endswith(bytes.fromhex("04 00 02 0263 01 0d 00000001 ffffffffffffffff 00 05 01 79 07 01 7a"))
    assert FetchRequest.decode(data, 15) == request


@pytest.mark.parametrize(
    ("count", "header"),  # tag, size, count of the array plus one: the last two need two bytes from 128 on
    [
        (0, "00 01 01"),
        (1, "00 05 02"),
        (31, "00 7d 20"),
        (32, "00 8101 21"),
        (126, "00 f903 7f"),
        (127, "00 fe03 8001"),
    ],
)
def test_tagged_array_of_numbers_is_as_long_as_its_size_says(count, header):
    record = PartitionChangeRecord(partition_id=7, isr=list(range(count)))
    start = bytes.fromhex("00000007" + "00" * 16 + "01" + header)
    numbers = b"".join(number.to_bytes(4) for number in range(count))
    assert record.encode(2) == start + numbers
    assert PartitionChangeRecord.decode(start + numbers, 2) == record


def test_unknown_tag_that_the_version_knows_is_not_written():
    with pytest.raises(EncodeError, match=r"tags \[0\] are known and unknown"):
        FetchRequest(cluster_id="c", unknown_tagged_fields={0: b""}).encode(15)


def test_ignorable_field_is_dropped_where_the_version_has_not_got_it():
    request = FetchRequest(rack_id="r1", session_id=5, cluster_id="c")
    assert FetchRequest.decode(request.encode(4), 4) == FetchRequest()


def test_field_that_is_not_ignorable_raises_where_the_version_has_not_got_it():
    with pytest.raises(EncodeError, match=r"FetchRequest v4: .*forgotten_topics_data"):
        FetchRequest(forgotten_topics_data=[ForgottenTopic(topic="t", partitions=[1])]).encode(4)


def test_transaction_log_value_v0_is_plain():
    # The one version that the golden file lacks: producer id, epoch, timeout, status, partitions (null), two times.
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=1,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=9,
        transaction_start_timestamp_ms=8,
    )
    data = bytes.fromhex("0000000000000007 0002 0000ea60 01 ffffffff 0000000000000009 0000000000000008")
    assert value.encode(0) == data
    assert TransactionLogValue.decode(data, 0) == value
    value.previous_producer_id = 6
    with pytest.raises(EncodeError, match="previous_producer_id"):
        value.encode(0)


NOT_WRITABLE = [
    (MetadataRequest(topics=None), 0),
    (SaslHandshakeRequest(mechanism="x" * 32768), 0),
    (SaslHandshakeRequest(mechanism="\ud800"), 0),
    (FetchRequest(rack_id="x" * 32768), 12),
    (FetchRequest(max_wait_ms=2**31), 12),
]


@pytest.mark.parametrize(("message", "version"), NOT_WRITABLE)
def test_value_that_its_field_cannot_hold_raises(message, version):
    with pytest.raises(EncodeError, match=rf"{message.NAME} v{version}"):
        message.encode(version)


NULLS = [
    (lambda: MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 1),
    (lambda: SaslHandshakeRequest(mechanism=None), 0),  # type: ignore[arg-type]
    (lambda: FetchRequest(topics=None), 12),  # type: ignore[arg-type]
    (lambda: FetchRequest(max_wait_ms=None), 12),  # type: ignore[arg-type]
    (lambda: FetchRequest(topics=[FetchTopic(topic_id=None)]), 13),  # type: ignore[arg-type]
    (lambda: MetadataRequest(topics=[], allow_auto_topic_creation=None), 4),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("make", "version"), NULLS)
def test_null_of_a_field_that_cannot_be_null_raises(make, version):
    """A compiled class raises TypeError already when it is made."""
    with pytest.raises(
        (EncodeError, TypeError) if compiled.manifest() else EncodeError, match=rf"Request v{version}|got None"
    ):
        make().encode(version)


def test_struct_that_is_not_given_has_its_defaults():
    assert FetchRequest(replica_state=None).replica_state == ReplicaState() == FetchRequest().replica_state


def test_string_over_32767_bytes_is_refused_in_its_compact_form_too():
    data = FetchRequest(rack_id="x" * 32767).encode(12)
    assert FetchRequest.decode(data, 12).rack_id == "x" * 32767
    size = Writer()
    write_uvarint(size, 32768)
    longer = Writer()
    write_uvarint(longer, 32769)
    damaged = data.replace(bytes(size) + b"x", bytes(longer) + b"xx", 1)
    with pytest.raises(ProtocolError, match="string of 32768 bytes"):
        FetchRequest.decode(damaged, 12)


@pytest.mark.parametrize(
    ("value", "data"), [(0, "00"), (127, "7f"), (128, "8001"), (300, "ac02"), (2**32 - 1, "ffffffff0f")]
)
def test_unsigned_varint_has_seven_bits_a_byte(value, data):
    out = Writer()
    write_uvarint(out, value)
    assert out.hex() == data
    assert read_uvarint(bytes(out), 0) == (value, len(out))


# Records.


class BytesFile:
    """A File of which only pread is asked."""

    def __init__(self, data):
        self.data = data

    def pread(self, length, position):
        return self.data[position : position + length]


def fetch_response(*payloads):
    partitions = [PartitionData(partition_index=i, records=payload) for i, payload in enumerate(payloads)]
    return FetchResponse(responses=[FetchableTopicResponse(topic_id=bytes(range(16)), partitions=partitions)])


@pytest.mark.parametrize("version", [4, 12, 17])
def test_small_records_are_copied_large_ones_and_regions_are_spliced(version):
    large = memoryview(bytes(range(256)) * 64)
    region = FileRegion(BytesFile(b"--0123456789--"), 2, 10)
    response = fetch_response(b"small", large, region, b"", None)
    if version < 13:
        response.responses[0].topic_id = bytes(16)
    out = Writer()
    out += b"head"
    response.write(out, version)
    plain = fetch_response(b"small", bytes(large), b"0123456789", b"", None)
    plain.responses[0].topic_id = response.responses[0].topic_id
    assert [payload for _, payload in out.splices] == [large, region]
    assert out.wire_length == 4 + len(plain.encode(version))
    assert out.joined() == b"head" + plain.encode(version)
    assert len(out) < 400


def test_records_decode_to_a_view_of_the_frame_and_bytes_to_a_copy():
    partition = PartitionProduceData(index=0, records=b"batch")
    frame = bytearray(ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])]).encode(9))
    records = ProduceRequest.decode(memoryview(frame), 9).topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    assert records.obj is frame


# The classes.


def test_defaults_are_the_specs_and_are_not_shared():
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(FetchTopic(partitions=[FetchPartition(partition=1)]))
    first.replica_state.replica_id = 4
    assert second.topics == []
    assert second.replica_state.replica_id == -1
    assert second.max_bytes == 0x7FFFFFFF
    assert FetchPartition().high_watermark == 2**63 - 1
    assert (FetchRequest.API_KEY, FetchRequest.MIN_VERSION, FetchRequest.MAX_VERSION) == (1, 4, 18)
    assert FetchRequest.FLEXIBLE_FROM == 12


def test_messages_are_compared_by_value_and_print_their_fields():
    assert FetchTopic(topic="a") == FetchTopic(topic="a")
    assert FetchTopic(topic="a") != FetchTopic(topic="b")
    assert FetchTopic() != FetchPartition()
    assert (
        repr(ReplicaState(replica_id=3)) == "ReplicaState(replica_id=3, replica_epoch=-1, unknown_tagged_fields=None)"
    )
