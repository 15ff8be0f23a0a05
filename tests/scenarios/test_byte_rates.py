"""producer_byte_rate and consumer_byte_rate: throttle_time_ms is told, then the connection is muted (KIP-219).

The windows are ten full ones of a second and the one that runs: a burst may be ten seconds of a quota.
"""

import time
from collections.abc import Callable, Iterator

import pytest

from kafkapy.protocol.messages.alter_client_quotas_request import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.fetch_request import FetchRequest
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch_partition,
    fetch_request,
    fetch_topic,
    produce,
    produce_request,
    until,
    values_in,
)
from tests.support.quotas import remove_quotas
from tests.support.wire import WireClient, request_frame

RATE = 10_000
"""Bytes a second, of which a burst of 100,000 is allowed."""
PRODUCE_VERSION, FETCH_VERSION = 12, 12

Connect = Callable[[], WireClient]


@pytest.fixture(scope="module", autouse=True)
def no_quotas_after(bootstrap: str) -> Iterator[None]:
    yield
    remove_quotas(bootstrap)


def set_quotas(connect: Connect, topic: str, **rates: float) -> None:
    """Give the client-id that is the topic's name its quotas, and wait until they are applied.

    They are once a probe is throttled, whose quota is set with them.
    """
    probe = f"probe-{topic}"
    entries = [
        EntryData(
            [EntityData("client-id", entity_name=name)], ops=[OpData(key, value=value) for key, value in quotas.items()]
        )
        for name, quotas in ((topic, rates), (probe, {"producer_byte_rate": 1.0}))
    ]
    assert [each.error_code for each in connect().call(AlterClientQuotasRequest(entries), 1).entries] == [0, 0]
    create_topic(connect(), probe)
    until(lambda: throttle_of_produce(connect(), probe, b"", client_id=probe) > 0)


def throttle_of_produce(client: WireClient, topic: str, value: bytes, *, client_id: str) -> int:
    request = produce_request(topic, batch_of(value=value))
    response = client.call(request, PRODUCE_VERSION, client_id=client_id)
    assert response.responses[0].partition_responses[0].error_code == 0
    return int(response.throttle_time_ms)


def assert_muted(client: WireClient, throttle_ms: int, since_s: float) -> None:
    """`since_s`: before the request that was throttled was sent, time.monotonic()."""
    client.call(ApiVersionsRequest(), 0)
    assert time.monotonic() - since_s >= throttle_ms / 1000 * 0.95


@pytest.fixture
def limited(connect: Connect, topic: str) -> str:
    """A topic, and a client-id of the same name with both quotas."""
    create_topic(connect(), topic)
    set_quotas(connect, topic, producer_byte_rate=RATE, consumer_byte_rate=RATE)
    return topic


def test_a_producer_beyond_its_quota_gets_the_throttle_and_is_muted(connect: Connect, limited: str) -> None:
    client, value = connect(), b"x" * 103_000
    size_bytes = len(request_frame(produce_request(limited, batch_of(value=value)), PRODUCE_VERSION, client_id=limited))
    sent_s = time.monotonic()
    throttle_ms = throttle_of_produce(client, limited, value, client_id=limited)
    expected_ms = (size_bytes / 10 - RATE) / RATE * 10_000
    assert throttle_ms == pytest.approx(expected_ms, rel=0.1)
    assert_muted(client, throttle_ms, sent_s)


def test_a_producer_below_its_quota_is_not_throttled(connect: Connect, limited: str) -> None:
    client = connect()
    throttles = [throttle_of_produce(client, limited, b"x" * 9_000, client_id=limited) for _ in range(10)]
    assert throttles == [0] * 10


def test_clients_of_another_id_are_not_throttled(connect: Connect, limited: str) -> None:
    assert throttle_of_produce(connect(), limited, b"x" * 500_000, client_id="another") == 0


def test_connections_of_a_client_id_share_its_quota(connect: Connect, limited: str) -> None:
    assert throttle_of_produce(connect(), limited, b"x" * 95_000, client_id=limited) == 0
    assert throttle_of_produce(connect(), limited, b"x" * 90_000, client_id=limited) > 0


def test_a_producer_without_responses_is_muted(connect: Connect, limited: str) -> None:
    client = connect()
    request = produce_request(limited, batch_of(value=b"x" * 104_000), acks=0)
    sent_s = time.monotonic()
    client.send_frame(request_frame(request, PRODUCE_VERSION, client_id=limited))
    assert_muted(client, 400, sent_s)


def test_a_consumer_beyond_its_quota_gets_nothing_and_is_muted(connect: Connect, limited: str) -> None:
    client, batch_bytes = connect(), len(batch_of(value=b"x" * 7_000))
    for _ in range(15):
        produce(client, limited, batch_of(value=b"x" * 7_000))
    began_s = time.monotonic()
    opened = client.call(
        FetchRequest(session_epoch=0, topics=[fetch_topic(limited, fetch_partition(0, max_bytes=14 * batch_bytes))]),
        FETCH_VERSION,
        client_id=limited,
    )
    (partition,) = opened.responses[0].partitions
    assert opened.throttle_time_ms == 0
    assert len(values_in(partition)) == 14
    requested = fetch_partition(0, max_bytes=batch_bytes)
    sent_s = time.monotonic()
    throttled = go_on(client, limited, opened.session_id, 1, requested)
    assert (throttled.error_code, throttled.session_id, throttled.responses) == (0, opened.session_id, [])
    highest_ms, lowest_ms = (  # the rate is that of ten seconds and what has passed of the current one
        (15 * batch_bytes / window_s - RATE) / RATE * window_s * 1000
        for window_s in (10, 10 + time.monotonic() - began_s)
    )
    headers_ms = 20  # what is not records counts, too: 200 bytes at most
    assert lowest_ms - 2 <= throttled.throttle_time_ms <= highest_ms + headers_ms
    assert_muted(client, throttled.throttle_time_ms, sent_s)
    again = next(filter(lambda response: response.responses, refetches(client, limited, opened.session_id)))
    assert len(values_in(again.responses[0].partitions[0])) == 1, "the session is as it was"


def go_on(client: WireClient, client_id: str, session_id: int, epoch: int, *requested: object):
    topics = [fetch_topic(client_id, *requested)] if requested else []
    request = FetchRequest(session_id=session_id, session_epoch=epoch, topics=topics)
    return client.call(request, FETCH_VERSION, client_id=client_id)


def refetches(client: WireClient, client_id: str, session_id: int):
    for epoch in range(2, 7):
        yield go_on(client, client_id, session_id, epoch)


def test_a_consumer_of_another_id_reads_on(connect: Connect, limited: str) -> None:
    client = connect()
    produce(client, limited, batch_of(value=b"x" * 300_000))
    response = client.call(fetch_request(limited), FETCH_VERSION, client_id="another")
    assert response.throttle_time_ms == 0
    assert len(values_in(response.responses[0].partitions[0])) == 1


def test_a_quota_that_is_removed_throttles_no_more(connect: Connect, limited: str) -> None:
    assert throttle_of_produce(connect(), limited, b"x" * 120_000, client_id=limited) > 0
    entry = EntryData([EntityData("client-id", entity_name=limited)], ops=[OpData("producer_byte_rate", remove=True)])
    connect().call(AlterClientQuotasRequest([entry]), 1)
    until(lambda: throttle_of_produce(connect(), limited, b"", client_id=limited) == 0)


def test_a_fetch_is_capped_by_what_the_windows_allow(connect: Connect, limited: str) -> None:
    """Of 210,000 bytes it gets 100,000: records alone are capped, so that Apache Kafka throttles for 11 ms first."""
    for _ in range(30):
        produce(connect(), limited, batch_of(value=b"x" * 7_000))
    responses = (connect().call(fetch_request(limited), FETCH_VERSION, client_id=limited) for _ in range(100))
    response = next(each for each in responses if each.responses)
    assert 12 <= len(values_in(response.responses[0].partitions[0])) <= 14


def test_a_followers_fetch_is_not_counted(connect: Connect, limited: str) -> None:
    for _ in range(30):
        produce(connect(), limited, batch_of(value=b"x" * 7_000))
    connect().call(fetch_request(limited), FETCH_VERSION, client_id=limited)
    follower = FetchRequest(replica_id=1, topics=[fetch_topic(limited, fetch_partition(0))])
    assert connect().call(follower, FETCH_VERSION, client_id=limited).throttle_time_ms == 0


def test_another_connection_of_the_client_waits_as_long(connect: Connect, topic: str, limited: str) -> None:
    since_s = time.monotonic()
    throttle_ms = throttle_of_produce(connect(), topic, bytes(120_000), client_id=limited)
    assert throttle_ms > 0
    throttle_of_produce(connect(), topic, b"", client_id=limited)
    assert time.monotonic() - since_s >= throttle_ms / 1000 * 0.95
