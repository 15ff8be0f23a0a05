"""CreateTopics, DeleteTopics and CreatePartitions as the controller decides them, with Kafka's codes and messages."""

from dataclasses import replace
from typing import Any, NoReturn

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.image import TopicsImage
from kafkapy.metadata.persistent import PersistentMap
from kafkapy.metadata.topics import PARTITIONS_PER_STEP, TOPICS_PER_STEP
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkapy.protocol.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.support.controllers import Cluster, directory_id, end_of, new_controller


def create(cluster: Cluster, *topics: CreatableTopic, validate_only: bool = False) -> list[Any]:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    results: list[Any] = cluster.commit(cluster.controller.topics.decide_create(request, lambda name: True)).topics
    return results


def plain(name: str, partitions: int = 1, factor: int = 1, **configs: str | None) -> CreatableTopic:
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
    )


def assigned(name: str, *replicas: list[int], first: int = 0, **fields: int) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(replicas, first)
    ]
    return CreatableTopic(
        name=name,
        assignments=assignments,
        **{"num_partitions": -1, "replication_factor": -1, **fields},  # type: ignore[arg-type]
    )


def grow(cluster: Cluster, name: str, count: int, *replicas: list[int]) -> Any:
    assignments = [CreatePartitionsAssignment(broker_ids=brokers) for brokers in replicas] or None
    topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
    decision = cluster.controller.topics.decide_create_partitions(CreatePartitionsRequest(topics=[topic]))
    return cluster.commit(decision).results[0]


def test_topic_comes_with_its_partitions_leaders_and_directories() -> None:
    cluster = Cluster(broker_count=3)

    (result,) = create(cluster, plain("orders", 6, 3))

    topic = cluster.image.topics.by_name["orders"]
    assert (result.error_code, result.num_partitions, result.replication_factor) == (0, 6, 3)
    assert result.topic_id == topic.topic_id
    for partition in topic.partitions.values():
        assert sorted(partition.replicas) == [1, 2, 3]
        assert partition.leader == partition.replicas[0]
        assert partition.isr == partition.replicas
        assert partition.directories == tuple(directory_id(replica) for replica in partition.replicas)
        assert (partition.leader_epoch, partition.partition_epoch) == (0, 0)
    assert sorted(partition.leader for partition in topic.partitions.values()) == [1, 1, 2, 2, 3, 3]


def test_records_are_in_kafkas_order_topic_configs_partitions() -> None:
    cluster = Cluster(broker_count=1)

    create(cluster, plain("orders", 2, 1, retention_ms="5"))

    names = [type(record).__name__ for record in cluster.log[-4:]]
    assert names == ["TopicRecord", "ConfigRecord", "PartitionRecord", "PartitionRecord"]


def test_minus_one_takes_the_brokers_defaults() -> None:
    cluster = Cluster(broker_count=1)

    (result,) = create(cluster, plain("orders", -1, -1))

    assert (result.num_partitions, result.replication_factor) == (1, 1)


def test_configs_are_answered_with_their_source() -> None:
    cluster = Cluster(broker_count=1)

    (result,) = create(cluster, plain("orders", retention_ms="5"))

    answered = {config.name: (config.value, config.config_source) for config in result.configs}
    assert answered["retention.ms"] == ("5", 1)
    assert answered["cleanup.policy"] == ("delete", 5)
    assert [config.name for config in result.configs] == sorted(answered)


def test_validate_only_answers_and_writes_nothing() -> None:
    cluster = Cluster(broker_count=1)

    (result,) = create(cluster, plain("orders"), validate_only=True)

    assert result.error_code == 0
    assert "orders" not in cluster.image.topics.by_name


@pytest.mark.parametrize(
    ("topic", "code", "message"),
    [
        (plain(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (plain(".."), 17, "Topic name is invalid: '..' is not allowed"),
        (plain("a b"), 17, "'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"),
        (plain("x" * 250), 17, "is longer than the max allowed length 249"),
        (plain("there"), 36, "Topic 'there' already exists."),
        (plain("a_b"), 17, "Topic 'a_b' collides with existing topic: a.b"),
        (plain("n", 0), 37, "Number of partitions was set to an invalid non-positive value."),
        (plain("n", 1, 0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (
            plain("n", 1, 3),
            38,
            "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached because "
            "only 2 broker(s) are registered",
        ),
        (plain("n", no_such_key="1"), 40, "Unknown topic config name: no.such.key"),
        (plain("n", retention_ms=None), 40, "Null value not supported for topic configs: retention.ms"),
        (assigned("n", [1], num_partitions=1), 42, "numPartitions was not set to -1"),
        (assigned("n", [1], replication_factor=1), 42, "replication factor was not set to -1"),
        (assigned("n", [1, 1]), 39, "includes the broker 1 more than once"),
        (assigned("n", [9]), 39, "includes broker 9, but no such broker is registered"),
        (assigned("n", []), 39, "includes an empty replica list"),
        (assigned("n", [1], [1, 2]), 39, "not consistent with previous partitions, which have 1 replica(s)"),
        (assigned("n", [1], first=1), 39, "partitions should be a consecutive 0-based integer sequence"),
    ],
)
def test_refusals_carry_kafkas_code_and_message(topic: CreatableTopic, code: int, message: str) -> None:
    cluster = Cluster(broker_count=2)
    create(cluster, plain("there"), plain("a.b"))
    end = cluster.controller.next_offset

    (result,) = create(cluster, topic)

    assert result.error_code == code
    assert message in (result.error_message or "")
    assert cluster.controller.next_offset == end


def test_fenced_brokers_lead_nothing_but_may_hold_replicas() -> None:
    cluster = Cluster(broker_count=1)
    cluster.register(2)

    (result,) = create(cluster, plain("orders", 1, 2))
    (alone,) = create(cluster, assigned("other", [2]))

    partition = cluster.image.topics.by_name["orders"].partitions[0]
    assert result.error_code == 0
    assert (partition.leader, partition.isr, set(partition.replicas)) == (1, (1,), {1, 2})
    assert alone.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert "are fenced or in controlled shutdown" in alone.error_message


def test_no_broker_up_means_no_topic() -> None:
    cluster = Cluster()
    cluster.register(1)

    (result,) = create(cluster, plain("orders"))

    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "All brokers are currently fenced" in result.error_message


def test_too_many_partitions_are_refused_as_a_whole() -> None:
    cluster = Cluster(broker_count=1)

    with pytest.raises(ApiError) as refusal:
        create(cluster, plain("a", 6000), plain("b", 4001))

    assert refusal.value.code == ErrorCode.POLICY_VIOLATION


def test_deleted_topic_is_gone_with_its_configs_and_its_name_is_free() -> None:
    cluster = Cluster(broker_count=1)
    (created,) = create(cluster, plain("a.b", retention_ms="5"))

    results = cluster.commit(cluster.controller.topics.decide_delete([created.topic_id, bytes(16)]))

    assert results[created.topic_id] is None
    assert results[bytes(16)].code == ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.controller.configs.topic_config("a.b", "retention.ms") == "604800000"
    (again,) = create(cluster, plain("a_b"))
    assert again.error_code == 0


def test_partitions_are_added_after_those_there_are() -> None:
    cluster = Cluster(broker_count=2)
    create(cluster, plain("orders", 1, 2))

    placed = grow(cluster, "orders", 3)
    assigned_by_hand = grow(cluster, "orders", 4, [2, 1])

    partitions = cluster.image.topics.by_name["orders"].partitions
    assert (placed.error_code, assigned_by_hand.error_code) == (0, 0)
    assert sorted(partitions) == [0, 1, 2, 3]
    assert partitions[3].replicas == (2, 1)


@pytest.mark.parametrize(
    ("name", "count", "replicas", "code", "message"),
    [
        ("nowhere", 2, [], 3, None),
        ("orders", 2, [], 37, "Topic already has 2 partition(s)."),
        ("orders", 1, [], 37, "currently has 2 partition(s); 1 would not be an increase."),
        (
            "orders",
            4,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        ("orders", 3, [[1, 2]], 39, "not consistent with previous partitions"),
    ],
)
def test_growing_is_refused_with_kafkas_code_and_message(
    name: str, count: int, replicas: list[list[int]], code: int, message: str | None
) -> None:
    cluster = Cluster(broker_count=2)
    create(cluster, plain("orders", 2, 1))

    result = grow(cluster, name, count, *replicas)

    assert result.error_code == code
    assert result.error_message is None if message is None else message in result.error_message


class Unread(dict[int, Any]):
    """The partitions of a topic, which nobody may look at."""

    def _refuse(self, *_: object) -> Any:
        raise AssertionError("a partition is read")

    __iter__ = __len__ = __contains__ = __getitem__ = get = keys = values = items = copy = _refuse  # type: ignore[assignment]


def test_a_new_controller_reads_no_partition_before_its_first_decision() -> None:
    """So its first write does not wait for them: with 100,000 partitions (benchmarks/turns.py) 100 ms are the bar."""
    cluster = Cluster(3)
    create(cluster, *(plain(f"topic-{number}", 10, 3) for number in range(TOPICS_PER_STEP + 1)))
    topics = [replace(topic, partitions=Unread(topic.partitions)) for topic in cluster.image.topics.by_name.values()]
    image = replace(
        cluster.image,
        topics=TopicsImage(
            PersistentMap({topic.name: topic for topic in topics}),
            PersistentMap({topic.topic_id: topic for topic in topics}),
        ),
    )
    controller = new_controller()
    assert len(list(controller.load_topics(image))) == 1, "in steps"
    controller.load_rest(image, next_offset=cluster.controller.next_offset, now_ms=cluster.now_ms)
    created = end_of(controller.topics.decide_create(CreateTopicsRequest(topics=[plain("first", 1, 3)])))
    (result,) = created.response.topics
    assert result.error_code == ErrorCode.NONE
    growing = CreatePartitionsRequest(topics=[CreatePartitionsTopic("topic-1", count=11)])
    with pytest.raises(AssertionError, match="a partition is read"):
        end_of(controller.topics.decide_create_partitions(growing))


def test_configs_that_no_response_can_hold_are_not_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(broker_count=1)
    topics = cluster.controller.topics

    def described(*_arguments: object) -> NoReturn:
        raise AssertionError("computed")

    monkeypatch.setattr(topics._configs, "effective_topic_configs", described)
    request = CreateTopicsRequest(topics=[plain("orders")])
    (result,) = cluster.commit(topics.decide_create(request)).topics
    assert (result.error_code, result.configs) == (ErrorCode.NONE, [])
    with pytest.raises(AssertionError, match="computed"):
        end_of(topics.decide_create(CreateTopicsRequest(topics=[plain("trades")]), lambda name: True))


def test_the_partitions_of_a_large_topic_are_decided_in_steps() -> None:
    cluster = Cluster(broker_count=3)
    topics, count = cluster.controller.topics, 3 * PARTITIONS_PER_STEP
    creating = CreateTopicsRequest(topics=[plain("large", count, 3)])
    assert list(topics.decide_create(creating)) == [[]] * (3 + 1)
    assert not topics.by_name, "nothing is there before the decision is replayed"
    (result,) = cluster.commit(topics.decide_create(creating)).topics
    assert result.error_code == ErrorCode.NONE
    assert len(cluster.image.topics.by_name["large"].partitions) == count
    growing = CreatePartitionsRequest(topics=[CreatePartitionsTopic("large", count=2 * count, assignments=None)])
    assert list(topics.decide_create_partitions(growing)) == [[]] * (3 + 1)
    (grown,) = cluster.commit(topics.decide_create_partitions(growing)).results
    assert grown.error_code == ErrorCode.NONE
    assert len(cluster.image.topics.by_name["large"].partitions) == 2 * count
