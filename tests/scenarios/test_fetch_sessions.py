"""Incremental fetch sessions as clients drive them, over any connection. KIP-227."""

import time
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchRequest, ForgottenTopic
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch_partition,
    fetch_request,
    fetch_topic,
    produce,
    values_in,
)
from tests.support.wire import WireClient


def open_session(client: WireClient, topic: str | bytes, *partitions: int, version: int = 12) -> Any:
    requested = [fetch_partition(partition=partition) for partition in partitions]
    response = client.call(FetchRequest(session_epoch=0, topics=[fetch_topic(topic, *requested)]), version)
    assert response.error_code == 0
    assert response.session_id > 0
    return response


def go_on(client: WireClient, session_id: int, session_epoch: int, *topics: Any, **options: Any) -> Any:
    version = options.pop("version", 12)
    request = FetchRequest(session_id=session_id, session_epoch=session_epoch, topics=list(topics), **options)
    return client.call(request, version)


def reported(response: Any) -> dict[int, list[bytes | None]]:
    """Return the values by partition of what a response has; partitions that it leaves out are not there."""
    return {
        partition.partition_index: values_in(partition) for each in response.responses for partition in each.partitions
    }


def test_the_first_response_has_all_partitions_and_later_ones_what_changed(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 3)
    opened = open_session(client, topic, 0, 1, 2)
    assert reported(opened) == {0: [], 1: [], 2: []}
    unchanged = go_on(client, opened.session_id, 1)
    assert (unchanged.session_id, reported(unchanged)) == (opened.session_id, {})
    produce(client, topic, batch_of(), partition=1)
    assert reported(go_on(client, opened.session_id, 2)) == {1: [b"value"]}


def test_the_session_moves_with_the_offsets_that_requests_name(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    session_id = open_session(client, topic, 0, 1).session_id
    produce(client, topic, batch_of(value=b"first"))
    assert reported(go_on(client, session_id, 1)) == {0: [b"first"]}
    produce(client, topic, batch_of(value=b"second"))
    assert reported(go_on(client, session_id, 2, fetch_topic(topic, fetch_partition(1)))) == {0: [b"second"]}


def test_a_forgotten_partition_is_no_longer_in_responses(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    session_id = open_session(client, topic, 0, 1).session_id
    go_on(client, session_id, 1, forgotten_topics_data=[ForgottenTopic(topic, partitions=[0])])
    for partition in (0, 1):
        produce(client, topic, batch_of(), partition=partition)
    assert reported(go_on(client, session_id, 2)) == {1: [b"value"]}


def test_a_partition_is_added_on_the_way(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    produce(client, topic, batch_of(), partition=1)
    session_id = open_session(client, topic, 0).session_id
    assert reported(go_on(client, session_id, 1, fetch_topic(topic, fetch_partition(partition=1)))) == {1: [b"value"]}


@pytest.mark.parametrize("wrong_epoch", [2, 7])
def test_a_wrong_epoch_is_refused_and_the_right_one_goes_on(client: WireClient, topic: str, wrong_epoch: int) -> None:
    create_topic(client, topic)
    session_id = open_session(client, topic, 0).session_id
    refused = go_on(client, session_id, wrong_epoch)
    assert (refused.error_code, refused.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, [])
    assert go_on(client, session_id, 1).error_code == 0


def test_an_epoch_already_used_is_refused(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    session_id = open_session(client, topic, 0).session_id
    assert go_on(client, session_id, 1).error_code == 0
    assert go_on(client, session_id, 1).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_an_unknown_session_is_not_found(client: WireClient) -> None:
    refused = go_on(client, 123456789, 1)
    assert (refused.error_code, refused.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)


def test_epoch_minus_1_closes_the_session_and_opens_none(client: WireClient, topic: str) -> None:
    """Clients close theirs with it; a broker that kept them would run out of slots."""
    create_topic(client, topic)
    produce(client, topic, batch_of())
    session_id = open_session(client, topic, 0).session_id
    closing = go_on(client, session_id, -1, fetch_topic(topic, fetch_partition()))
    assert (closing.error_code, closing.session_id, reported(closing)) == (0, 0, {0: [b"value"]})
    assert go_on(client, session_id, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.ours
def test_closing_a_session_ends_the_wait_of_its_fetch(client: WireClient, topic: str) -> None:
    """A consumer that is closed waits for both responses."""
    create_topic(client, topic)
    session_id = open_session(client, topic, 0).session_id
    started = time.monotonic()
    client.send(FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=55_000, min_bytes=1), 12)
    closed = go_on(client, session_id, -1)  # its response is the first's, which it receives
    assert (closed.session_id, closed.error_code) == (session_id, 0)
    assert client.receive().session_id == 0
    assert time.monotonic() - started < 45


def test_without_a_session_every_response_is_full(client: WireClient, topic: str) -> None:
    create_topic(client, topic, 2)
    for _ in range(2):
        response = go_on(client, 0, -1, fetch_topic(topic, fetch_partition(), fetch_partition(partition=1)))
        assert (response.session_id, set(reported(response))) == (0, {0, 1})


def test_a_new_session_replaces_the_one_it_names(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    old = open_session(client, topic, 0).session_id
    new = go_on(client, old, 0, fetch_topic(topic, fetch_partition())).session_id
    assert new not in (0, old)
    assert go_on(client, old, 1).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert go_on(client, new, 1).error_code == 0


def test_a_session_with_ids_cannot_go_on_with_names(client: WireClient, topic: str) -> None:
    topic_id = create_topic(client, topic)
    session_id = open_session(client, topic_id, 0, version=13).session_id
    refused = go_on(client, session_id, 1, fetch_topic(topic, fetch_partition()), version=12)
    assert refused.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_an_error_is_repeated_in_responses_until_it_is_gone(client: WireClient, topic: str) -> None:
    """A partition whose offset is out of range is never left out as unchanged."""
    create_topic(client, topic)
    session_id = open_session(client, topic, 0).session_id
    out_of_range = fetch_topic(topic, fetch_partition(5))
    for session_epoch, topics in ((1, [out_of_range]), (2, [])):
        (response,) = go_on(client, session_id, session_epoch, *topics).responses
        assert response.partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert reported(go_on(client, session_id, 3, fetch_topic(topic, fetch_partition(0)))) == {0: []}


def test_a_session_waits_and_is_woken_like_any_fetch(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    session_id = open_session(client, topic, 0).session_id
    client.send(FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=300, min_bytes=1), 12)
    assert reported(client.receive()) == {}
    request = fetch_request(topic, session_id=session_id, session_epoch=2, max_wait_ms=30_000, min_bytes=1)
    produce(client, topic, batch_of())
    assert reported(client.call(request, 12)) == {0: [b"value"]}
