"""What the controller refuses as a whole: too little time, too many records, the name of its own log."""

from collections import Counter
from typing import Any

import pytest

from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_GROUP
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.support.client_requests import create_topic, metadata
from tests.support.wire import WireClient

METADATA_TOPIC = "__cluster_metadata"
TOO_LARGE = "Unable to perform excessively large batch operation."
MAX_RECORDS = 10_000


def create(client: WireClient, *names: str, timeout_ms: int = 30_000, **fields: Any) -> list[Any]:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    response: list[Any] = client.call(CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, **fields), 7).topics
    return response


def delete(client: WireClient, *names: str, timeout_ms: int = 30_000) -> list[Any]:
    topics = [DeleteTopicState(name=name) for name in names]
    response: list[Any] = client.call(DeleteTopicsRequest(topics=topics, timeout_ms=timeout_ms), 6).responses
    return response


def grow(client: WireClient, *counts: tuple[str, int], timeout_ms: int = 30_000, is_only_checked: bool = False) -> Any:
    topics = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in counts]
    request = CreatePartitionsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=is_only_checked)
    return client.call(request, 3).results


def responses(results: list[Any]) -> Counter[tuple[int, str | None]]:
    return Counter((result.error_code, result.error_message) for result in results)


# -- time ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_request_without_time_is_answered_timed_out_and_does_nothing(
    client: WireClient, topic: str, timeout_ms: int
) -> None:
    kept, other = f"{topic}-kept", f"{topic}-other"
    create_topic(client, kept)

    created = create(client, other, "no name", "twice", "twice", timeout_ms=timeout_ms)
    deleted = delete(client, kept, "nowhere", "twice", "twice", timeout_ms=timeout_ms)
    grown = grow(client, (kept, 2), ("nowhere", 2), ("twice", 2), ("twice", 3), timeout_ms=timeout_ms)

    timed_out = {(ErrorCode.REQUEST_TIMED_OUT, None): 4}
    assert [responses(created), responses(deleted), responses(grown)] == [timed_out] * 3
    found, missing = metadata(client, kept, other).topics
    assert (found.error_code, len(found.partitions)) == (0, 1)
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_what_never_reaches_the_controller_needs_no_time(client: WireClient) -> None:
    for results in (
        create(client, "twice", "twice", timeout_ms=0),
        delete(client, "twice", "twice", timeout_ms=0),
        grow(client, ("twice", 1), ("twice", 2), timeout_ms=0),
    ):
        assert responses(results) == {(ErrorCode.INVALID_REQUEST, "Duplicate topic name."): 1}


# -- records ------------------------------------------------------------------------------------------------------


def test_creating_more_topics_than_one_operation_may_is_refused_as_a_whole(client: WireClient, topic: str) -> None:
    names = [f"{topic}-{number}" for number in range(MAX_RECORDS // 2 + 1)]

    too_many = create(client, *names, "no name")

    assert responses(too_many) == {(ErrorCode.POLICY_VIOLATION, TOO_LARGE): len(names) + 1}
    assert metadata(client, names[0]).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert responses(create(client, *names[1:], validate_only=True)) == {(0, None): len(names) - 1}


def test_a_topics_own_record_counts(client: WireClient, topic: str) -> None:
    request = CreateTopicsRequest(
        topics=[CreatableTopic(name=topic, num_partitions=MAX_RECORDS, replication_factor=1)], validate_only=True
    )
    (result,) = client.call(request, 7).topics
    assert (result.error_code, result.error_message) == (ErrorCode.POLICY_VIOLATION, TOO_LARGE)


def test_growing_beyond_what_one_operation_may_is_refused(client: WireClient, topic: str) -> None:
    first, second = f"{topic}-1", f"{topic}-2"
    create_topic(client, first)
    create_topic(client, second)

    results = grow(client, (first, 6001), (second, 6001), is_only_checked=True)
    (too_many,) = grow(client, (first, MAX_RECORDS + 2), is_only_checked=True)
    (just_enough,) = grow(client, (first, MAX_RECORDS + 1), is_only_checked=True)
    many_topics = grow(client, *((f"{topic}-{number}", 2) for number in range(MAX_RECORDS + 1)), is_only_checked=True)

    assert sorted(result.error_code == 0 for result in results) == [False, True]
    assert (too_many.error_code != 0, just_enough.error_code) == (True, 0)
    assert responses(many_topics) == {(ErrorCode.POLICY_VIOLATION, TOO_LARGE): MAX_RECORDS + 1}


def test_altering_more_configs_than_one_operation_may_is_refused_as_a_whole(client: WireClient, topic: str) -> None:
    configs = [
        AlterableConfig("consumer.session.timeout.ms", config_operation=0, value="46000"),
        AlterableConfig("consumer.heartbeat.interval.ms", config_operation=0, value="6000"),
    ]
    resources = [
        AlterConfigsResource(RESOURCE_GROUP, resource_name=f"{topic}-{number}", configs=configs)
        for number in range(MAX_RECORDS // 2 + 1)
    ]
    too_many = client.call(IncrementalAlterConfigsRequest(resources=resources, validate_only=True), 1).responses
    enough = client.call(IncrementalAlterConfigsRequest(resources=resources[1:], validate_only=True), 1).responses
    assert responses(too_many) == {(ErrorCode.POLICY_VIOLATION, TOO_LARGE): len(resources)}
    assert responses(enough) == {(0, None): len(resources) - 1}


# -- the metadata log's own name ----------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [0, 1, 3, 4, 13])
def test_the_metadata_logs_name_is_no_topic_however_often_it_is_requested(client: WireClient, version: int) -> None:
    for _ in range(3):
        (requested,) = metadata(client, METADATA_TOPIC, version=version, is_creation_allowed=True).topics
        assert requested.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        # The next request finds what the controller made of the one before.
        assert METADATA_TOPIC not in {known.name for known in metadata(client).topics}


def test_the_metadata_logs_name_is_not_created(client: WireClient) -> None:
    (result,) = create(client, METADATA_TOPIC)
    message = f"Creation of internal topic {METADATA_TOPIC} is prohibited."
    assert (result.error_code, result.error_message) == (ErrorCode.INVALID_REQUEST, message)


# -- thread pools -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "count"),
    [
        ("remote.log.manager.copier.thread.pool.size", 10),
        ("remote.log.manager.expiration.thread.pool.size", 10),
        ("remote.log.manager.follower.thread.pool.size", 2),
        ("remote.log.reader.threads", 10),
    ],
)
def test_a_thread_pool_at_most_doubles_or_halves_at_once(client: WireClient, key: str, count: int) -> None:
    def code(value: int, resource: str) -> int:
        configs = [AlterableConfig(key, config_operation=0, value=str(value))]
        resources = [AlterConfigsResource(RESOURCE_BROKER, resource_name=resource, configs=configs)]
        request = IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
        return int(client.call(request, 1).responses[0].error_code)

    for resource in ("1", ""):
        codes = [code(value, resource) for value in (count // 2 - 1, count // 2, count * 2, count * 2 + 1)]
        assert codes == [ErrorCode.INVALID_REQUEST, 0, 0, ErrorCode.INVALID_REQUEST]
