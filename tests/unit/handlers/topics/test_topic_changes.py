"""CreateTopics, DeleteTopics and CreatePartitions as handlers: duplicates, authorization, ids, failing as a whole."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.topics import create_partitions, create_topics, delete_topics
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.security.authorizer import AclOperation
from tests.support.controllers import Cluster
from tests.support.metadata_services import Deny, context, on_wire, response_of, services

NOT_CONTROLLER = ApiError(ErrorCode.NOT_CONTROLLER, "The active controller appears to be node 2.")


def create(running: Any, *names: str, version: int = 7, validate_only: bool = False) -> dict[str, Any]:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    request = CreateTopicsRequest(topics=topics, validate_only=validate_only)
    response = on_wire(response_of(create_topics.handle(running, context(version), request)), version)
    return {topic.name: topic for topic in response.topics}


def delete(running: Any, *topics: str | bytes | tuple[str | None, bytes], version: int = 6) -> list[Any]:
    request = DeleteTopicsRequest()
    for topic in topics:
        if version < 6:
            assert isinstance(topic, str)
            request.topic_names.append(topic)
        elif isinstance(topic, tuple):
            request.topics.append(DeleteTopicState(name=topic[0], topic_id=topic[1]))
        elif isinstance(topic, bytes):
            request.topics.append(DeleteTopicState(topic_id=topic))
        else:
            request.topics.append(DeleteTopicState(name=topic))
    response = on_wire(response_of(delete_topics.handle(running, context(version), request)), version)
    responses: list[Any] = response.responses
    return responses


def grow(running: Any, *topics: tuple[str, int], version: int = 3, validate_only: bool = False) -> dict[str, Any]:
    requested = [CreatePartitionsTopic(name=name, count=count, assignments=None) for name, count in topics]
    request = CreatePartitionsRequest(topics=requested, validate_only=validate_only)
    response = on_wire(response_of(create_partitions.handle(running, context(version), request)), version)
    return {result.name: result for result in response.results}


@pytest.mark.parametrize("version", range(2, 8))
def test_create_answers_at_every_version(version: int) -> None:
    cluster = Cluster(broker_count=1)

    result = create(services(cluster), "orders", version=version)["orders"]

    assert result.error_code == 0
    assert result.num_partitions == (1 if version >= 5 else -1)
    assert result.topic_id == (cluster.image.topics.by_name["orders"].topic_id if version >= 7 else bytes(16))


def test_duplicates_and_the_metadata_topic_are_refused_and_the_others_created() -> None:
    results = create(services(Cluster(broker_count=1)), "a", "twice", "twice", "__cluster_metadata")

    assert {name: result.error_code for name, result in results.items()} == {
        "a": ErrorCode.NONE,
        "twice": ErrorCode.INVALID_REQUEST,
        "__cluster_metadata": ErrorCode.INVALID_REQUEST,
    }
    assert results["twice"].error_message == "Duplicate topic name."
    assert results["__cluster_metadata"].error_message == "Creation of internal topic __cluster_metadata is prohibited."


def test_creating_needs_the_right_on_cluster_or_topic_and_configs_are_returned_with_the_right_to_describe_them() -> (
    None
):
    cluster = Cluster(broker_count=1)
    denied = create(services(cluster, authorizer=Deny((AclOperation.CREATE, ""))), "a")["a"]
    blind = create(services(cluster, authorizer=Deny((AclOperation.DESCRIBE_CONFIGS, "b"))), "b")["b"]

    assert (denied.error_code, denied.error_message) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "Authorization failed.")
    assert blind.topic_config_error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert (blind.error_code, blind.num_partitions, blind.configs) == (0, -1, [])


def test_what_fails_as_a_whole_fails_for_each_topic() -> None:
    running = services(Cluster(broker_count=1))
    running.controller.error = NOT_CONTROLLER

    created = create(running, "a", "b")
    grown = grow(running, ("a", 2))
    (deleted,) = delete(running, "a")

    assert {result.error_code for result in created.values()} == {ErrorCode.NOT_CONTROLLER}
    assert created["a"].error_message == NOT_CONTROLLER.message
    assert (grown["a"].error_code, deleted.error_code) == (ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_CONTROLLER)


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_deleted_by_name_at_every_version(version: int) -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    create(running, "a")

    gone, missing = delete(running, "a", "nowhere", version=version), delete(running, "nowhere", version=version)

    assert {(result.name, result.error_code) for result in gone} == {("a", 0), ("nowhere", 3)}
    assert missing[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert missing[0].error_message == (None if version < 5 else "This server does not host this topic-partition.")
    assert not cluster.image.topics.by_name


def test_topic_is_deleted_by_id() -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    topic_id = create(running, "a")["a"].topic_id

    (gone,) = delete(running, topic_id)
    (again,) = delete(running, topic_id)

    assert (gone.name, gone.topic_id, gone.error_code) == ("a", topic_id, 0)
    assert (again.name, again.error_code) == (None, ErrorCode.UNKNOWN_TOPIC_ID)


def test_malformed_requests_to_delete_are_answered_one_by_one() -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    topic_id = create(running, "a")["a"].topic_id
    create(running, "b")

    results = delete(running, (None, bytes(16)), ("a", topic_id), "twice", "twice", b"t" * 16, b"t" * 16, "b")

    messages = sorted(result.error_message or "" for result in results)
    assert messages == [
        "",
        "Duplicate topic id.",
        "Duplicate topic name.",
        "Neither topic name nor id were specified.",
        "You may not specify both topic name and topic id.",
    ]
    assert list(cluster.image.topics.by_name) == ["a"]


def test_name_and_id_of_one_topic_are_refused_together() -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    topic_id = create(running, "a")["a"].topic_id

    (result,) = delete(running, topic_id, "a")

    assert result.error_message == "The provided topic name maps to an ID that was already supplied."
    assert "a" in cluster.image.topics.by_name


def test_deletion_can_be_switched_off() -> None:
    running = services(Cluster(broker_count=1), delete_topic_enable="false")

    assert delete(running, "a")[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED
    assert delete(running, "a", version=2)[0].error_code == ErrorCode.INVALID_REQUEST


def test_who_may_not_delete_learns_no_more_than_a_describer() -> None:
    cluster = Cluster(broker_count=1)
    topic_id = create(services(cluster), "a")["a"].topic_id
    describer = services(cluster, authorizer=Deny((AclOperation.DELETE, "")))
    stranger = services(cluster, authorizer=Deny((AclOperation.DELETE, ""), (AclOperation.DESCRIBE, "")))

    assert [(r.name, r.error_code) for r in delete(describer, topic_id)] == [("a", 29)]
    assert [(r.name, r.error_code) for r in delete(stranger, topic_id)] == [(None, 29)]
    assert [(r.name, r.error_code) for r in delete(stranger, "nowhere")] == [("nowhere", 29)]
    assert "a" in cluster.image.topics.by_name


@pytest.mark.parametrize("version", range(4))
def test_partitions_are_created_at_every_version(version: int) -> None:
    cluster = Cluster(broker_count=1)
    running = services(cluster)
    create(running, "a")

    results = grow(running, ("a", 3), ("nowhere", 2), version=version)

    assert (results["a"].error_code, results["nowhere"].error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert len(cluster.image.topics.by_name["a"].partitions) == 3


def test_growing_twice_in_one_request_or_without_the_right_is_refused() -> None:
    cluster = Cluster(broker_count=1)
    create(services(cluster), "a")

    twice = grow(services(cluster), ("a", 3), ("a", 4))
    denied = grow(services(cluster, authorizer=Deny((AclOperation.ALTER, "a"))), ("a", 3))
    tried = grow(services(cluster), ("a", 3), validate_only=True)

    assert (twice["a"].error_code, twice["a"].error_message) == (ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
    assert denied["a"].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert tried["a"].error_code == 0
    assert len(cluster.image.topics.by_name["a"].partitions) == 1
