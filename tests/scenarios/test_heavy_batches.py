"""Batches that take long to check: in their order, within bounds, and beside them everybody else is served."""

import threading
import time
from collections.abc import Callable

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.batch import BATCH_HEADER, HEADER_BYTES, LOG_OVERHEAD_BYTES
from kafkapy.record.builder import encode_records, seal
from kafkapy.record.compression import GZIP, LZ4, SNAPPY, ZSTD, compress
from tests.support.batches import build_batch
from tests.support.client_requests import (
    LATEST,
    batch_of,
    batches_in,
    create_topic,
    fetch,
    list_offset,
    metadata,
    produce,
    produce_request,
)
from tests.support.wire import ConnectionClosed, WireClient

MIB = 1 << 20
MAX_TIMESTAMP = -3
CODECS = pytest.mark.parametrize("codec", [GZIP, SNAPPY, LZ4, ZSTD])


def many_records(count: int, *, codec: int = GZIP) -> bytes:
    """Return a batch of so many empty records: 8 or 9 bytes each, and next to nothing compressed."""
    payload = compress(codec, encode_records(((0, None, None, ()) for _ in range(count)), range(count), 0))
    size_bytes = HEADER_BYTES - LOG_OVERHEAD_BYTES + len(payload)
    return seal(BATCH_HEADER.pack(0, size_bytes, -1, 2, 0, codec, count - 1, 0, 0, -1, -1, -1, count), payload)


@CODECS
def test_a_heavy_batch_is_not_overtaken_by_those_behind_it(client: WireClient, topic: str, codec: int) -> None:
    """Idempotent, so that one out of its place would be refused; and with acks=0 between them."""
    create_topic(client, topic)
    producer = {"producer_id": 5, "producer_epoch": 0}
    sequence = 0
    for _ in range(3):
        heavy = batch_of(2, value=bytes(3 * MIB), compression=codec, base_sequence=sequence, **producer)
        client.send(produce_request(topic, heavy), 12)
        light = batch_of(1, base_sequence=sequence + 2, **producer)
        client.send_unanswered(produce_request(topic, light, acks=0), 12)
        client.send(produce_request(topic, batch_of(1, base_sequence=sequence + 3, **producer), acks=1), 12)
        sequence += 4
    responses = [client.receive().responses[0].partition_responses[0] for _ in range(6)]
    assert [(response.error_code, response.base_offset) for response in responses] == [
        (0, 0), (0, 3), (0, 4), (0, 7), (0, 8), (0, 11),
    ]  # fmt: skip


@CODECS
def test_a_heavy_batch_is_stored_as_it_came(client: WireClient, topic: str, codec: int) -> None:
    create_topic(client, topic)
    sent = batch_of(4, value=bytes(2 * MIB), compression=codec)
    assert produce(client, topic, batch_of()).error_code == 0
    assert produce(client, topic, sent).base_offset == 1
    _, batch = batches_in(fetch(client, topic))
    assert (batch.base_offset, batch.last_offset, batch.has_valid_crc()) == (1, 4, True)
    assert bytes(batch.data)[batch.position + 16 :] == sent[16:]


@pytest.mark.parametrize("target", ["uncompressed", "gzip", "zstd"])
def test_a_heavy_batch_is_recompressed(client: WireClient, topic: str, target: str) -> None:
    create_topic(client, topic, compression_type=target, max_message_bytes=str(4 * MIB))
    assert produce(client, topic, batch_of(3, value=b"abc" * 300_000, compression=LZ4)).base_offset == 0
    assert produce(client, topic, batch_of()).base_offset == 3
    first, _ = batches_in(fetch(client, topic, max_bytes=8 * MIB, partition_max_bytes=8 * MIB))
    assert [record.value for record in first.records()] == [b"abc" * 300_000] * 3
    assert first.has_valid_crc()


def test_after_recompression_a_batch_may_be_too_large(client: WireClient, topic: str) -> None:
    create_topic(client, topic, compression_type="uncompressed", max_message_bytes="100000")
    for value_bytes in (99_000, 101_000, 3 * MIB):
        response = produce(client, topic, batch_of(value=bytes(value_bytes), compression=GZIP))
        assert response.error_code == (0 if value_bytes < 100_000 else ErrorCode.MESSAGE_TOO_LARGE)
    assert list_offset(client, topic, LATEST).offset == 1


def test_under_acks_0_a_heavy_batch_that_is_refused_closes_the_connection(client: WireClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    client.send_unanswered(produce_request(topic, batch_of(2, value=bytes(2 * MIB), compression=GZIP), acks=0), 12)
    assert client.is_closed()


def test_records_at_fault_in_a_heavy_batch_are_named(client: WireClient, topic: str) -> None:
    create_topic(client, topic, cleanup_policy="compact")
    response = produce(client, topic, many_records(9000))
    assert response.error_code == ErrorCode.INVALID_RECORD
    assert [error.batch_index for error in response.record_errors] == list(range(9000))


@pytest.mark.ours
@CODECS
def test_a_bomb_is_refused(client: WireClient, topic: str, codec: int) -> None:
    """Apache Kafka has no bound: it inflates whatever its heap can hold."""
    create_topic(client, topic, max_message_bytes=str(16 * MIB))
    response = produce(client, topic, batch_of(value=bytes(110 * MIB), compression=codec))
    assert response.error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert list_offset(client, topic, LATEST).offset == 0


@pytest.mark.ours
def test_others_are_served_while_a_batch_is_checked(connect: Callable[[], WireClient], topic: str) -> None:
    """300,000 records: some tenths of a second of walking, in slices between which the others have their turn."""
    client, other = connect(), connect()
    create_topic(client, topic)
    heavy = many_records(300_000)
    answered = threading.Event()

    def wait_for_response() -> None:
        assert client.receive().responses[0].partition_responses[0].error_code == 0
        answered.set()

    client.send(produce_request(topic, heavy), 12)
    waiting = threading.Thread(target=wait_for_response)
    waiting.start()
    served = 0
    while not answered.is_set():
        metadata(other, topic)
        served += 1
    waiting.join()
    assert served >= 5


@pytest.mark.ours
def test_a_connection_may_end_while_its_batch_is_checked(connect: Callable[[], WireClient], topic: str) -> None:
    client, other = connect(), connect()
    create_topic(client, topic)
    client.send(produce_request(topic, many_records(60_000)), 12)
    client.close()
    with pytest.raises((ConnectionClosed, OSError)):
        client.receive()
    assert produce(other, topic, batch_of()).error_code == 0


@CODECS
def test_a_record_is_found_by_time_in_a_heavy_batch(client: WireClient, topic: str, codec: int) -> None:
    create_topic(client, topic)
    now_ms = int(time.time() * 1000)
    records = [(now_ms + index, None, bytes(MIB), ()) for index in range(4)]
    light = [(now_ms + 4, None, b"", ())]
    assert produce(client, topic, build_batch(records, compression=codec)).error_code == 0
    assert produce(client, topic, build_batch(light, compression=codec)).error_code == 0
    for index in range(5):
        found = list_offset(client, topic, now_ms + index)
        assert (found.offset, found.timestamp) == (index, now_ms + index)
    assert list_offset(client, topic, now_ms + 5).offset == -1
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == 4


def test_among_very_many_records_one_is_found_by_time(client: WireClient, topic: str) -> None:
    create_topic(client, topic, message_timestamp_type="LogAppendTime")
    append_time_ms = produce(client, topic, many_records(20_000)).log_append_time_ms
    assert list_offset(client, topic, append_time_ms).offset == 0
    assert list_offset(client, topic, MAX_TIMESTAMP).offset == 0
    assert list_offset(client, topic, append_time_ms + 1).offset == -1
