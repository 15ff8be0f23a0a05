"""ISR and eligible leader replicas (KIP-966) as brokers come and go: cases of ReplicationControlManagerTest.

tests/kafka_cases.tsv says which case is held by which test.
"""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.machine import Decision
from kafkapy.metadata.configs import ConfigOperation, ConfigOperationType
from kafkapy.metadata.image import RESOURCE_BROKER, RESOURCE_TOPIC, ConfigResource
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import alter_partition_request as alter_request
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_change_record import BrokerRegistrationChangeRecord
from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.create_partitions_request import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from tests.support.controllers import Cluster, end_of, new_controller
from tests.support.placed_topics import NO_ELR, alter_isr, brokers, fence, partition, place, reassign

UNCLEAN = "unclean.leader.election.enable"


def isr_and_elr(cluster: Cluster, name: str = "foo") -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    found = partition(cluster, name)
    return found.isr, found.elr, found.last_known_elr


def shut_down(cluster: Cluster, broker_id: int) -> None:
    """Stop a broker in an orderly way."""
    response = cluster.heartbeat(broker_id, want_shut_down=True)
    if not response.should_shut_down:
        for other in cluster.epochs:
            if other != broker_id and not cluster.image.cluster.brokers[other].fenced:
                cluster.heartbeat(other)
        response = cluster.heartbeat(broker_id, want_shut_down=True)
    assert response.should_shut_down


# What new partitions begin with


def test_new_partitions_have_no_one_in_the_isr_that_is_fenced_or_shutting_down() -> None:
    cluster = brokers(1, 2, features=NO_ELR)
    cluster.register(3)
    shutdown = BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=cluster.epochs[2], in_controlled_shutdown=1)
    cluster.commit(Decision(None, [shutdown]))
    topic = CreatableTopic(name="foo", num_partitions=1, replication_factor=3)
    created = cluster.commit(cluster.controller.topics.decide_create(CreateTopicsRequest(topics=[topic])))
    assert created.topics[0].error_code == 0
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="foo", count=2, assignments=None)])
    assert cluster.commit(cluster.controller.topics.decide_create_partitions(grown)).results[0].error_code == 0
    for partition_id in (0, 1):
        found = partition(cluster, "foo", partition_id)
        assert sorted(found.replicas) == [1, 2, 3]
        assert (found.isr, found.leader, found.leader_recovery_state) == ((1,), 1, 0)
        assert (found.leader_epoch, found.partition_epoch) == (0, 0)


def test_a_topic_does_not_grow_without_a_broker_that_is_up() -> None:
    cluster = brokers(1, 2, features=NO_ELR)
    place(cluster, "foo", [1, 2])
    for broker_id in (1, 2):
        fence(cluster, broker_id)
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="foo", count=2, assignments=None)])
    result = cluster.commit(cluster.controller.topics.decide_create_partitions(grown)).results[0]
    assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert len(cluster.image.topics.by_name["foo"].partitions) == 1


def test_a_topic_does_not_grow_onto_fenced_brokers() -> None:
    cluster = brokers(1, 2, features=NO_ELR)
    place(cluster, "foo", [1])
    fence(cluster, 2)
    assignments = [CreatePartitionsAssignment(broker_ids=[2])]
    grown = CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="foo", count=2, assignments=assignments)])
    result = cluster.commit(cluster.controller.topics.decide_create_partitions(grown)).results[0]
    assert result.error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# Brokers that are fenced


def test_a_fenced_broker_leaves_every_isr_and_leads_nothing() -> None:
    cluster = brokers(1, 2, 3, 4, features=NO_ELR)
    place(cluster, "foo", [1, 2, 3], [2, 3, 4], [3, 4, 1], [1, 3, 2])
    fence(cluster, 1)
    assert not cluster.controller.partitions.has_leaderships(1)
    for partition_id in range(4):
        assert 1 not in partition(cluster, "foo", partition_id).isr


def test_several_fenced_brokers_leave_what_is_left() -> None:
    cluster = brokers(1, 2, 3, 4, 5, features=NO_ELR)
    place(cluster, "foo", [2, 3, 4], [3, 4, 5], [1, 3, 2])
    cluster.now_ms += 9001
    for broker_id in (1, 2, 5):
        cluster.heartbeat(broker_id)
    while cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms)):
        pass
    found = [partition(cluster, "foo", partition_id) for partition_id in range(3)]
    assert [set(each.isr) for each in found] == [{2}, {5}, {1, 2}]
    assert [each.leader for each in found] == [2, 5, 1]


# Eligible leader replicas


def test_who_leaves_an_isr_below_min_isr_stays_eligible_until_enough_are_back() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3], min_insync_replicas="2")
    assert alter_isr(cluster, "foo", [1]).error_code == 0
    assert isr_and_elr(cluster) == ((1,), (2, 3), ())
    assert alter_isr(cluster, "foo", [1, 2]).error_code == 0
    assert isr_and_elr(cluster) == ((1, 2), (), ())


def test_an_isr_becomes_empty_and_its_last_leader_is_known() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3], min_insync_replicas="3")
    fence(cluster, 2)
    fence(cluster, 3)
    assert isr_and_elr(cluster) == ((1,), (2, 3), ())
    shut_down(cluster, 1)
    fence(cluster, 1)
    assert isr_and_elr(cluster) == ((), (1, 2, 3), (1,))
    assert partition(cluster, "foo").leader == NO_LEADER


def test_fenced_brokers_are_eligible_where_the_isr_is_below_min_isr_only() -> None:
    cluster = brokers(1, 2, 3, 4)
    place(cluster, "foo", [1, 2, 3, 4], min_insync_replicas="3")
    fence(cluster, 3)
    assert isr_and_elr(cluster) == ((1, 2, 4), (), ())
    fence(cluster, 4)
    assert isr_and_elr(cluster) == ((1, 2), (4,), ())
    fence(cluster, 2)
    assert isr_and_elr(cluster) == ((1,), (2, 4), ())
    for broker_id in (2, 3, 4):
        cluster.heartbeat(broker_id)
    assert isr_and_elr(cluster) == ((1,), (2, 4), ()), "to be up is not to be in sync"


def test_an_eligible_replica_is_elected_cleanly() -> None:
    cluster = brokers(1, 2, 3, 4)
    place(cluster, "foo", [1, 2, 3, 4], min_insync_replicas="3")
    for broker_id in (2, 3, 4):
        fence(cluster, broker_id)
    assert isr_and_elr(cluster) == ((1,), (3, 4), ())
    cluster.heartbeat(3)
    fence(cluster, 1)
    assert isr_and_elr(cluster) == ((3,), (1, 4), ())
    assert (partition(cluster, "foo").leader, partition(cluster, "foo").leader_recovery_state) == (3, 0)


def test_an_eligible_replica_does_not_lead_while_the_isr_has_members() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3], min_insync_replicas="3")
    fence(cluster, 1)
    cluster.heartbeat(1)
    assert (isr_and_elr(cluster), partition(cluster, "foo").leader) == (((2, 3), (1,), ()), 2)
    fence(cluster, 2)
    assert (isr_and_elr(cluster), partition(cluster, "foo").leader) == (((3,), (1, 2), ()), 3)


def test_who_may_have_lost_records_is_eligible_no_more_and_the_last_leader_is_known() -> None:
    cluster = brokers(1, 2, 3, 4)
    place(cluster, "foo", [1, 2, 3, 4], min_insync_replicas="3")
    for broker_id in (2, 3, 4):
        fence(cluster, broker_id)
    cluster.now_ms += 9001
    cluster.register(4, incarnation=2)
    assert isr_and_elr(cluster) == ((1,), (3,), ())
    cluster.register(1, incarnation=2)
    assert isr_and_elr(cluster) == ((), (3,), (1,))


def test_min_isr_counts_up_to_the_number_of_replicas() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3], min_insync_replicas="5")
    assert alter_isr(cluster, "foo", [1, 2]).error_code == 0
    assert isr_and_elr(cluster) == ((1, 2), (3,), ())
    assert alter_isr(cluster, "foo", [1, 2, 3]).error_code == 0
    assert isr_and_elr(cluster) == ((1, 2, 3), (), ())


def test_a_deleted_topic_has_nobody_eligible() -> None:
    cluster = brokers(1, 2, 3)
    topic_id = place(cluster, "foo", [1, 2, 3], min_insync_replicas="2")
    assert alter_isr(cluster, "foo", [1]).error_code == 0
    cluster.commit(cluster.controller.topics.decide_delete([topic_id]))
    before = len(cluster.log)
    cluster.now_ms += 9001
    cluster.register(2, incarnation=2, previous_broker_epoch=-1)
    names = [type(record).__name__ for record in cluster.log[before:]]
    assert names == ["RegisterBrokerRecord"]


def set_min_isr(cluster: Cluster, resource: ConfigResource, value: str) -> None:
    changes = {resource: [ConfigOperation("min.insync.replicas", ConfigOperationType.SET, value)]}
    assert cluster.commit(cluster.controller.configs.decide_incremental_alter(changes)) == {resource: None}


@pytest.mark.parametrize(
    ("resource", "bar"), [(ConfigResource(RESOURCE_BROKER, ""), ()), (ConfigResource(RESOURCE_TOPIC, "foo"), (1,))]
)
def test_another_min_isr_ends_what_it_made_eligible(resource: ConfigResource, bar: tuple[int, ...]) -> None:
    cluster = brokers(1, 2, 3, 4)
    set_min_isr(cluster, ConfigResource(RESOURCE_BROKER, ""), "2")
    for topic in ("foo", "bar"):
        place(cluster, topic, [1, 2, 4], [1, 3, 4])
    fence(cluster, 4)
    fence(cluster, 1)
    assert [partition(cluster, topic).elr for topic in ("foo", "bar")] == [(1,), (1,)]
    set_min_isr(cluster, resource, "1")
    assert [partition(cluster, topic).elr for topic in ("foo", "bar")] == [(), bar]


def test_where_nobody_is_eligible_nothing_changes() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3], min_insync_replicas="2")
    before = partition(cluster, "foo")
    cluster.commit(Decision(None, [ClearElrRecord()]))
    assert partition(cluster, "foo") == before


# What leaders ask for


def asked(
    cluster: Cluster, isr: list[int], topic_id: bytes | None = None, broker_id: int | None = None, **changes: int
) -> Any:
    """Return the error with which another ISR is answered to the leader, or to `broker_id`."""
    current = partition(cluster, "foo")
    sender = current.leader if broker_id is None else broker_id
    fields = {"leader_epoch": current.leader_epoch, "partition_epoch": current.partition_epoch, "partition_index": 0}
    wanted = alter_request.PartitionData(
        new_isr_with_epochs=[
            alter_request.BrokerState(broker_id=each, broker_epoch=cluster.epochs.get(each, -1)) for each in isr
        ],
        **(fields | changes),
    )
    topics = [alter_request.TopicData(topic_id or cluster.image.topics.by_name["foo"].topic_id, partitions=[wanted])]
    request = alter_request.AlterPartitionRequest(broker_id=sender, broker_epoch=cluster.epochs[sender], topics=topics)
    response = cluster.commit(cluster.controller.partitions.decide_alter_partition(request, 3))
    return response.topics[0].partitions[0].error_code


@pytest.mark.parametrize(
    ("isr", "changes", "code"),
    [
        ([1, 2], {"topic_id": b"another topic id"}, ErrorCode.UNKNOWN_TOPIC_ID),
        ([1, 2], {"partition_index": 9}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ([1, 2], {"leader_epoch": 500}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"partition_epoch": 500}, ErrorCode.NOT_CONTROLLER),
        ([1, 2], {"leader_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"leader_epoch": -1, "partition_epoch": -1}, ErrorCode.FENCED_LEADER_EPOCH),
        ([1, 2], {"partition_epoch": -1}, ErrorCode.INVALID_UPDATE_VERSION),
        ([1, 2], {"broker_id": 2}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"broker_id": 2, "partition_epoch": -1}, ErrorCode.INVALID_REQUEST),
        ([], {}, ErrorCode.INVALID_REQUEST),
        ([1, 1], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2, 9], {}, ErrorCode.INVALID_REQUEST),
        ([2, 3], {}, ErrorCode.INVALID_REQUEST),
        ([1, 2], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
        ([1], {"leader_recovery_state": 1}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_an_isr_that_cannot_be_is_refused(isr: list[int], changes: Any, code: ErrorCode) -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3])
    before = partition(cluster, "foo")
    assert asked(cluster, isr, **changes) == code
    assert partition(cluster, "foo") == before


@pytest.mark.parametrize("reason", ["fenced", "stale", "shutting down"])
def test_who_is_fenced_or_another_incarnation_or_shutting_down_does_not_join(reason: str) -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3])
    place(cluster, "bar", [2, 3])  # led by 2, so that its shutdown is not over at once
    assert alter_isr(cluster, "foo", [1, 3]).error_code == 0
    if reason == "fenced":
        fence(cluster, 2)
    elif reason == "stale":
        cluster.epochs[2] -= 1
    else:
        assert not cluster.heartbeat(2, want_shut_down=True).should_shut_down
    assert asked(cluster, [1, 2, 3]) == ErrorCode.INELIGIBLE_REPLICA
    assert partition(cluster, "foo").isr == (1, 3)


def test_an_earlier_incarnation_of_the_leader_changes_no_isr() -> None:
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2, 3])
    cluster.epochs[1] -= 1
    with pytest.raises(ApiError) as caught:
        asked(cluster, [1, 2])
    assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
    assert partition(cluster, "foo").isr == (1, 2, 3)


def test_second_mention_of_a_partition_in_a_request_is_refused() -> None:
    """The first one ends a reassignment; the second would put broker 1, which is no replica any more, into the ISR."""
    cluster = brokers(1, 2, 3)
    place(cluster, "foo", [1, 2])
    reassign(cluster, {"foo": {0: [2, 3]}})
    current = partition(cluster, "foo")
    mentions = [
        alter_request.PartitionData(
            leader_epoch=current.leader_epoch,
            partition_epoch=current.partition_epoch,
            new_isr_with_epochs=[
                alter_request.BrokerState(broker_id=each, broker_epoch=cluster.epochs[each]) for each in isr
            ],
        )
        for isr in ([1, 2, 3], [2, 1])
    ]
    topics = [alter_request.TopicData(cluster.image.topics.by_name["foo"].topic_id, partitions=mentions)]
    request = alter_request.AlterPartitionRequest(broker_id=1, broker_epoch=cluster.epochs[1], topics=topics)

    response = cluster.commit(cluster.controller.partitions.decide_alter_partition(request, 3))

    codes = [each.error_code for each in response.topics[0].partitions]
    assert codes == [ErrorCode.NEW_LEADER_ELECTED, ErrorCode.INVALID_REQUEST]
    assert set(partition(cluster, "foo").isr) <= set(partition(cluster, "foo").replicas) == {2, 3}


# A broker that comes back


@pytest.mark.parametrize(("partition_count", "is_one_batch"), [(9_999, True), (10_000, False)])
def test_a_broker_is_unfenced_and_elected_in_one_batch(partition_count: int, is_one_batch: bool) -> None:
    """A controller that dies between the two leaves partitions that the next one elects no leader for."""
    cluster = brokers(1)
    place(cluster, "foo", *([1] for _ in range(5_000)))
    place(cluster, "bar", *([1] for _ in range(partition_count - 5_000)))
    fence(cluster, 1)
    assert partition(cluster, "foo").leader == NO_LEADER
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=cluster.epochs[1], current_metadata_offset=cluster.controller.next_offset - 1
    )

    decision = end_of(cluster.controller.decide_heartbeat(request, cluster.now_ms))  # its steps have no records

    assert len(decision.records) == 1 + partition_count
    assert decision.is_atomic == is_one_batch


@pytest.mark.parametrize("features", [NO_ELR, {}])
def test_a_new_controller_elects_a_broker_that_the_former_one_has_fenced_in_part(features: dict[str, int]) -> None:
    """It stopped after the batches of the partitions, before that of the broker, which is back and was never fenced."""
    cluster = brokers(1, 2, features=features)
    place(cluster, "foo", [1], [2])
    fencing = cluster.controller.partitions.fence(1)
    while partition(cluster, "foo").leader != NO_LEADER:
        cluster.commit(Decision(None, next(fencing)))
    cluster.controller = new_controller(cluster.image)
    assert not cluster.heartbeat(1).is_fenced
    assert partition(cluster, "foo").leader == NO_LEADER

    assert cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms)) == []

    assert [partition(cluster, "foo", each).leader for each in (0, 1)] == [1, 2]
    written = len(cluster.log)
    assert cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms)) == []
    assert len(cluster.log) == written


def test_a_new_controller_elects_nobody_uncleanly() -> None:
    cluster = brokers(1, 2, features=NO_ELR)
    place(cluster, "foo", [1, 2])
    alter_isr(cluster, "foo", [1])
    fence(cluster, 1)
    value = ConfigRecord(resource_type=RESOURCE_TOPIC, resource_name="foo", name=UNCLEAN, value="true")
    cluster.commit(Decision(None, [value]))
    cluster.controller = new_controller(cluster.image)

    cluster.commit(cluster.controller.decide_fence_expired(cluster.now_ms))

    assert partition(cluster, "foo").leader == NO_LEADER


# Unclean elections without a request


@pytest.mark.parametrize("resource", [None, (4, ""), (4, "1"), (2, "foo")])
def test_leaderless_partitions_get_a_leader_once_it_may_be_unclean(resource: tuple[int, str] | None) -> None:
    cluster = brokers(1, 2, 3, 4, 5, features=NO_ELR)
    place(cluster, "foo", [2, 3, 5], [2, 4, 5], [1, 3, 5])
    for broker_id in (1, 2, 3, 4, 5):
        fence(cluster, broker_id)
    cluster.heartbeat(3)
    found = [partition(cluster, "foo", each) for each in range(3)]
    assert [(each.leader, each.isr) for each in found] == [(NO_LEADER, (5,))] * 3
    if resource is not None:
        record = ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=UNCLEAN, value="true")
        cluster.commit(Decision(None, [record]))

    count = cluster.commit(cluster.controller.partitions.decide_unclean_elections())

    found = [partition(cluster, "foo", each) for each in range(3)]
    if resource is None:
        assert count == 0
        assert [each.leader for each in found] == [NO_LEADER] * 3
        return
    assert count == 2
    assert [(each.leader, each.isr) for each in found] == [(3, (3,)), (NO_LEADER, (5,)), (3, (3,))]
    assert end_of(cluster.controller.partitions.decide_unclean_elections()).response == 0, "there is nothing left to do"
