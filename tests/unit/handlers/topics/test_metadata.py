"""Metadata at every version: all or some topics, ids, auto-creation, listeners, leader epochs, authorization."""

from typing import Any

import pytest

from kafkapy.handlers.topics import metadata
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.broker_registration_request import Listener
from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.security.authorizer import AclOperation
from tests.support.controllers import CLUSTER_ID, Cluster
from tests.support.metadata_services import Deny, context, on_wire, response_of, services

NOT_ASKED = -(1 << 31)


def cluster_with(*names: str, broker_count: int = 1, replicas: list[int] | None = None) -> Cluster:
    cluster = Cluster(broker_count, features={"eligible.leader.replicas.version": 0})
    for name in names:
        assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=replicas or [1])
        topic = CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment])
        cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=[topic])))
    return cluster


def send_request(
    cluster: Cluster,
    topics: list[Any] | None,
    version: int = 13,
    *,
    listener: str = "PLAINTEXT",
    authorizer: Any = None,
    config: dict[str, str] | None = None,
    **fields: Any,
) -> Any:
    requested = None if topics is None else [_requested(topic) for topic in topics]
    request = MetadataRequest(topics=requested, **fields)
    running = services(cluster, authorizer=authorizer, **(config or {}))
    return on_wire(response_of(metadata.handle(running, context(version, listener), request)), version)


def _requested(topic: Any) -> MetadataRequestTopic:
    if isinstance(topic, bytes):
        return MetadataRequestTopic(topic_id=topic, name=None)
    return MetadataRequestTopic(name=topic)


def names_of(response: Any) -> list[str]:
    return sorted(topic.name for topic in response.topics)


def errors_of(response: Any) -> dict[str | None, ErrorCode]:
    return {topic.name: ErrorCode(topic.error_code) for topic in response.topics}


@pytest.mark.parametrize("version", range(14))
def test_every_version_returns_brokers_and_topics(version: int) -> None:
    response = send_request(cluster_with("a"), ["a"], version)

    (broker,) = response.brokers
    (topic,) = response.topics
    assert (broker.node_id, broker.host, broker.port) == (1, "host1", 9092)
    assert (topic.name, topic.error_code, topic.partitions[0].leader_id) == ("a", 0, 1)
    assert response.controller_id == (1 if version >= 1 else -1)
    assert response.cluster_id == (CLUSTER_ID if version >= 2 else None)
    assert topic.partitions[0].leader_epoch == (0 if version >= 7 else -1)


def test_no_topics_mean_all_in_version_0_and_none_from_version_1_on() -> None:
    cluster = cluster_with("a", "b")

    assert names_of(send_request(cluster, [], 0)) == ["a", "b"]
    assert names_of(send_request(cluster, [], 1)) == []
    assert names_of(send_request(cluster, None, 1)) == ["a", "b"]
    assert names_of(send_request(cluster, None, 13)) == ["a", "b"]


def test_topic_is_found_by_its_id_from_version_12_on() -> None:
    cluster = cluster_with("a")
    topic_id = cluster.image.topics.by_name["a"].topic_id

    known, unknown = send_request(cluster, [topic_id]), send_request(cluster, [b"?" * 16])

    assert (known.topics[0].name, known.topics[0].topic_id) == ("a", topic_id)
    assert (unknown.topics[0].error_code, unknown.topics[0].topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, b"?" * 16)
    assert unknown.topics[0].name is None


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_are_invalid_before_version_12(version: int) -> None:
    response = send_request(cluster_with("a"), [b"?" * 16], version)

    assert errors_of(response) == {"": ErrorCode.INVALID_REQUEST}


def test_missing_topic_is_created_and_answered_unknown_meanwhile() -> None:
    cluster = cluster_with()

    first, second = send_request(cluster, ["new"]), send_request(cluster, ["new"])

    assert errors_of(first) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert errors_of(second) == {"new": ErrorCode.NONE}


@pytest.mark.parametrize(
    ("fields", "config"),
    [({"allow_auto_topic_creation": False}, {}), ({}, {"auto_create_topics_enable": "false"})],
)
def test_topic_is_not_created_where_client_or_broker_do_not_want_it(
    fields: dict[str, Any], config: dict[str, str]
) -> None:
    cluster = cluster_with()

    response = send_request(cluster, ["new"], config=config, **fields)

    assert errors_of(response) == {"new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
    assert "new" not in cluster.image.topics.by_name


def test_invalid_name_is_never_created() -> None:
    assert errors_of(send_request(cluster_with(), ["a b"])) == {"a b": ErrorCode.INVALID_TOPIC_EXCEPTION}


def test_offsets_topic_is_created_with_its_own_configs() -> None:
    cluster = cluster_with()

    response = send_request(cluster, ["__consumer_offsets"], config={"offsets_topic_num_partitions": "7"})

    assert response.topics[0].is_internal
    assert errors_of(response) == {"__consumer_offsets": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


def test_requesting_all_topics_creates_nothing() -> None:
    cluster = cluster_with("a")

    send_request(cluster, None)

    assert list(cluster.image.topics.by_name) == ["a"]


def test_only_the_listener_of_the_request_is_returned() -> None:
    cluster = cluster_with("a")
    listeners = [
        Listener(name="PLAINTEXT", host="host1", port=9092),
        Listener(name="OUTSIDE", host="example.org", port=443),
    ]
    cluster.register(1, listeners=listeners)

    outside = send_request(cluster, ["a"], listener="OUTSIDE")
    nowhere = send_request(cluster, ["a"], listener="ELSEWHERE")

    assert [(broker.host, broker.port) for broker in outside.brokers] == [("example.org", 443)]
    assert nowhere.brokers == []
    assert nowhere.topics[0].partitions[0].error_code == ErrorCode.LISTENER_NOT_FOUND
    assert nowhere.topics[0].partitions[0].leader_id == -1
    before_6 = send_request(cluster, ["a"], 5, listener="ELSEWHERE")
    assert before_6.topics[0].partitions[0].error_code == ErrorCode.LEADER_NOT_AVAILABLE


def test_fenced_broker_is_not_listed_and_its_replicas_are_offline() -> None:
    cluster = cluster_with("a", broker_count=2, replicas=[2, 1])
    cluster.heartbeat(2, want_fence=True)

    response, version_0 = send_request(cluster, ["a"]), send_request(cluster, ["a"], 0)

    (partition,) = response.topics[0].partitions
    assert [broker.node_id for broker in response.brokers] == [1]
    assert (partition.leader_id, partition.leader_epoch) == (1, 1)
    assert (partition.replica_nodes, partition.isr_nodes, partition.offline_replicas) == ([2, 1], [1], [2])
    assert version_0.topics[0].partitions[0].error_code == ErrorCode.REPLICA_NOT_AVAILABLE
    assert version_0.topics[0].partitions[0].replica_nodes == [1]


def test_leaderless_partition_says_so() -> None:
    cluster = cluster_with("a", broker_count=2, replicas=[2])
    cluster.heartbeat(2, want_fence=True)

    (partition,) = send_request(cluster, ["a"]).topics[0].partitions

    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert partition.leader_epoch == 1


def test_operations_are_returned_only_when_requested() -> None:
    cluster = cluster_with("a")

    silent = send_request(cluster, ["a"], 10)
    requested = send_request(
        cluster, ["a"], 10, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )

    assert silent.topics[0].topic_authorized_operations == NOT_ASKED
    assert silent.cluster_authorized_operations == NOT_ASKED
    # READ 3, WRITE 4, CREATE 5, DELETE 6, ALTER 7, DESCRIBE 8, DESCRIBE_CONFIGS 10, ALTER_CONFIGS 11
    assert requested.topics[0].topic_authorized_operations == 0b1101_1111_1000
    assert requested.cluster_authorized_operations > 0


def test_topics_that_may_not_be_seen_are_hidden_or_refused_without_their_id() -> None:
    cluster = cluster_with("a", "secret")
    authorizer = Deny((AclOperation.DESCRIBE, "secret"))
    topic_id = cluster.image.topics.by_name["secret"].topic_id

    every = send_request(cluster, None, authorizer=authorizer)
    named = send_request(cluster, ["secret"], authorizer=authorizer)
    by_id = send_request(cluster, [topic_id], authorizer=authorizer)

    assert names_of(every) == ["a"]
    assert (named.topics[0].error_code, named.topics[0].topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, bytes(16))
    assert (by_id.topics[0].name, by_id.topics[0].topic_id) == (None, topic_id)


def test_creating_needs_authorization() -> None:
    cluster = cluster_with()

    response = send_request(cluster, ["new"], authorizer=Deny((AclOperation.CREATE, "")))

    assert errors_of(response) == {"new": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    assert "new" not in cluster.image.topics.by_name


# -- answers that are kept as bytes


def test_the_response_for_all_topics_is_made_once_for_all_requests() -> None:
    running = services(cluster_with("a", "b"))

    first, again = (response_of(metadata.handle(running, context(13), MetadataRequest(topics=None))) for _ in range(2))

    assert first is again
    assert names_of(on_wire(first, 13)) == ["a", "b"]


def test_a_cached_response_is_dropped_with_its_topics_and_brokers() -> None:
    cluster = cluster_with("a")
    running = services(cluster)

    def reported() -> Any:
        return on_wire(response_of(metadata.handle(running, context(13), MetadataRequest(topics=None))), 13)

    assert names_of(reported()) == ["a"]
    more = CreatableTopic(name="b", num_partitions=1, replication_factor=1)
    cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=[more])))
    assert names_of(reported()) == ["a", "b"]
    cluster.start_broker(2)
    assert [broker.node_id for broker in reported().brokers] == [1, 2]


def test_a_kept_response_is_not_for_who_may_not_see_all_of_it() -> None:
    running = services(cluster_with("open", "secret"))
    reported = response_of(metadata.handle(running, context(13), MetadataRequest(topics=None)))
    assert names_of(on_wire(reported, 13)) == ["open", "secret"]

    running.authorizer = Deny((AclOperation.DESCRIBE, "secret"))
    another = context(13)
    another.principal = "User:another"
    reported = response_of(metadata.handle(running, another, MetadataRequest(topics=None)))
    assert names_of(on_wire(reported, 13)) == ["open"]


def test_kept_responses_differ_by_version_and_listener() -> None:
    running = services(cluster_with("a"))

    def reported(version: int, listener_name: str) -> Any:
        return response_of(metadata.handle(running, context(version, listener_name), MetadataRequest(topics=None)))

    assert on_wire(reported(13, "PLAINTEXT"), 13).brokers
    assert on_wire(reported(7, "PLAINTEXT"), 7).brokers
    assert not on_wire(reported(13, "ELSEWHERE"), 13).brokers
