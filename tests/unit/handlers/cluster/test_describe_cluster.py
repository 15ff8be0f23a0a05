"""DescribeCluster, DescribeTopicPartitions and the requests of brokers to their controller."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.cluster import describe_cluster
from kafkapy.handlers.controller import (
    allocate_producer_ids,
    broker_heartbeat,
    broker_registration,
    controller_registration,
)
from kafkapy.handlers.topics import describe_topic_partitions
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.controller_registration_request import ControllerRegistrationRequest
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_topic_partitions_request import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kafkapy.security.authorizer import AclOperation
from tests.support.controllers import CLUSTER_ID, Cluster, registration_request
from tests.support.metadata_services import Deny, context, on_wire, response_of, services


def describe(cluster: Cluster, version: int = 2, authorizer: Any = None, **fields: Any) -> Any:
    running = services(cluster, authorizer=authorizer)
    request = DescribeClusterRequest(**fields)
    return on_wire(response_of(describe_cluster.handle(running, context(version), request)), version)


@pytest.mark.parametrize("version", range(3))
def test_cluster_is_described_at_every_version(version: int) -> None:
    response = describe(Cluster(broker_count=2), version)

    assert response.cluster_id == CLUSTER_ID
    assert [(broker.broker_id, broker.host, broker.port) for broker in response.brokers] == [
        (1, "host1", 9092),
        (2, "host2", 9092),
    ]
    assert response.controller_id in (1, 2)
    assert response.cluster_authorized_operations == -(1 << 31)


def test_fenced_brokers_are_listed_when_requested() -> None:
    cluster = Cluster(broker_count=1)
    cluster.register(2)

    requested = describe(cluster, include_fenced_brokers=True)

    assert [broker.broker_id for broker in describe(cluster).brokers] == [1]
    assert [(broker.broker_id, broker.is_fenced) for broker in requested.brokers] == [(1, False), (2, True)]


@pytest.mark.parametrize(
    ("endpoint_type", "code"), [(2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)]
)
def test_broker_listener_lists_brokers_only(endpoint_type: int, code: ErrorCode) -> None:
    response = describe(Cluster(broker_count=1), 1, endpoint_type=endpoint_type)

    assert (response.error_code, response.brokers) == (code, [])


def test_cluster_operations_need_describe() -> None:
    cluster = Cluster(broker_count=1)
    denied = Deny((AclOperation.DESCRIBE, "kafka-cluster"))

    assert describe(cluster, include_cluster_authorized_operations=True).cluster_authorized_operations > 0
    refused = describe(cluster, authorizer=denied, include_cluster_authorized_operations=True)
    assert refused.cluster_authorized_operations == 0


def with_topics(**partition_counts: int) -> Cluster:
    cluster = Cluster(broker_count=1)
    topics = [
        CreatableTopic(name=name, num_partitions=count, replication_factor=1)
        for name, count in partition_counts.items()
    ]
    cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=topics)))
    return cluster


def page(
    cluster: Cluster, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None, authorizer: Any = None
) -> Any:
    request = DescribeTopicPartitionsRequest(
        topics=[TopicRequest(name=name) for name in names],
        response_partition_limit=limit,
        cursor=None if cursor is None else Cursor(topic_name=cursor[0], partition_index=cursor[1]),
    )
    running = services(cluster, authorizer=authorizer)
    return on_wire(response_of(describe_topic_partitions.handle(running, context(0), request)), 0)


def shape(response: Any) -> list[tuple[str, list[int]]]:
    return [(topic.name, [part.partition_index for part in topic.partitions]) for topic in response.topics]


def test_pages_follow_each_other_by_cursor_in_order_of_name() -> None:
    cluster = with_topics(b=3, a=2, c=1)

    first = page(cluster, limit=3)
    second = page(cluster, limit=3, cursor=(first.next_cursor.topic_name, first.next_cursor.partition_index))

    assert shape(first) == [("a", [0, 1]), ("b", [0])]
    assert (first.next_cursor.topic_name, first.next_cursor.partition_index) == ("b", 1)
    assert shape(second) == [("b", [1, 2]), ("c", [0])]
    assert second.next_cursor is None


def test_page_that_ends_with_a_topic_points_at_the_next() -> None:
    response = page(with_topics(a=2, b=1), limit=2)

    assert shape(response) == [("a", [0, 1])]
    assert (response.next_cursor.topic_name, response.next_cursor.partition_index) == ("b", 0)


def test_requested_topics_are_answered_with_their_errors() -> None:
    response = page(with_topics(a=1), "a", "nowhere", "b b")

    assert {topic.name: topic.error_code for topic in response.topics} == {
        "a": ErrorCode.NONE,
        "nowhere": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "b b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    known = next(topic for topic in response.topics if topic.name == "a")
    assert known.topic_authorized_operations > 0
    assert (known.partitions[0].leader_id, known.partitions[0].eligible_leader_replicas) == (1, [])


def test_bad_cursor_is_an_error_of_each_topic() -> None:
    cluster = with_topics(a=1)

    assert page(cluster, "a", cursor=("z", 0)).topics[0].error_code == ErrorCode.INVALID_REQUEST
    assert page(cluster, "a", cursor=("a", -1)).topics[0].error_code == ErrorCode.INVALID_REQUEST


def test_hidden_topics_are_left_out_of_all_and_refused_by_name() -> None:
    cluster = with_topics(a=1, secret=1)
    denied = Deny((AclOperation.DESCRIBE, "secret"))

    assert shape(page(cluster, authorizer=denied)) == [("a", [0])]
    (refused,) = page(cluster, "secret", authorizer=denied).topics
    assert (refused.error_code, refused.topic_id) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, bytes(16))


def test_broker_registers_and_beats_over_the_wire() -> None:
    cluster = Cluster()
    running = services(cluster)
    registered = on_wire(response_of(broker_registration.handle(running, context(4), registration_request(1))), 4)
    beat = BrokerHeartbeatRequest(
        broker_id=1,
        broker_epoch=registered.broker_epoch,
        current_metadata_offset=registered.broker_epoch,
        want_fence=False,
    )
    alive = on_wire(response_of(broker_heartbeat.handle(running, context(2), beat)), 2)
    stale = response_of(
        broker_heartbeat.handle(running, context(2), BrokerHeartbeatRequest(broker_id=1, broker_epoch=1))
    )
    ids = response_of(
        allocate_producer_ids.handle(
            running, context(0), AllocateProducerIdsRequest(broker_id=1, broker_epoch=registered.broker_epoch)
        )
    )

    assert (alive.error_code, alive.is_fenced, alive.is_caught_up) == (0, False, True)
    assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert (ids.producer_id_start, ids.producer_id_len) == (0, 1000)


def test_controller_registers() -> None:
    cluster = Cluster()
    request = ControllerRegistrationRequest(controller_id=7, incarnation_id=b"c" * 16)

    response_of(controller_registration.handle(services(cluster), context(0), request))

    assert cluster.image.cluster.controllers[7].incarnation_id == b"c" * 16


@pytest.mark.parametrize(
    ("handler", "request_"),
    [
        (broker_registration, registration_request(1)),
        (broker_heartbeat, BrokerHeartbeatRequest(broker_id=1)),
        (allocate_producer_ids, AllocateProducerIdsRequest(broker_id=1)),
        (controller_registration, ControllerRegistrationRequest(controller_id=1)),
    ],
)
def test_only_brokers_may_speak_as_brokers(handler: Any, request_: Any) -> None:
    running = services(Cluster(), authorizer=Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster")))
    denied = response_of(handler.handle(running, context(0), request_))
    running = services(Cluster())
    running.controller.error = ApiError(ErrorCode.NOT_CONTROLLER, "elsewhere")
    elsewhere = response_of(handler.handle(running, context(0), request_))

    assert denied.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert elsewhere.error_code == ErrorCode.NOT_CONTROLLER
