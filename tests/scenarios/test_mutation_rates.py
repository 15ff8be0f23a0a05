"""controller_mutation_rate: partitions created and deleted, by a bucket of tokens (KIP-599).

At a hundredth of a partition a second the bucket holds 0.11: the first topic takes it as a whole, the next ones wait a
hundred seconds for each of its partitions. A throttled connection is muted, so each request has its own.
"""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.client_requests import create_topic, describe_topic, metadata, until
from tests.support.quotas import remove_quotas, set_quotas
from tests.support.wire import WireClient

RATE = 0.01
BURST = RATE * 11
EXCEEDED = 89
UNKNOWN_TOPIC = 3
REFUSED = (EXCEEDED, None)

Connect = Callable[[], WireClient]
Call = Callable[[Any, int], Any]


@pytest.fixture(scope="module", autouse=True)
def no_quotas_after(bootstrap: str) -> Iterator[None]:
    yield
    remove_quotas(bootstrap)


@pytest.fixture
def call(connect: Connect, topic: str) -> Call:
    """Ask as a client, on a connection of its own, that has the quota."""
    probe = f"probe-{topic}"
    set_quotas(connect(), topic, probe, controller_mutation_rate=RATE)
    requested = creation(probe, is_validated=True)
    until(lambda: connect().call(requested, 5, client_id=probe).throttle_time_ms > 0)
    return lambda request, version: connect().call(request, version, client_id=topic)


def creation(*names: str, count: int = 1, is_validated: bool = False) -> CreateTopicsRequest:
    topics = [CreatableTopic(name=name, num_partitions=count, replication_factor=1) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=30_000, validate_only=is_validated)


def deletion(*names: str, version: int) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names), timeout_ms=30_000)
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=30_000)


def growth(name: str, count: int) -> CreatePartitionsRequest:
    return CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)], timeout_ms=30_000
    )


def throttle_of(partition_count: int) -> Any:
    """Return what is expected after so many partitions; the machine may be slow meanwhile."""
    return pytest.approx((partition_count - BURST) / RATE * 1000, rel=0.3)


def errors(results: Any) -> list[tuple[int, str | None]]:
    return [(each.error_code, each.error_message) for each in results]


def test_topics_beyond_the_rate_are_refused(call, connect, topic) -> None:
    first = call(creation(f"{topic}-1", count=3), 7)
    assert (errors(first.topics), first.throttle_time_ms) == ([(0, None)], 0)
    second = call(creation(f"{topic}-2", is_validated=True), 6)
    assert errors(second.topics) == [REFUSED]
    assert second.throttle_time_ms == throttle_of(3)
    assert describe_topic(connect(), f"{topic}-2").error_code == UNKNOWN_TOPIC


def test_of_one_request_the_topics_that_follow_are_refused(call, topic) -> None:
    response = call(creation(f"{topic}-1", f"{topic}-2", f"{topic}-3", count=2), 7)
    assert sorted(errors(response.topics)) == [(0, None), REFUSED, REFUSED]
    assert response.throttle_time_ms == throttle_of(2)


def test_older_versions_are_throttled_and_not_refused(call, topic) -> None:
    throttles = [call(creation(f"{topic}-{index}"), 5) for index in range(2)]
    assert [errors(each.topics) for each in throttles] == [[(0, None)]] * 2
    assert [each.throttle_time_ms for each in throttles] == [throttle_of(1), throttle_of(2)]


def test_what_is_only_validated_counts(call, topic) -> None:
    assert errors(call(creation(topic, is_validated=True), 7).topics) == [(0, None)]
    assert errors(call(creation(topic, is_validated=True), 7).topics) == [REFUSED]


def test_topics_that_fail_otherwise_do_not_count(call, topic) -> None:
    for _ in range(2):
        assert [each.error_code for each in call(creation("no such name"), 7).topics] == [17]
    assert errors(call(creation(topic, is_validated=True), 7).topics) == [(0, None)]


def test_the_connection_is_muted(call, connect, topic) -> None:
    call(creation(topic), 7)
    client = connect()
    client.call(creation(f"{topic}-2"), 7, client_id=topic)
    client.send(ApiVersionsRequest(), 0)
    assert not client.has_response(0.2)


def test_other_clients_have_their_own_bucket(call, connect, topic) -> None:
    call(creation(topic, is_validated=True), 7)
    response = connect().call(creation(topic, is_validated=True), 7, client_id=f"{topic}-other")
    assert (errors(response.topics), response.throttle_time_ms) == ([(0, None)], 0)


@pytest.mark.parametrize("version", [5, 6])
def test_deletions_beyond_the_rate_are_refused(call, connect, topic, version) -> None:
    for index in range(2):
        create_topic(connect(), f"{topic}-{index}", 2)
    first = call(deletion(f"{topic}-0", version=version), version)
    assert (errors(first.responses), first.throttle_time_ms) == ([(0, None)], 0)
    second = call(deletion(f"{topic}-1", version=version), version)
    assert errors(second.responses) == [REFUSED]
    assert second.throttle_time_ms == throttle_of(2)
    assert describe_topic(connect(), f"{topic}-1").error_code == 0


def test_older_deletions_are_throttled_and_not_refused(call, connect, topic) -> None:
    create_topic(connect(), topic, 3)
    response = call(deletion(topic, version=4), 4)
    assert ([each.error_code for each in response.responses], response.throttle_time_ms) == ([0], throttle_of(3))


def test_partitions_beyond_the_rate_are_refused(call, connect, topic) -> None:
    create_topic(connect(), topic)
    first = call(growth(topic, 3), 3)
    assert (errors(first.results), first.throttle_time_ms) == ([(0, None)], 0)
    second = call(growth(topic, 4), 3)
    assert errors(second.results) == [REFUSED]
    assert second.throttle_time_ms == throttle_of(2), "only new partitions count"
    third = call(growth(topic, 4), 2)
    assert (errors(third.results), third.throttle_time_ms) == ([(0, None)], throttle_of(3))


def test_auto_created_topics_are_refused(call, connect, topic) -> None:
    """The refusal is logged; what is asked for next is decided after it."""
    call(creation(topic, is_validated=True), 7)
    call(auto_creation(f"{topic}-unmade"), 9)
    assert metadata(connect(), f"{topic}-made", is_creation_allowed=True).topics[0].error_code == UNKNOWN_TOPIC
    until(lambda: describe_topic(connect(), f"{topic}-made").error_code == 0)
    assert describe_topic(connect(), f"{topic}-unmade").error_code == UNKNOWN_TOPIC


def auto_creation(name: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
