"""What a fetch returns, how much, and when. KIP-74, KIP-227, KIP-392."""

import time
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.record.compression import ZSTD
from tests.support.client_requests import (
    LATEST,
    MAX_BYTES,
    READ_COMMITTED,
    batch_of,
    batches_in,
    create_topic,
    fetch,
    fetch_partition,
    fetch_request,
    fetch_topic,
    produce,
    produce_request,
    values_in,
)
from tests.support.wire import WireClient

LONG_MS = 55_000
SOON_S = 45.0
"""What is answered at once may take this long on a machine that does much else; well under LONG_MS."""


def named(topic: str, topic_id: bytes, version: int) -> str | bytes:
    return topic_id if version >= 13 else topic


# -- whole batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_an_offset_inside_a_batch_returns_the_whole_batch(client: WireClient, topic: str, version: int) -> None:
    """The client drops what it did not ask for. A broker that cut the batch would break its CRC."""
    requested = named(topic, create_topic(client, topic), version)
    produce(client, topic, batch_of(5))
    produce(client, topic, batch_of(5))
    response = fetch(client, requested, 7, version=version)
    assert [(batch.base_offset, batch.last_offset, batch.has_valid_crc()) for batch in batches_in(response)] == [
        (5, 9, True)
    ]


def test_one_batch_is_returned_however_small_the_limits(client: WireClient, topic: str) -> None:
    """Else a consumer whose limit is below a batch's size never gets past it. KIP-74."""
    create_topic(client, topic)
    for _ in range(3):
        produce(client, topic, batch_of(2, value=bytes(5000)))
    for limits in ({"partition_max_bytes": 1}, {"max_bytes": 1}, {"partition_max_bytes": 0, "max_bytes": 0}):
        response = fetch(client, topic, 2, **limits)
        assert [batch.base_offset for batch in batches_in(response)] == [2], limits


def fetch_two(client: WireClient, topic: str, order: tuple[int, int], **options: Any) -> list[Any]:
    """Fetch both partitions of a topic in an order; return their responses as they come."""
    limit = options.pop("partition_max_bytes", MAX_BYTES)
    partitions = [fetch_partition(partition=partition, max_bytes=limit) for partition in order]
    response = client.call(FetchRequest(topics=[fetch_topic(topic, *partitions)], **options), 12)
    return [partition for each in response.responses for partition in each.partitions]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_the_first_requested_partition_gets_the_room(client: WireClient, topic: str, order: tuple[int, int]) -> None:
    """Clients rotate the order so that none of their partitions starves. From version 3 on it counts."""
    create_topic(client, topic, 2)
    for partition in order:
        produce(client, topic, batch_of(value=bytes(1000)), partition=partition)
    responses = fetch_two(client, topic, order, max_bytes=100)
    assert [response.partition_index for response in responses] == list(order)
    assert [len(batches_in(response)) for response in responses] == [1, 0]


def test_limits_end_behind_whole_batches(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    for _ in range(10):
        produce(client, topic, batch_of(value=bytes(1000)))
    response = fetch(client, topic, partition_max_bytes=3500)
    assert [batch.base_offset for batch in batches_in(response)] == [0, 1, 2]


# -- when -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [4, 12, 18])
def test_an_empty_fetch_is_answered_when_max_wait_is_over(client: WireClient, topic: str, version: int) -> None:
    requested = named(topic, create_topic(client, topic), version)
    started = time.monotonic()
    response = fetch(client, requested, version=version, max_wait_ms=200, min_bytes=1)
    assert time.monotonic() - started > 0.19
    assert (response.error_code, response.high_watermark, bytes(response.records)) == (0, 0, b"")


def test_a_fetch_that_waits_is_woken_by_a_produce(connect: Callable[[], WireClient], topic: str) -> None:
    waiting, other = connect(), connect()
    create_topic(other, topic)
    started = time.monotonic()
    waiting.send(fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=1), 12)
    assert not waiting.has_response(0.1)
    produce(other, topic, batch_of())
    assert values_in(waiting.receive().responses[0].partitions[0]) == [b"value"]
    assert time.monotonic() - started < SOON_S


def test_a_fetch_waits_until_there_are_min_bytes(connect: Callable[[], WireClient], topic: str) -> None:
    waiting, other = connect(), connect()
    create_topic(other, topic)
    waiting.send(fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=3000), 12)
    for _ in range(2):
        produce(other, topic, batch_of(value=bytes(1000)))
        assert not waiting.has_response(0.05)
    produce(other, topic, batch_of(value=bytes(1000)))
    assert len(batches_in(waiting.receive().responses[0].partitions[0])) == 3


@pytest.mark.ours
def test_a_fetch_stops_waiting_when_another_request_follows_it(client: WireClient, topic: str) -> None:
    """At its end each task of a Spark batch asks for offsets behind a fetch of what is not there yet."""
    create_topic(client, topic)
    produce(client, topic, batch_of())
    started = time.monotonic()
    client.send(fetch_request(topic, 1, max_wait_ms=LONG_MS, min_bytes=1), 12)
    requested = ListOffsetsTopic(topic, partitions=[ListOffsetsPartition(timestamp=LATEST)])
    client.send(ListOffsetsRequest(-1, topics=[requested]), 7)
    fetched = client.receive().responses[0].partitions[0]
    assert (fetched.error_code, fetched.high_watermark, batches_in(fetched)) == (0, 1, [])
    assert client.receive().topics[0].partitions[0].offset == 1
    assert time.monotonic() - started < SOON_S
    assert values_in(fetch(client, topic, max_wait_ms=LONG_MS, min_bytes=1)) == [b"value"], "the connection goes on"


@pytest.mark.ours
def test_a_fetch_stops_waiting_when_a_small_produce_follows_it(client: WireClient, topic: str) -> None:
    """Clients that send all their requests over one connection wait for both responses, in order."""
    create_topic(client, topic, 2)
    for _ in range(2):
        produce(client, topic, batch_of(), acks=1)
    started = time.monotonic()
    client.send(fetch_request(topic, partition=1, max_wait_ms=LONG_MS, min_bytes=1), 12)
    client.send(produce_request(topic, batch_of(), acks=1), 12)
    assert values_in(client.receive().responses[0].partitions[0]) == []
    assert client.receive().responses[0].partition_responses[0].base_offset == 2
    assert time.monotonic() - started < SOON_S


@pytest.mark.ours
def test_a_fetch_goes_on_waiting_when_another_fetch_follows_it(connect: Callable[[], WireClient], topic: str) -> None:
    """Or clients that always have two under way would be answered as fast as they can ask."""
    waiting, other = connect(), connect()
    create_topic(other, topic)
    for _ in range(2):
        waiting.send(fetch_request(topic, max_wait_ms=LONG_MS, min_bytes=1), 12)
    assert not waiting.has_response(0.1)
    produce(other, topic, batch_of())
    for _ in range(2):
        assert values_in(waiting.receive().responses[0].partitions[0]) == [b"value"]


def test_what_is_there_is_returned_without_waiting(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of())
    started = time.monotonic()
    assert values_in(fetch(client, topic, max_wait_ms=LONG_MS, min_bytes=1)) == [b"value"]
    assert time.monotonic() - started < SOON_S


@pytest.mark.parametrize("offset", [1, -2, 2**62])
def test_an_error_is_reported_at_once(client: WireClient, topic: str, offset: int) -> None:
    """And with it, what is not known is -1, never 0: a client would take it for an offset."""
    create_topic(client, topic)
    started = time.monotonic()
    response = fetch(client, topic, offset, max_wait_ms=LONG_MS, min_bytes=1)
    assert time.monotonic() - started < SOON_S
    assert response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert (response.high_watermark, response.last_stable_offset, response.log_start_offset) == (-1, -1, -1)
    assert response.preferred_read_replica == -1
    assert bytes(response.records) == b""


def test_a_partition_that_fails_leaves_the_others_alone(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of())
    good, bad = fetch_two(client, topic, (0, 5), max_wait_ms=100, min_bytes=1)
    assert (good.error_code, values_in(good)) == (0, [b"value"])
    assert bad.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- values that are not zero, lists that are null ------------------------------------------------------------------


@pytest.mark.parametrize("version", range(4, 19))
def test_fields_without_a_value_say_so(client: WireClient, topic: str, version: int) -> None:
    """A preferred replica of 0 sends a consumer to a broker that may not exist."""
    requested = named(topic, create_topic(client, topic), version)
    response = fetch(client, requested, version=version)
    assert response.preferred_read_replica == -1
    assert (response.current_leader.leader_id, response.current_leader.leader_epoch) == (-1, -1)
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (-1, -1)
    assert (response.snapshot_id.epoch, response.snapshot_id.end_offset) == (-1, -1)
    assert response.log_start_offset == (0 if version >= 5 else -1)
    assert response.aborted_transactions is None


def test_the_list_of_aborted_transactions_is_empty_not_null_for_read_committed(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    produce(client, topic, batch_of())
    assert fetch(client, topic, isolation_level=READ_COMMITTED).aborted_transactions == []
    assert fetch(client, topic).aborted_transactions is None


def test_divergence_is_returned_to_fetches_that_name_their_last_epoch(client: WireClient, topic: str) -> None:
    """KIP-595: whoever has seven records of epoch 0 has four too many. Of epoch 5 nobody has any."""
    topic_id = create_topic(client, topic)
    produce(client, topic, batch_of(3))
    response = fetch(client, topic_id, 7, last_fetched_epoch=0)
    assert (response.diverging_epoch.epoch, response.diverging_epoch.end_offset) == (0, 3)
    assert (response.error_code, bytes(response.records)) == (0, b"")
    assert fetch(client, topic_id, 3, last_fetched_epoch=5).error_code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.parametrize("version", range(4, 19))
def test_zstd_is_sent_in_every_version(client: WireClient, topic: str, version: int) -> None:
    requested = named(topic, create_topic(client, topic), version)
    batch = batch_of(3, value=bytes(100), compression=ZSTD)
    produce(client, topic, batch)
    response = fetch(client, requested, version=version)
    assert (response.error_code, len(bytes(response.records))) == (0, len(batch))
