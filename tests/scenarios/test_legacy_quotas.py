"""Quotas of clients older than Kafka 4: their versions are throttled as today's, told where there is a field."""

from collections.abc import Iterator
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.protocol.messages import legacy_fetch_request, legacy_produce_request
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.legacy_create_topics_request import CreatableTopic, LegacyCreateTopicsRequest
from kafkapy.protocol.messages.legacy_delete_topics_request import LegacyDeleteTopicsRequest
from kafkapy.protocol.messages.legacy_fetch_request import LegacyFetchRequest
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.record.batch import Record
from kafkapy.record.legacy import build_message_set
from tests.support.client_requests import batch_of, create_topic, produce
from tests.support.quotas import set_quotas
from tests.support.wire import WireClient

pytestmark = pytest.mark.ours
RATE = 1000.0
VALUE_BYTES, PER_FETCH = 9_500, 9_900
"""A batch, and what it fits into. At first 10,000 bytes are allowed, so that the second batch is nine seconds late."""


@pytest.fixture(scope="module")
def old_bootstrap() -> Iterator[str]:
    with Broker(properties={"kafkapy.legacy.clients.enable": "true"}) as broker:
        yield broker.bootstrap_servers


@pytest.fixture
def client(old_bootstrap: str) -> Iterator[WireClient]:
    with WireClient(old_bootstrap) as opened:
        yield opened


@pytest.fixture
def other(old_bootstrap: str) -> Iterator[WireClient]:
    """A client without quotas."""
    with WireClient(old_bootstrap) as opened:
        yield opened


def fetch(topic: str) -> LegacyFetchRequest:
    requested = legacy_fetch_request.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=PER_FETCH)
    return LegacyFetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=PER_FETCH,
        topics=[legacy_fetch_request.FetchTopic(topic, partitions=[requested])],
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_consumer_beyond_its_rate_gets_nothing_and_is_muted(client, other, topic, version) -> None:
    create_topic(other, topic)
    for _ in range(2):
        produce(other, topic, batch_of(value=b"x" * VALUE_BYTES))
    set_quotas(other, topic, consumer_byte_rate=RATE)
    first = client.call(fetch(topic), version, client_id=topic)
    assert len(first.responses[0].partitions[0].records) > VALUE_BYTES
    again = client.call(fetch(topic), version, client_id=topic)
    assert again.responses == []
    assert_throttled(client, again, has_field=version >= 1)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_producer_beyond_its_rate_gets_the_throttle_and_is_muted(client, other, topic, version) -> None:
    create_topic(other, topic)
    set_quotas(other, topic, producer_byte_rate=RATE)
    records = build_message_set([Record(0, 0, None, b"x" * 100_000, ())], magic=1 if version == 2 else 0)
    data = legacy_produce_request.PartitionProduceData(0, records=records)
    request = LegacyProduceRequest(
        1, timeout_ms=30_000, topic_data=[legacy_produce_request.TopicProduceData(topic, partition_data=[data])]
    )
    response = client.call(request, version, client_id=topic)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert_throttled(client, response, has_field=version >= 1)


def test_topics_beyond_the_mutation_rate_are_created_and_deleted_by_a_muted_client(client, other, topic) -> None:
    set_quotas(other, topic, controller_mutation_rate=0.01)
    created = client.call(
        LegacyCreateTopicsRequest([CreatableTopic(topic, num_partitions=1, replication_factor=1)], timeout_ms=30_000),
        0,
        client_id=topic,
    )
    assert [each.error_code for each in created.topics] == [0]
    assert_muted(client)


def test_deletions_beyond_the_mutation_rate_are_carried_out(client, other, topic) -> None:
    create_topic(other, topic)
    set_quotas(other, topic, controller_mutation_rate=0.01)
    deleted = client.call(LegacyDeleteTopicsRequest([topic], timeout_ms=30_000), 0, client_id=topic)
    assert [each.error_code for each in deleted.responses] == [0]
    assert_muted(client)


def assert_throttled(client: WireClient, response: Any, *, has_field: bool) -> None:
    assert (response.throttle_time_ms > 0) is has_field
    assert_muted(client)


def assert_muted(client: WireClient) -> None:
    client.send(ApiVersionsRequest(), 0)
    assert not client.has_response(0.2)
