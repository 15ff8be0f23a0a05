"""What DescribeProducers tells of the producers of a partition."""

import time
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from tests.scenarios.conftest import serving
from tests.support.client_requests import batch_of, create_topic, produce, until
from tests.support.wire import WireClient


def describe(client: WireClient, topic: str, *partitions: int) -> list[Any]:
    request = DescribeProducersRequest(topics=[TopicRequest(topic, partition_indexes=list(partitions))])
    (response,) = client.call(request, 0).topics
    assert response.name == topic
    return list(response.partitions)


def test_each_producer_is_described_with_its_last_batch(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    before_ms = int(time.time() * 1000)
    for base_sequence in (0, 3):
        batch = batch_of(3, producer_id=70, producer_epoch=2, base_sequence=base_sequence)
        assert produce(client, topic, batch).error_code == 0
    assert produce(client, topic, batch_of(producer_id=71, producer_epoch=0, base_sequence=9)).error_code == 0
    assert produce(client, topic, batch_of()).error_code == 0
    first, second = describe(client, topic, 0, 1)
    assert (first.partition_index, first.error_code, first.error_message) == (0, 0, None)
    assert (second.partition_index, second.error_code, second.active_producers) == (1, 0, [])
    reported = {
        each.producer_id: (
            each.producer_epoch,
            each.last_sequence,
            each.coordinator_epoch,
            each.current_txn_start_offset,
        )
        for each in first.active_producers
    }
    assert reported == {70: (2, 5, -1, -1), 71: (0, 9, -1, -1)}
    assert all(before_ms <= each.last_timestamp <= int(time.time() * 1000) for each in first.active_producers)


def test_errors_are_of_each_partition(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    good, missing = describe(client, topic, 0, 7)
    assert (good.error_code, missing.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    (unknown,) = describe(client, "nowhere", 0)
    assert (unknown.error_code, unknown.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "This server does not host this topic-partition.",
    )
    for name in ("", "..", "a b"):
        (invalid,) = describe(client, name, 0)
        assert invalid.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert invalid.error_message.startswith("Topic name is invalid: ")


def test_a_silent_producer_is_forgotten_by_the_interval_of_the_check(
    tmp_path_factory: pytest.TempPathFactory, topic: str
) -> None:
    """While it is known, a gap in its sequence is refused."""
    properties = {"producer.id.expiration.ms": "500", "producer.id.expiration.check.interval.ms": "50"}
    with serving(tmp_path_factory, properties) as bootstrap_servers, WireClient(bootstrap_servers) as client:
        create_topic(client, topic)
        assert produce(client, topic, batch_of(producer_id=70, producer_epoch=0, base_sequence=0)).error_code == 0
        until(lambda: describe(client, topic, 0)[0].active_producers == [])
        gap = batch_of(producer_id=70, producer_epoch=0, base_sequence=7)
        until(lambda: produce(client, topic, gap).error_code == 0)
