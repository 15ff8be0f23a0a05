"""What handlers ask the authorizer, how often, and what they tell of what is refused: as Apache Kafka's handlers do.

tests/golden/authorization.tsv has what the two brokers ask, API by API.
"""

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.context import CloseConnection
from kafkapy.handlers.data import offset_for_leader_epoch, produce
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.groups import find_coordinator
from kafkapy.handlers.legacy import produce as legacy_produce
from kafkapy.handlers.topics import create_topics, delete_topics, describe_topic_partitions, metadata
from kafkapy.handlers.transactions import init_producer_id
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.protocol.messages.legacy_produce_request import PartitionProduceData as LegacyData
from kafkapy.protocol.messages.legacy_produce_request import TopicProduceData as LegacyTopic
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.reactor.socket_channel import host_address
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.authorizer import AclOperation, AllowAll
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster
from tests.support.hosting import CountedTurns, Hosting, batch
from tests.support.metadata_services import Deny, context, on_wire, response_of, services, walking

CLUSTER = "kafka-cluster"
AUDITED = (True, True)
FILTER = (True, False)
"""log_if_allowed and log_if_denied of a question whose response of no refuses nothing by itself."""


def transactional() -> memoryview:
    return batch(b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)


def producer_context(version: int = 12) -> Any:
    return SimpleNamespace(
        api_version=version,
        listener_name="PLAINTEXT",
        client_id="tester",
        principal="User:ANONYMOUS",
        client_host="127.0.0.1",
        at_version=lambda other: producer_context(other),
        connection=SimpleNamespace(is_held=False),
        is_long=False,
    )


def topic_data(name: str, *batches: Any) -> TopicProduceData:
    return TopicProduceData(
        name,
        topic_id=bytes(16),
        partition_data=[PartitionProduceData(i, records=records) for i, records in enumerate(batches)],
    )


def send(hosting: Hosting, authorizer: Any, *topics: TopicProduceData, **fields: Any) -> list[list[int]]:
    """Return the error codes by topic."""
    request = ProduceRequest(**{"acks": 1, "timeout_ms": 1_000, **fields, "topic_data": list(topics)})
    response = response_of(produce.handle(hosting.services(authorizer), producer_context(), request))
    return [[part.error_code for part in topic.partition_responses] for topic in on_wire(response, 12).responses]


@pytest.mark.parametrize("topic", ["orders", "secret", "unknown"])
async def test_a_transactional_batch_is_authorized_for_its_id_before_anything_is_appended(
    loop: SimLoop, topic: str
) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic("orders")
    hosting.create_topic("secret")
    denied = Deny((AclOperation.WRITE, "t"), (AclOperation.WRITE, "secret"))
    codes = send(
        hosting,
        denied,
        topic_data("orders", batch(b"a")),
        topic_data(topic, transactional()),
        transactional_id="t",
    )
    assert codes == [[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]] * 2
    assert denied.questions == [("WRITE", "TRANSACTIONAL_ID", "t", 1, *AUDITED)]
    assert partition.log.log_end_offset == 0


async def test_a_transactional_batch_without_an_id_is_refused_without_authorization(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic("orders")
    authorizer = Deny()
    codes = send(hosting, authorizer, topic_data("orders", transactional()))
    assert codes == [[ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED]]
    assert not authorizer.questions
    with pytest.raises(CloseConnection):
        send(hosting, authorizer, topic_data("orders", transactional()), acks=0)


async def test_produce_authorizes_each_topic_once_with_the_number_of_its_partitions(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic("orders", partition_count=2)
    authorizer = Deny()
    send(hosting, authorizer, topic_data("orders", batch(b"a"), batch(b"b")), topic_data("unknown", batch(b"c")))
    assert authorizer.questions == [
        ("WRITE", "TOPIC", "orders", 2, *AUDITED),
        ("WRITE", "TOPIC", "unknown", 1, *AUDITED),
    ]


async def test_legacy_produce_converts_nothing_of_a_forbidden_topic(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic("secret")
    authorizer = Deny((AclOperation.WRITE, "secret"))
    data = [
        LegacyTopic(
            "secret", partition_data=[LegacyData(0, records=b"no message set at all"), LegacyData(1, records=None)]
        )
    ]
    request = LegacyProduceRequest(acks=1, timeout_ms=1_000, topic_data=data)
    response = response_of(legacy_produce.handle(hosting.services(authorizer), producer_context(2), request))
    codes = [part.error_code for part in response.responses[0].partition_responses]
    assert codes == [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2
    assert authorizer.questions == [("WRITE", "TOPIC", "secret", 2, *AUDITED)]


def init_producer_id_code(authorizer: Any) -> int:
    async def next_id() -> int:
        return 1

    running: Any = SimpleNamespace(authorizer=authorizer, producer_ids=SimpleNamespace(next_id=next_id))
    request = InitProducerIdRequest(transactional_id=None)
    code: int = response_of(init_producer_id.handle(running, context(5), request)).error_code
    return code


def test_an_idempotent_producer_needs_the_right_to_write_to_any_topic_only() -> None:
    may_write = Deny((AclOperation.IDEMPOTENT_WRITE, CLUSTER))
    assert init_producer_id_code(may_write) == 0
    assert may_write.questions == [("IDEMPOTENT_WRITE", "CLUSTER", CLUSTER, 1, *FILTER)]
    assert init_producer_id_code(Deny((AclOperation.WRITE, ""))) == 0
    nothing = Deny((AclOperation.WRITE, ""), (AclOperation.IDEMPOTENT_WRITE, CLUSTER))
    assert init_producer_id_code(nothing) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def coordinators(authorizer: Any, *keys: str, version: int = 6) -> list[int]:
    running: Any = SimpleNamespace(authorizer=authorizer, **walking())
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=list(keys))
    response = on_wire(response_of(find_coordinator.handle(running, context(version), request)), version)
    return [each.error_code for each in response.coordinators]


def test_the_coordinator_of_a_share_group_is_for_brokers_only() -> None:
    key = "group:with:colons:AAAAAAAAAAAAAAAAAAAAAQ:0"
    malformed = ("group", "g:no id:0", ":AAAAAAAAAAAAAAAAAAAAAQ:0", key + "x", key[:-1], key + "9" * 10)
    assert coordinators(Deny(), *malformed) == [ErrorCode.INVALID_REQUEST] * len(malformed)
    denied = Deny((AclOperation.CLUSTER_ACTION, CLUSTER))
    assert coordinators(denied, key, "group") == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED] * 2
    assert denied.questions == [("CLUSTER_ACTION", "CLUSTER", CLUSTER, 1, *AUDITED)]


def create(running: Any, *names: str) -> dict[str, Any]:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names]
    response = on_wire(response_of(create_topics.handle(running, context(7), CreateTopicsRequest(topics=topics))), 7)
    return {topic.name: topic for topic in response.topics}


def delete(running: Any, *topics: str | bytes) -> list[Any]:
    requested = [
        DeleteTopicState(topic_id=topic) if isinstance(topic, bytes) else DeleteTopicState(name=topic)
        for topic in topics
    ]
    results: list[Any] = response_of(
        delete_topics.handle(running, context(6), DeleteTopicsRequest(topics=requested))
    ).responses
    return results


def test_topics_are_created_after_three_questions() -> None:
    cluster = Cluster(broker_count=1)
    may_create_one = Deny(
        (AclOperation.CREATE, CLUSTER), (AclOperation.CREATE, "b"), (AclOperation.DESCRIBE_CONFIGS, "a")
    )

    results = create(services(cluster, authorizer=may_create_one), "a", "b", "__cluster_metadata")

    assert [results[name].error_code for name in ("a", "b")] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    assert sorted(may_create_one.questions) == [
        ("CREATE", "CLUSTER", CLUSTER, 1, *FILTER),
        ("CREATE", "TOPIC", "a", 1, *AUDITED),
        ("CREATE", "TOPIC", "b", 1, *AUDITED),
        ("DESCRIBE_CONFIGS", "TOPIC", "a", 1, *FILTER),
        ("DESCRIBE_CONFIGS", "TOPIC", "b", 1, *FILTER),
    ]


def test_deleting_topics_is_authorized_whether_they_exist_or_not() -> None:
    cluster = Cluster(broker_count=1)
    create(services(cluster), "a")
    authorizer = Deny((AclOperation.DELETE, CLUSTER))

    delete(services(cluster, authorizer=authorizer), "a", "nowhere")

    assert sorted(authorizer.questions) == [
        ("DELETE", "CLUSTER", CLUSTER, 1, *FILTER),
        ("DELETE", "TOPIC", "a", 1, *AUDITED),
        ("DELETE", "TOPIC", "nowhere", 1, *AUDITED),
        ("DESCRIBE", "TOPIC", "a", 1, *AUDITED),
        ("DESCRIBE", "TOPIC", "nowhere", 1, *AUDITED),
    ]


def test_positions_hold_nothing_of_topics_that_are_not_deleted() -> None:
    names = [f"t{number}" for number in range(50)]
    reported = [result.name for result in delete(services(Cluster(broker_count=1)), *names)]
    assert sorted(reported) == sorted(names)
    assert reported != names


def test_a_name_whose_id_is_requested_twice_is_refused() -> None:
    cluster = Cluster(broker_count=1)
    topic_id = create(services(cluster), "a")["a"].topic_id

    results = delete(services(cluster), topic_id, topic_id, "a")

    assert {result.error_code for result in results} == {ErrorCode.INVALID_REQUEST}
    assert "a" in cluster.image.topics.by_name


def request_metadata(authorizer: Any, names: list[str] | None, **fields: Any) -> Any:
    cluster = Cluster(broker_count=1)
    create(services(cluster), "a", "b")
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    request = MetadataRequest(topics=topics, **fields)
    running = services(cluster, authorizer=authorizer)
    return on_wire(response_of(metadata.handle(running, context(10), request)), 10)


def test_metadata_of_all_topics_leaves_no_trace_of_what_is_hidden() -> None:
    authorizer = Deny((AclOperation.DESCRIBE, "b"))
    assert [topic.name for topic in request_metadata(authorizer, None).topics] == ["a"]
    assert authorizer.questions == [("DESCRIBE", "TOPIC", "a", 1, *FILTER), ("DESCRIBE", "TOPIC", "b", 1, *FILTER)]


@pytest.mark.parametrize("handler", [metadata, describe_topic_partitions])
async def test_very_many_topics_are_authorized_in_turns(loop: SimLoop, handler: Any) -> None:
    cluster = Cluster(broker_count=1)
    create(services(cluster), *(f"t{number}" for number in range(2_500)))
    request: Any = MetadataRequest(topics=None) if handler is metadata else DescribeTopicPartitionsRequest()
    requester = context(13 if handler is metadata else 0)
    requester.client = None
    requester.connection = SimpleNamespace(is_held=False)

    authorizer = Deny((AclOperation.DESCRIBE, "t7"))
    task = loop.create_task(handler.handle(services(cluster, authorizer=authorizer), requester, request))
    turns = 0
    while not task.done():
        before = len(authorizer.questions)
        await asyncio.sleep(0.001)
        assert len(authorizer.questions) - before <= 9 * STEPS_PER_TURN, "one and eight operations of a topic"
        turns += 1
    assert turns > 2
    assert "t7" not in {topic.name for topic in on_wire(task.result(), requester.api_version).topics}


async def test_very_many_names_are_sorted_and_refused_in_turns(loop: SimLoop) -> None:
    """Each step of it: the order, the merge, the rights, the page, the denied."""
    names = [f"t{number}" for number in reversed(range(5 * STEPS_PER_TURN))] * 2
    running = services(Cluster(broker_count=1), authorizer=Deny((AclOperation.DESCRIBE, "")))
    running.turns = turns = CountedTurns()
    requester = context(0)
    requester.client = None
    requester.connection = SimpleNamespace(is_held=False)
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name) for name in names])
    response = await describe_topic_partitions.handle(running, requester, request)
    assert [topic.name for topic in response.topics] == sorted(set(names))
    assert turns.count >= (2 * len(names) + 2 * len(set(names))) // STEPS_PER_TURN - 2


def test_the_right_to_create_is_checked_for_the_cluster_once() -> None:
    authorizer = Deny((AclOperation.CREATE, CLUSTER), (AclOperation.CREATE, "y"))
    response = request_metadata(authorizer, ["x", "y"], include_topic_authorized_operations=True)
    operations = {topic.name: topic.topic_authorized_operations for topic in response.topics}
    assert operations["x"] > 0
    assert operations["y"] == -(2**31), "a topic refused for CREATE tells no operations"
    assert [question for question in authorizer.questions if question[0] == "CREATE" and question[4]] == [
        ("CREATE", "CLUSTER", CLUSTER, 1, *FILTER),
        ("CREATE", "TOPIC", "x", 1, *AUDITED),
        ("CREATE", "TOPIC", "y", 1, *AUDITED),
    ]


def test_authorized_operations_are_never_logged_as_access() -> None:
    authorizer = Deny()
    request_metadata(authorizer, ["a"], include_topic_authorized_operations=True)
    assert {question[4:] for question in authorizer.questions[1:]} == {(False, False)}


def test_nobody_learns_that_a_forbidden_topic_is_internal() -> None:
    denied = Deny((AclOperation.DESCRIBE, "__consumer_offsets"))
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="__consumer_offsets")])
    running = services(Cluster(broker_count=1), authorizer=denied)
    (topic,) = on_wire(response_of(describe_topic_partitions.handle(running, context(0), request)), 0).topics
    assert (topic.error_code, topic.is_internal) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)


def test_of_allowed_topics_the_internal_ones_are_called_so() -> None:
    cluster = Cluster(broker_count=1)
    create(services(cluster), "a", "__consumer_offsets")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="__consumer_offsets"), TopicRequest(name="a")])
    found = on_wire(response_of(describe_topic_partitions.handle(services(cluster), context(0), request)), 0).topics
    assert {topic.name: topic.is_internal for topic in found} == {"__consumer_offsets": True, "a": False}


async def test_brokers_may_request_leader_epochs_and_others_are_not_logged_for_not_being_one(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic("orders")
    authorizer = Deny((AclOperation.CLUSTER_ACTION, CLUSTER))
    topics = [OffsetForLeaderTopic("orders", partitions=[OffsetForLeaderPartition(partition=0)])]
    request = OffsetForLeaderEpochRequest(topics=topics)
    response_of(offset_for_leader_epoch.handle(hosting.services(authorizer), producer_context(4), request))
    assert authorizer.questions == [
        ("CLUSTER_ACTION", "CLUSTER", CLUSTER, 1, *FILTER),
        ("DESCRIBE", "TOPIC", "orders", 1, *AUDITED),
    ]


def test_without_an_authorizer_nothing_is_counted_or_authorized() -> None:
    def names() -> Any:
        raise AssertionError("the names are read")
        yield

    running: Any = SimpleNamespace(authorizer=AllowAll())
    assert TopicAccess(running, context(0), AclOperation.READ, names()).allows("any")


@pytest.mark.parametrize(
    ("host", "printed"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_addresses_are_printed_as_java_prints_them(host: str, printed: str) -> None:
    assert host_address(host) == printed
