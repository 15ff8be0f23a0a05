"""What a producer is refused, what it is told of it, and what it is told of what was taken."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batch import LOG_APPEND_TIME, Record
from kafkapy.record.builder import seal
from kafkapy.record.compression import GZIP, LZ4, SNAPPY, ZSTD
from kafkapy.record.legacy import build_message_set
from tests.support.batches import build_batch
from tests.support.client_requests import (
    EARLIEST,
    LATEST,
    batch_of,
    batches_in,
    create_topic,
    fetch,
    fetch_request,
    list_offset,
    metadata,
    produce,
    produce_request,
    values_in,
)
from tests.support.wire import WireClient

NOW_MS = int(time.time() * 1000)


def patched(batch: bytes, position: int, value: bytes, *, with_crc: bool = True) -> bytes:
    """Return the batch with other bytes at a position of its own, and the CRC that goes with them."""
    changed = bytearray(batch)
    changed[position : position + len(value)] = value
    return seal(bytes(changed[:61]), changed[61:]) if with_crc else bytes(changed)


def assert_refused(response: Any, code: ErrorCode) -> None:
    """A base offset of 0 would be taken for where the records are."""
    assert response.error_code == code, response
    assert (response.base_offset, response.log_append_time_ms) == (-1, -1)


def assert_still_empty(client: WireClient, topic: str) -> None:
    assert list_offset(client, topic, LATEST).offset == 0


# -- what is taken --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(3, 14))
@pytest.mark.parametrize("acks", [1, -1])
def test_the_response_holds_where_the_records_are(client: WireClient, topic: str, version: int, acks: int) -> None:
    topic_id = create_topic(client, topic)
    named = topic_id if version >= 13 else topic
    for base_offset in (0, 3):
        response = produce(client, named, batch_of(3), version=version, acks=acks)
        assert (response.error_code, response.base_offset, response.log_append_time_ms) == (0, base_offset, -1)
        assert response.log_start_offset == (0 if version >= 5 else -1)
        assert (response.record_errors, response.error_message) == ([], None)
        assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (-1, -1)


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_compressed_batches_come_back_as_they_were_sent(client: WireClient, topic: str, codec: int) -> None:
    create_topic(client, topic)
    sent = batch_of(20, compression=codec, value=b"x" * 100)
    assert produce(client, topic, sent).error_code == 0
    (batch,) = batches_in(fetch(client, topic))
    assert (batch.compression, batch.record_count, batch.has_valid_crc()) == (codec, 20, True)
    assert bytes(batch.data)[16:] == sent[16:], "all but the base offset, size and leader epoch is the producer's"


def test_log_append_time_is_the_brokers_and_is_returned(client: WireClient, topic: str) -> None:
    create_topic(client, topic, message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    response = produce(client, topic, batch_of(3))
    assert before_ms <= response.log_append_time_ms <= int(time.time() * 1000)
    (batch,) = batches_in(fetch(client, topic))
    assert (batch.timestamp_type, batch.max_timestamp) == (LOG_APPEND_TIME, response.log_append_time_ms)
    assert {record.timestamp_ms for record in batch.records()} == {response.log_append_time_ms}
    assert batch.has_valid_crc()


# -- what is not ----------------------------------------------------------------------------------------------------


def test_a_batch_over_max_message_bytes_is_too_large(client: WireClient, topic: str) -> None:
    create_topic(client, topic, max_message_bytes="1000")
    fits = batch_of(value=bytes(1000 - len(batch_of(value=b"")) - 2))
    assert len(fits) == 1000
    assert_refused(produce(client, topic, batch_of(value=bytes(1000))), ErrorCode.MESSAGE_TOO_LARGE)
    assert_still_empty(client, topic)
    assert produce(client, topic, fits).error_code == 0


def test_a_record_without_a_key_has_no_place_in_a_compacted_topic(client: WireClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    records = [(NOW_MS, b"key", b"1", ()), (NOW_MS, None, b"2", ()), (NOW_MS, None, b"3", ())]
    response = produce(client, topic, build_batch(records))
    assert_refused(response, ErrorCode.INVALID_RECORD)
    assert [each.batch_index for each in response.record_errors] == [1, 2]
    assert all(each.batch_index_error_message for each in response.record_errors)
    assert response.error_message
    assert_still_empty(client, topic)
    assert produce(client, topic, batch_of(key=b"key")).error_code == 0


def test_record_errors_are_left_out_of_versions_without_them(client: WireClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    for version in (3, 7, 8):
        response = produce(client, topic, batch_of(), version=version)
        assert_refused(response, ErrorCode.INVALID_RECORD)
        assert bool(response.record_errors) == (version >= 8)


@pytest.mark.parametrize("position", [17, 21, 27, 57, 61, 70], ids=lambda position: f"byte {position}")
def test_a_changed_byte_is_a_corrupt_message(client: WireClient, topic: str, position: int) -> None:
    create_topic(client, topic)
    batch = batch_of(3)
    damaged = patched(batch, position, bytes([batch[position] ^ 0x40]), with_crc=False)
    assert_refused(produce(client, topic, damaged), ErrorCode.CORRUPT_MESSAGE)
    assert_still_empty(client, topic)


BAD_RECORDS = {
    "a record count too high": patched(batch_of(3), 57, (4).to_bytes(4, "big")),
    "a record count too low": patched(batch_of(3), 57, (2).to_bytes(4, "big")),
    "a last offset delta too high": patched(batch_of(3), 23, (9).to_bytes(4, "big")),
    "a record length beyond the batch": patched(batch_of(1), 61, b"\x7e"),
    "a negative record length": patched(batch_of(1), 61, b"\x01"),
    "a control batch": batch_of(1, key=bytes(4), is_control=True, producer_id=1, producer_epoch=0),
}


@pytest.mark.parametrize("batch", BAD_RECORDS.values(), ids=BAD_RECORDS)
def test_records_that_contradict_their_batch_are_invalid(client: WireClient, topic: str, batch: bytes) -> None:
    create_topic(client, topic)
    assert_refused(produce(client, topic, batch), ErrorCode.INVALID_RECORD)
    assert_still_empty(client, topic)


@pytest.mark.ours
def test_offsets_in_an_uncompressed_batch_rise_by_one(client: WireClient, topic: str) -> None:
    """Apache Kafka looks at compressed batches only, and stores this one, whose offsets lie."""
    create_topic(client, topic)
    batch = build_batch([(NOW_MS, None, b"v", ())] * 3, offset_deltas=[0, 2, 2])
    assert_refused(produce(client, topic, batch), ErrorCode.INVALID_RECORD)
    assert_still_empty(client, topic)


OLD = Record(0, NOW_MS, None, b"old", ())
NOT_ONE_BATCH = {
    "two batches": batch_of() + batch_of(),
    "no batch": b"",
    "a message set of magic 1": build_message_set([OLD], magic=1),
    "a message set of magic 0": build_message_set([OLD], magic=0),
    "half a batch": batch_of(10)[:-20],
}


@pytest.mark.parametrize("records", NOT_ONE_BATCH.values(), ids=NOT_ONE_BATCH)
def test_a_partition_takes_exactly_one_batch_of_magic_2(client: WireClient, topic: str, records: bytes) -> None:
    """Whatever the version of Produce: 3 is the first served, and down-conversion is gone since Kafka 4."""
    create_topic(client, topic)
    for version in (3, 12):
        assert_refused(produce(client, topic, records, version=version), ErrorCode.INVALID_RECORD)
    assert_still_empty(client, topic)


def test_zstd_came_with_version_7(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    batch = batch_of(compression=ZSTD)
    for version in (3, 6):
        assert_refused(produce(client, topic, batch, version=version), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    assert_still_empty(client, topic)
    assert produce(client, topic, batch, version=7).error_code == 0


@pytest.mark.parametrize("codec", [5, 6, 7])
def test_a_codec_that_does_not_exist_is_refused(client: WireClient, topic: str, codec: int) -> None:
    create_topic(client, topic)
    response = produce(client, topic, patched(batch_of(), 22, bytes([codec])))
    assert response.error_code != 0
    assert response.base_offset == -1
    assert_still_empty(client, topic)
    assert metadata(client).brokers


@pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])
def test_bytes_that_do_not_decompress_are_refused(client: WireClient, topic: str, codec: int) -> None:
    create_topic(client, topic)
    batch = batch_of(3)
    response = produce(client, topic, patched(batch, 22, bytes([codec])))
    assert response.error_code != 0
    assert response.base_offset == -1
    assert_still_empty(client, topic)


def test_timestamps_too_old_or_too_new_are_invalid_record_by_record(client: WireClient, topic: str) -> None:
    hour_ms = 3_600_000
    limits = {"message_timestamp_before_max_ms": str(hour_ms), "message_timestamp_after_max_ms": str(hour_ms)}
    create_topic(client, topic, **limits)
    now_ms = int(time.time() * 1000)
    records = [(now_ms + delta_ms, None, b"v", ()) for delta_ms in (0, -2 * hour_ms, 2 * hour_ms)]
    response = produce(client, topic, build_batch(records))
    assert_refused(response, ErrorCode.INVALID_TIMESTAMP)
    assert [each.batch_index for each in response.record_errors] == [1, 2]
    assert produce(client, topic, build_batch(records[:1])).error_code == 0


@pytest.mark.parametrize("acks", [2, -2, 32767])
def test_acks_are_0_1_or_all(client: WireClient, topic: str, acks: int) -> None:
    create_topic(client, topic)
    assert_refused(produce(client, topic, batch_of(), acks=acks), ErrorCode.INVALID_REQUIRED_ACKS)
    assert_still_empty(client, topic)


def test_min_insync_replicas_counts_no_more_than_there_are(client: WireClient, topic: str) -> None:
    create_topic(client, topic, min_insync_replicas="2")
    for acks in (-1, 1):
        assert produce(client, topic, batch_of(), acks=acks).error_code == 0


def test_internal_topics_are_not_for_clients(client: WireClient) -> None:
    """Whether it exists is another matter: it comes with the first group."""
    response = produce(client, "__consumer_offsets", batch_of(key=b"k"))
    assert response.error_code in (ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def test_each_partition_answers_for_itself(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 3)
    good, damaged = batch_of(), patched(batch_of(), 70, b"\xff", with_crc=False)
    data = [PartitionProduceData(partition, records=records) for partition, records in enumerate((good, damaged, good))]
    topics = [TopicProduceData(topic, partition_data=data), TopicProduceData("missing", partition_data=data[:1])]
    response = client.call(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=topics), 12)
    parts = [
        (each.name, part.index, part.error_code, part.base_offset)
        for each in response.responses
        for part in each.partition_responses
    ]
    (missing,) = (each for each in response.responses if each.name == "missing")
    assert missing.partition_responses[0].error_message is None
    assert sorted(parts) == sorted(
        [
            (topic, 0, 0, 0),
            (topic, 1, ErrorCode.CORRUPT_MESSAGE, -1),
            (topic, 2, 0, 0),
            ("missing", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1),
        ]
    )


# -- acks=0, and order ----------------------------------------------------------------------------------------------


def test_acks_0_has_no_response_and_keeps_its_place(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for value in (b"1", b"2", b"3"):
        client.send_unanswered(produce_request(topic, batch_of(value=value), acks=0), 12)
        produced = produce(client, topic, batch_of(value=value + b" acked"))
        assert produced.error_code == 0, "the next frame back is this response, with its own correlation id"
    assert values_in(fetch(client, topic)) == [b"1", b"1 acked", b"2", b"2 acked", b"3", b"3 acked"]


@pytest.mark.parametrize("what", ["unknown topic", "corrupt batch", "keyless to compacted"])
def test_an_error_under_acks_0_closes_the_connection(connect: Callable[[], WireClient], topic: str, what: str) -> None:
    """There is no response to carry it, and a producer must not go on believing."""
    client, other = connect(), connect()
    records = batch_of()
    if what == "corrupt batch":
        records = patched(records, 70, b"\xff", with_crc=False)
    if what != "unknown topic":
        create_topic(client, topic, cleanup_policy="compact" if what.startswith("keyless") else "delete")
    client.send_unanswered(produce_request(topic, records, acks=0), 12)
    assert client.is_closed()
    assert metadata(other).brokers


def test_responses_keep_the_order_of_requests_over_a_long_poll(client: WireClient, topic: str) -> None:
    """A fetch that waits, then a produce and metadata on the same connection: no response overtakes another."""
    create_topic(client, topic)
    client.send(fetch_request(topic, max_wait_ms=500, min_bytes=1), 12)
    client.send(produce_request(topic, batch_of()), 12)
    for _ in range(20):
        client.send(fetch_request(topic, max_wait_ms=0), 12)
    assert client.receive().NAME == "FetchResponse"
    assert client.receive().responses[0].partition_responses[0].base_offset == 0
    assert all(values_in(client.receive().responses[0].partitions[0]) == [b"value"] for _ in range(20))


def test_pipelined_batches_are_appended_in_their_order(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for number in range(200):
        client.send(produce_request(topic, batch_of(value=b"%d" % number), acks=-1 if number % 2 else 1), 12)
    offsets = [client.receive().responses[0].partition_responses[0].base_offset for _ in range(200)]
    assert offsets == list(range(200))
    assert values_in(fetch(client, topic)) == [b"%d" % number for number in range(200)]
    assert list_offset(client, topic, EARLIEST).offset == 0


# -- partitions that are named again --------------------------------------------------------------------------------


def named(topic: str, *partitions: tuple[int, bytes]) -> TopicProduceData:
    data = [PartitionProduceData(partition, records=records) for partition, records in partitions]
    return TopicProduceData(topic, partition_data=data)


def outcomes(client: WireClient, *topics: TopicProduceData, acks: int) -> dict[str, dict[int, tuple[int, int]]]:
    """Produce; return error code and base offset by topic and partition, each of which is there once."""
    response = client.call(ProduceRequest(acks=acks, timeout_ms=30_000, topic_data=list(topics)), 12)
    found = {
        topic.name: {each.index: (each.error_code, each.base_offset) for each in topic.partition_responses}
        for topic in response.responses
    }
    assert len(found) == len(response.responses)
    assert [len(parts) for parts in found.values()] == [len(topic.partition_responses) for topic in response.responses]
    return found


@pytest.mark.parametrize("acks", [1, -1])
def test_a_partition_that_is_named_again_gets_the_last_of_its_batches(
    client: WireClient, topic: str, acks: int
) -> None:
    create_topic(client, topic, 2)
    one, two, three, other = (batch_of(value=value) for value in (b"one", b"two", b"three", b"other"))
    again = named(topic, (0, one), (1, other), (0, two)), named(topic, (0, three))
    assert outcomes(client, *again, acks=acks) == {topic: {0: (0, 0), 1: (0, 0)}}
    assert [values_in(fetch(client, topic, partition=number)) for number in (0, 1)] == [[b"three"], [b"other"]]


def test_without_acks_the_last_of_its_batches_is_taken_too(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    again = named(topic, (0, batch_of(value=b"one")), (0, batch_of(value=b"two")))
    client.send_unanswered(ProduceRequest(acks=0, timeout_ms=30_000, topic_data=[again]), 12)
    assert values_in(fetch(client, topic)) == [b"two"]


def test_partitions_of_a_topic_that_is_named_again_are_answered_together(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    create_topic(client, f"{topic}-2")
    each = [named(name, (number, batch_of())) for name, number in ((topic, 0), (f"{topic}-2", 0), (topic, 1))]
    assert outcomes(client, *each, acks=1) == {topic: {0: (0, 0), 1: (0, 0)}, f"{topic}-2": {0: (0, 0)}}


@pytest.mark.parametrize("is_first", [True, False])
def test_a_refusal_stays_the_response_whatever_else_is_appended(client: WireClient, topic: str, is_first: bool) -> None:
    create_topic(client, topic)
    batches = [(0, b""), (0, batch_of(value=b"good"))]
    again = named(topic, *(batches if is_first else reversed(batches)))
    assert outcomes(client, again, acks=1) == {topic: {0: (ErrorCode.INVALID_RECORD, -1)}}
    assert values_in(fetch(client, topic)) == [b"good"]


def test_of_batches_that_the_log_refuses_the_last_one_decides(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    good, damaged = batch_of(value=b"good"), batch_of(value=b"good")[:-1] + b"!"
    assert outcomes(client, named(topic, (0, good), (0, damaged)), acks=1) == {
        topic: {0: (ErrorCode.CORRUPT_MESSAGE, -1)}
    }
    assert_still_empty(client, topic)
    assert outcomes(client, named(topic, (0, damaged), (0, good)), acks=1) == {topic: {0: (0, 0)}}


def test_what_is_missing_is_answered_once(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    again = named(topic, (9, batch_of()), (9, batch_of()))
    assert outcomes(client, again, acks=1) == {topic: {9: (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)}}
