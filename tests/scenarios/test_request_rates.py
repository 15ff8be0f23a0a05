"""request_percentage: a client whose requests take more time than it has is told and muted, a second at most (KIP-124).

With a ten-thousandth of a percent, which is ten microseconds of the windows' ten seconds, every request is beyond it.
"""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch_partition,
    fetch_topic,
    list_offset,
    produce,
    produce_request,
    until,
    values_in,
)
from tests.support.quotas import remove_quotas, set_quotas
from tests.support.wire import WireClient, request_frame

PERCENTAGE = 0.0001
WINDOW_MS, MUTED_S = 1000, 0.95
PRODUCE_VERSION, FETCH_VERSION = 12, 12

Connect = Callable[[], WireClient]
Call = Callable[[Any, int], Any]


@pytest.fixture(scope="module", autouse=True)
def no_quotas_after(bootstrap: str) -> Iterator[None]:
    yield
    remove_quotas(bootstrap)


@pytest.fixture
def call(connect: Connect, topic: str) -> Call:
    """Ask as a client, on a connection of its own, that has the quota."""
    set_quotas(connect(), topic, f"probe-{topic}", request_percentage=PERCENTAGE)
    until(lambda: connect().call(ApiVersionsRequest(), 2, client_id=f"probe-{topic}").throttle_time_ms > 0)
    return lambda request, version: connect().call(request, version, client_id=topic)


def seconds_with_a_throttle(client: WireClient, request: Any, version: int, *, client_id: str) -> float:
    """Return how long it takes to be answered, and then another request of the connection."""
    sent_s = time.monotonic()
    client.call(request, version, client_id=client_id)
    client.call(ApiVersionsRequest(), 0)
    return time.monotonic() - sent_s


@pytest.mark.parametrize("version", [3, 13])
def test_responses_carry_the_throttle(call, version) -> None:
    assert call(MetadataRequest(topics=None), version).throttle_time_ms == WINDOW_MS


def test_the_response_for_others_is_left_as_it_was(call, connect) -> None:
    assert call(MetadataRequest(topics=None), 13).throttle_time_ms == WINDOW_MS
    assert connect().call(MetadataRequest(topics=None), 13).throttle_time_ms == 0


def test_the_connection_is_muted(call, connect, topic) -> None:
    assert seconds_with_a_throttle(connect(), ApiVersionsRequest(), 2, client_id=topic) >= MUTED_S


def test_versions_without_a_throttle_time_are_muted(call, connect, topic) -> None:
    assert seconds_with_a_throttle(connect(), MetadataRequest(topics=[]), 2, client_id=topic) >= MUTED_S


def test_a_producer_gets_the_throttle(call, connect, topic) -> None:
    create_topic(connect(), topic)
    response = call(produce_request(topic, batch_of()), PRODUCE_VERSION)
    assert response.responses[0].partition_responses[0].error_code == 0
    assert response.throttle_time_ms == WINDOW_MS


def test_the_larger_of_two_throttles_counts(call, connect, topic) -> None:
    """100,000 bytes at 1,000 a second: 10,000 in ten seconds are as much, 90 seconds more are the throttle."""
    create_topic(connect(), topic)
    set_quotas(connect(), topic, producer_byte_rate=1_000.0)
    request = produce_request(topic, batch_of(value=b"x" * 100_000))
    until(lambda: call(request, PRODUCE_VERSION).throttle_time_ms > 10 * WINDOW_MS)


def test_a_producer_without_responses_is_exempt(call, connect, topic) -> None:
    create_topic(connect(), topic)
    client = connect()
    for _ in range(10):
        client.send_frame(request_frame(produce_request(topic, batch_of(), acks=0), PRODUCE_VERSION, client_id=topic))
    assert client.call(ApiVersionsRequest(), 2, client_id="another").throttle_time_ms == 0
    until(lambda: list_offset(connect(), topic, -1).offset == 10)


def test_a_consumer_gets_nothing_and_its_session_is_as_it_was(call, connect, topic) -> None:
    create_topic(connect(), topic)
    produce(connect(), topic, batch_of())
    client = connect()
    request = FetchRequest(session_epoch=0, topics=[fetch_topic(topic, fetch_partition(0))])
    opened = client.call(request, FETCH_VERSION, client_id="another")
    produce(connect(), topic, batch_of(value=b"new"))
    further = fetch_topic(topic, fetch_partition(1))
    throttled = client.call(
        FetchRequest(session_id=opened.session_id, session_epoch=1, topics=[further]), FETCH_VERSION, client_id=topic
    )
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, opened.session_id, [])
    assert throttled.throttle_time_ms == WINDOW_MS
    request = FetchRequest(session_id=opened.session_id, session_epoch=2, topics=[])
    again = client.call(request, FETCH_VERSION, client_id="another")
    assert values_in(again.responses[0].partitions[0]) == [b"new"]


def test_a_throttled_fetch_opens_no_session(call, connect, topic) -> None:
    create_topic(connect(), topic)
    produce(connect(), topic, batch_of())
    throttled = call(FetchRequest(session_epoch=0, topics=[fetch_topic(topic, fetch_partition(0))]), FETCH_VERSION)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, 0, [])
    assert throttled.throttle_time_ms == WINDOW_MS


def test_a_followers_fetch_is_exempt(call, connect, topic) -> None:
    create_topic(connect(), topic)
    request = FetchRequest(replica_id=1, topics=[fetch_topic(topic, fetch_partition(0))])
    assert call(request, FETCH_VERSION).throttle_time_ms == 0


def test_other_clients_are_not_throttled(call, connect) -> None:
    assert connect().call(ApiVersionsRequest(), 2, client_id="another").throttle_time_ms == 0
