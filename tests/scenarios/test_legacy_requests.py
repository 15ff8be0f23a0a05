"""The versions that KIP-896 removed, request by request; Apache Kafka 3.9.1 answered the same.

KAFKAPY_LEGACY_SERVER=host:port runs them against another server, on which there are no such topics yet.
"""

import os
from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import (
    legacy_create_topics_request,
    legacy_fetch_request,
    legacy_list_offsets_request,
    legacy_produce_request,
)
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.legacy_create_topics_request import CreatableTopic, LegacyCreateTopicsRequest
from kafkapy.protocol.messages.legacy_delete_topics_request import LegacyDeleteTopicsRequest
from kafkapy.protocol.messages.legacy_fetch_request import LegacyFetchRequest
from kafkapy.protocol.messages.legacy_list_offsets_request import LegacyListOffsetsRequest
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.record.compression import GZIP, NONE
from kafkapy.record.legacy import build_message_set
from tests.support.batches import build_batch
from tests.support.client_requests import produce_request as produce_request_of_today
from tests.support.wire import ConnectionClosed, WireClient

NOW_MS = 1_700_000_000_000
LEGACY_KEYS = {0: 0, 1: 0, 2: 0, 19: 0, 20: 0}


@pytest.fixture(scope="module")
def legacy_bootstrap() -> Iterator[str]:
    elsewhere = os.environ.get("KAFKAPY_LEGACY_SERVER")
    if elsewhere is not None:
        yield elsewhere
        return
    with Broker(properties={"kafkapy.legacy.clients.enable": "true"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def old(legacy_bootstrap: str) -> Iterator[WireClient]:
    with WireClient(legacy_bootstrap) as client:
        yield client


@pytest.fixture
def log(old: WireClient, topic: str) -> str:
    """A topic of one partition, made by CreateTopics 0."""
    response = old.call(
        LegacyCreateTopicsRequest([CreatableTopic(topic, num_partitions=1, replication_factor=1)], timeout_ms=30_000), 0
    )
    assert [(each.name, each.error_code) for each in response.topics] == [(topic, 0)]
    return topic


def messages(count: int = 3, *, magic: int = 1, key_start: int = 0, **options: Any) -> bytes:
    numbers = range(key_start, key_start + count)
    records = [Record(n - key_start, NOW_MS + n, b"k%d" % n, b"v%d" % n, ()) for n in numbers]
    return build_message_set(records, magic=magic, **options)


def produce_request(topic: str, records: bytes | None, *, acks: int = -1) -> LegacyProduceRequest:
    data = legacy_produce_request.PartitionProduceData(0, records=records)
    return LegacyProduceRequest(
        acks, timeout_ms=30_000, topic_data=[legacy_produce_request.TopicProduceData(topic, partition_data=[data])]
    )


def send(client: WireClient, topic: str, records: bytes | None, version: int = 2) -> Any:
    return client.call(produce_request(topic, records), version).responses[0].partition_responses[0]


def read(client: WireClient, topic: str, version: int, offset: int = 0, max_bytes: int = 1 << 20) -> Any:
    requested = legacy_fetch_request.FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = LegacyFetchRequest(
        max_wait_ms=100, min_bytes=1, topics=[legacy_fetch_request.FetchTopic(topic, partitions=[requested])]
    )
    return client.call(request, version).responses[0].partitions[0]


def read_all(client: WireClient, topic: str, version: int, offset: int = 0) -> bytes:
    """Fetch to the end: Apache Kafka cuts a response that became larger than what it read."""
    found = read(client, topic, version, offset)
    assert found.error_code == 0
    sets = list(batches(found.records))
    if not sets:
        return b""
    whole = bytes(found.records)[: sets[-1].end_position]
    return whole + read_all(client, topic, version, sets[-1].last_offset + 1)


def list_offsets(client: WireClient, topic: str, timestamp_ms: int, max_count: int = 1, replica_id: int = -1) -> Any:
    requested = legacy_list_offsets_request.ListOffsetsPartition(
        partition_index=0, timestamp=timestamp_ms, max_num_offsets=max_count
    )
    topics = [legacy_list_offsets_request.ListOffsetsTopic(topic, partitions=[requested])]
    return client.call(LegacyListOffsetsRequest(replica_id, topics=topics), 0).topics[0].partitions[0]


@pytest.mark.parametrize("codec", [NONE, GZIP])
@pytest.mark.parametrize("version", [0, 1, 2])
def test_messages_are_stored_and_come_back_in_each_format(old: WireClient, log: str, version: int, codec: int) -> None:
    magic = 1 if version == 2 else 0
    response = send(old, log, messages(magic=magic, compression=codec), version)
    assert (response.error_code, response.base_offset, response.log_append_time_ms) == (0, 0, -1)
    assert send(old, log, messages(2, magic=magic, compression=codec), version).base_offset == 3
    for fetch_version in range(4):
        assert read(old, log, fetch_version).high_watermark == 5
        sets = list(batches(read_all(old, log, fetch_version)))
        assert {each.magic for each in sets} == {0 if fetch_version < 2 else 1}
        records = [record for each in sets for record in each.records()]
        assert [record.offset for record in records] == [0, 1, 2, 3, 4]
        assert [record.value for record in records] == [b"v0", b"v1", b"v2", b"v0", b"v1"]
        times = {record.timestamp_ms for record in records}
        assert times == ({NOW_MS, NOW_MS + 1, NOW_MS + 2} if magic and fetch_version > 1 else {-1})


def test_a_partition_that_is_named_again_gets_the_last_of_its_sets(old: WireClient, log: str) -> None:
    sets = [None, *(messages(1, key_start=number) for number in (1, 2))]
    data = [legacy_produce_request.PartitionProduceData(0, records=records) for records in sets]
    for part, code, offset in ((data[1:], 0, 0), (data, ErrorCode.INVALID_RECORD, -1)):
        each = [legacy_produce_request.TopicProduceData(log, partition_data=[one]) for one in part]
        [topic] = old.call(LegacyProduceRequest(1, timeout_ms=30_000, topic_data=each), 2).responses
        assert [(each.error_code, each.base_offset) for each in topic.partition_responses] == [(code, offset)]
    records = [record.value for each in batches(read_all(old, log, 3)) for record in each.records()]
    assert records == [b"v2", b"v2"]


def test_an_uncompressed_batch_begins_where_the_fetch_does_and_a_compressed_one_where_it_began(
    old: WireClient, log: str
) -> None:
    send(old, log, messages(5))
    send(old, log, messages(5, compression=GZIP))
    records = [r.offset for each in batches(read_all(old, log, 3, offset=3)) for r in each.records()]
    assert records == [3, 4, 5, 6, 7, 8, 9]
    records = [r.offset for each in batches(read_all(old, log, 3, offset=8)) for r in each.records()]
    assert records == [5, 6, 7, 8, 9]


def test_what_new_clients_write_loses_its_headers_only(old: WireClient, log: str) -> None:
    data = build_batch([(NOW_MS, b"key", b"new", (("header", b"1"),))] * 2)
    old.call(produce_request_of_today(log, data), 3)
    found = [record for each in batches(read_all(old, log, 2)) for record in each.records()]
    assert [(r.offset, r.timestamp_ms, r.key, r.value) for r in found] == [(n, NOW_MS, b"key", b"new") for n in (0, 1)]


def damaged(message_set: bytes) -> bytes:
    return message_set[:-1] + bytes([message_set[-1] ^ 1])


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (damaged(messages(1)), ErrorCode.CORRUPT_MESSAGE),
        (damaged(messages(compression=GZIP)), ErrorCode.CORRUPT_MESSAGE),
        (messages(1) + messages(1, magic=0), ErrorCode.INVALID_RECORD),
        (messages(compression=GZIP) * 2, ErrorCode.INVALID_RECORD),
    ],
    ids=["crc", "wrapper-crc", "mixed", "two-wrappers"],
)
def test_what_the_log_refuses(old: WireClient, log: str, records: bytes, code: ErrorCode) -> None:
    response = send(old, log, records)
    assert (response.error_code, response.base_offset) == (code, -1)
    assert read(old, log, 3).high_watermark == 0
    assert send(old, log, messages(1)).base_offset == 0


def test_acks_0_has_no_response_but_the_end_of_the_connection(old: WireClient, log: str, legacy_bootstrap: str) -> None:
    old.send_unanswered(produce_request(log, messages(2), acks=0), 2)
    assert send(old, log, messages(1)).base_offset == 2
    with WireClient(legacy_bootstrap) as other:
        other.send_unanswered(produce_request(log, damaged(messages(1)), acks=0), 2)
        assert other.is_closed()


def test_offsets_by_the_times_of_segments(old: WireClient, log: str) -> None:
    send(old, log, messages(5))
    assert list_offsets(old, log, -1).old_style_offsets == [5]
    assert list_offsets(old, log, -2).old_style_offsets == [0]
    assert list_offsets(old, log, -1, max_count=9).old_style_offsets == [5, 0]
    assert list_offsets(old, log, 2**62, max_count=9).old_style_offsets == [5, 0]
    assert list_offsets(old, log, 1, max_count=9).old_style_offsets == []
    assert list_offsets(old, log, -3).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert list_offsets(old, "nowhere", -1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_topics_are_created_and_deleted(old: WireClient, topic: str) -> None:
    topics = [
        CreatableTopic(
            topic,
            num_partitions=1,
            replication_factor=1,
            configs=[legacy_create_topics_request.CreatableTopicConfig("no", value="such")],
        )
    ]
    refused = old.call(LegacyCreateTopicsRequest(topics, timeout_ms=30_000), 1).topics[0]
    assert refused.error_code == ErrorCode.INVALID_CONFIG
    assert refused.error_message
    topics = [CreatableTopic(topic, num_partitions=2, replication_factor=1)]
    assert (
        old.call(LegacyCreateTopicsRequest(topics, timeout_ms=30_000, validate_only=True), 1).topics[0].error_code == 0
    )
    assert read(old, topic, 3).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert old.call(LegacyCreateTopicsRequest(topics, timeout_ms=30_000), 1).topics[0].error_code == 0
    assert old.call(LegacyDeleteTopicsRequest([topic], timeout_ms=30_000), 0).responses[0].error_code == 0


def test_the_versions_are_listed(old: WireClient) -> None:
    rows = {row.api_key: row.min_version for row in old.call(ApiVersionsRequest(), 0).api_keys}
    assert {key: rows[key] for key in LEGACY_KEYS} == LEGACY_KEYS


@pytest.mark.parametrize("version", [0, 1, 2])
def test_without_the_key_they_end_the_connection(client: WireClient, version: int) -> None:
    rows = {row.api_key: row.min_version for row in client.call(ApiVersionsRequest(), 0).api_keys}
    assert {key: rows[key] for key in LEGACY_KEYS} == {0: 0, 1: 4, 2: 1, 19: 2, 20: 1}
    with pytest.raises(ConnectionClosed):
        client.call(produce_request("t", messages(1)), version)
