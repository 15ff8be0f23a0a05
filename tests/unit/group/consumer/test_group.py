"""Scenarios of KIP-848 groups: who gets what when, and which requests are refused with what."""

from dataclasses import replace

import pytest

from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.records import member_record
from kafkapy.group.records import CoordinatorRecord
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ConsumerGroupMemberMetadataValue,
)
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_partition_metadata_key import ConsumerGroupPartitionMetadataKey
from kafkapy.protocol.messages.consumer_group_partition_metadata_value import ConsumerGroupPartitionMetadataValue
from tests.support.consumer_groups import (
    FakeConsumer,
    GroupWorld,
    error_of,
    image_of,
    names_of,
    reconcile,
    topic_id,
)

SESSION_MS = 45_000


def test_first_member_gets_everything_at_once() -> None:
    world = GroupWorld(image_of(foo=2, bar=1))
    consumer = FakeConsumer(world, "a", "foo", "bar", "missing")

    response = consumer.join()

    assert (response.member_id, response.member_epoch, response.heartbeat_interval_ms) == ("a", 2, 5_000)
    assert consumer.partitions() == [("bar", 0), ("foo", 0), ("foo", 1)]
    assert names_of(world.written) == [
        "MemberMetadata",
        "Metadata",
        "TargetAssignmentMember",
        "TargetAssignmentMetadata",
        "CurrentMemberAssignment",
    ]
    assert world.group().state_name == "Stable"


def test_member_id_is_made_by_the_server_in_version_0_only() -> None:
    world = GroupWorld(image_of(foo=2))
    request = FakeConsumer(world, "", "foo").request(
        rebalance_timeout_ms=1_000, subscribed_topic_names=["foo"], topic_partitions=[]
    )

    assert error_of(world.send, request, 1) == (ErrorCode.INVALID_REQUEST, "MemberId can't be empty.")
    assert len(world.send(request, 0).member_id) == 22


def test_full_request_is_answered_with_the_assignment() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()

    response = consumer.beat(
        rebalance_timeout_ms=60_000, subscribed_topic_names=["foo"], topic_partitions=consumer.report()
    )

    assert response.assignment is not None
    assert world.written == []


def test_deletion_of_an_empty_group_leaves_nothing() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()
    assert error_of(world.group().check_deletion)[0] == ErrorCode.NON_EMPTY_GROUP
    consumer.leave()
    world.group().check_deletion()

    for record in world.group().tombstone_records():
        world.consumer.replay(record.key, record.value)

    assert world.groups == {}


def test_session_timeout_is_the_groups_own_where_it_has_one() -> None:
    world = GroupWorld(image_of(foo=2))
    world.group_configs["g"] = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "7000"}
    consumer = FakeConsumer(world, "a", "foo")

    assert consumer.join().heartbeat_interval_ms == 7_000
    consumer.beat()
    assert world.pass_time(49_999) == []
    assert world.pass_time(1) != []


def test_new_coordinator_gives_everyone_a_whole_session_and_goes_on_with_the_revocation() -> None:
    world = GroupWorld(image_of(foo=2))
    first = FakeConsumer(world, "a", "foo", rebalance_timeout_ms=20_000)
    second = FakeConsumer(world, "b", "foo")
    first.join()
    second.join()
    world.send(first.request())
    world.pass_time(15_000)

    world.restart()
    world.pass_time(0)
    world.pass_time(19_999)
    assert set(world.group().log.members) == {"a", "b"}
    world.pass_time(1)

    assert set(world.group().log.members) == {"b"}
    world.pass_time(SESSION_MS - 20_000)
    assert world.group().is_empty


def test_fenced_member_rejoins_with_its_id() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()

    response = consumer.join()

    assert response.member_epoch == 2
    assert consumer.partitions() == [("foo", 0), ("foo", 1)]


def test_response_that_was_lost_is_given_again() -> None:
    world = GroupWorld(image_of(foo=2))
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo")
    first.join()
    second.join()
    first.beat()
    epoch_before = first.epoch
    first.beat()
    assert first.epoch == epoch_before + 1

    first.epoch = epoch_before
    response = first.beat(topic_partitions=first.report())

    assert response.member_epoch == epoch_before + 1


@pytest.mark.parametrize(("epoch", "word"), [(5, "greater"), (1, "smaller")])
def test_member_at_another_epoch_is_fenced(epoch: int, word: str) -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()

    assert error_of(consumer.beat, member_epoch=epoch) == (
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"The consumer group member has a {word} member epoch ({epoch}) than the one known by the group coordinator "
        "(2). The member must abandon all its partitions and rejoin.",
    )


def test_assignment_waits_for_the_interval() -> None:
    world = GroupWorld(image_of(foo=2), group_consumer_assignment_interval_ms=1_000)
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo")
    first.join()

    second.join()
    assert (second.epoch, world.group().state_name) == (2, "Assigning")
    world.pass_time(1_000)
    reconcile(first, second)

    assert (first.epoch, second.epoch, world.group().state_name) == (3, 3, "Stable")
    assert len(second.partitions()) == 1


def test_assignment_does_not_wait_for_a_coordinators_clock_to_reach_that_of_the_one_before() -> None:
    world = GroupWorld(image_of(foo=2), group_consumer_assignment_interval_ms=1_000)
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo")
    first.join()

    world.restart(wall_ahead_ms=-120_000)
    second.join()
    reconcile(first, second)

    assert world.group().state_name == "Stable"
    assert len(second.partitions()) == 1


def test_static_member_that_stays_away_loses_its_partitions() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", "foo", instance_id="i")
    consumer.join()
    consumer.leave(-2)
    world.pass_time(0)

    world.pass_time(SESSION_MS)

    assert world.group().is_empty
    assert world.group().log.static_members == {}


def test_member_that_joins_again_as_another_instance_leaves_the_former_one_free() -> None:
    world = GroupWorld(image_of(foo=1))
    consumer = FakeConsumer(world, "a", "foo", instance_id="i")
    consumer.join()
    consumer.fields["instance_id"] = "j"
    consumer.join()

    assert world.group().log.static_members == {"j": "a"}
    assert FakeConsumer(world, "b", "foo", instance_id="i").join().member_id == "b"


@pytest.mark.parametrize("assignor", ["uniform", "range", None])
def test_member_takes_over_a_static_one_under_its_own_id(assignor: str | None) -> None:
    world = GroupWorld(image_of(foo=4, bar=2))
    first = FakeConsumer(world, "a", "foo", server_assignor=assignor)
    second = FakeConsumer(world, "b", "foo", instance_id="i")
    other = FakeConsumer(world, "c", "foo", "bar")
    for consumer in (first, second, other):
        consumer.join()
    reconcile(first, second, other)
    second.leave(-2)
    world.image = image_of(2, foo=5, bar=2)

    again = FakeConsumer(world, "a", "foo", instance_id="i", server_assignor=assignor)
    again.join()
    reconcile(again, other)

    log = world.group().log
    assert log.members.keys() == log.targets.keys() == {"a", "c"}
    assert log.subscriptions.names == {"foo": 2, "bar": 1}
    assert len(again.partitions() + other.partitions()) == 7


def test_what_a_member_had_before_it_took_over_a_static_one_is_assigned() -> None:
    world = GroupWorld(image_of(foo=3))
    first, other = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "c", "foo")
    second = FakeConsumer(world, "b", "foo", instance_id="i")
    for consumer in (first, second, other):
        consumer.join()
    reconcile(first, second, other)
    second.leave(-2)

    again = FakeConsumer(world, "a", "foo", instance_id="i")
    again.join()
    reconcile(again, other)

    assert sorted(again.partitions() + other.partitions()) == [("foo", 0), ("foo", 1), ("foo", 2)]


def test_instance_that_a_log_gives_to_two_members_leaves_both_in_the_group() -> None:
    world = GroupWorld(image_of(foo=2))
    consumers = [FakeConsumer(world, each, "foo") for each in "ab"]
    for consumer in consumers:
        consumer.join()
    reconcile(*consumers)
    members = world.group().log.members.values()
    world.load(*(member_record("g", replace(each, instance_id="i", classic_metadata=None)) for each in members))

    for consumer in consumers:
        consumer.beat(rack_id="r")

    assert {each.rack_id for each in world.group().log.members.values()} == {"r"}


def test_instance_id_that_is_in_use_is_refused() -> None:
    world = GroupWorld(image_of(foo=1))
    FakeConsumer(world, "a", "foo", instance_id="i").join()
    other = FakeConsumer(world, "b", "foo", instance_id="i")

    assert error_of(other.join) == (
        ErrorCode.UNRELEASED_INSTANCE_ID,
        "Static member b with instance id i cannot join the group because the instance id is owned by a member.",
    )
    fenced = (ErrorCode.FENCED_INSTANCE_ID, "Static member b with instance id i was fenced by member a.")
    assert error_of(other.beat, member_epoch=2) == (ErrorCode.UNRELEASED_INSTANCE_ID, error_of(other.join)[1])
    other.epoch = 2
    assert error_of(other.beat) == fenced
    assert error_of(other.leave) == fenced


def test_assignment_without_epochs_counts_from_the_members_own() -> None:
    world = GroupWorld(image_of(foo=2))
    FakeConsumer(world, "a", "foo").join()
    value = ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=7,
        previous_member_epoch=6,
        assigned_partitions=[TopicPartitions(topic_id("foo"), partitions=[0, 1], assignment_epochs=[])],
    )

    world.consumer.replay(ConsumerGroupCurrentMemberAssignmentKey("g", member_id="a"), value)

    assert world.group().log.members["a"].assigned == {topic_id("foo"): {0: 7, 1: 7}}


def test_state_of_a_later_version_is_kept_as_unknown() -> None:
    world = GroupWorld(image_of(foo=2))

    key = ConsumerGroupCurrentMemberAssignmentKey("g", member_id="a")
    value = ConsumerGroupCurrentMemberAssignmentValue(2, previous_member_epoch=1, state=77)

    world.load(CoordinatorRecord(key, value))

    assert world.group().log.members["a"].state is MemberState.UNKNOWN


def test_tombstones_of_what_is_not_there_are_passed_over() -> None:
    world = GroupWorld()

    world.consumer.replay(ConsumerGroupCurrentMemberAssignmentKey("g", member_id="a"), None)
    world.consumer.replay(ConsumerGroupMetadataKey("g"), None)

    assert world.groups == {}


def test_subscription_metadata_of_kafka_4_0_is_removed_when_the_group_moves_on() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()
    world.consumer.replay(ConsumerGroupPartitionMetadataKey("g"), ConsumerGroupPartitionMetadataValue())

    world.image = image_of(2, foo=3)
    consumer.beat()

    assert "-PartitionMetadata" in names_of(world.written)
    assert not world.group().log.has_partition_metadata_record


def test_group_is_the_same_after_its_log_is_read_again() -> None:
    world = GroupWorld(image_of(foo=5, food=2))
    consumers = [
        FakeConsumer(world, "a", "foo"),
        FakeConsumer(world, "b", "foo", instance_id="i"),
        FakeConsumer(world, "c", subscribed_topic_names=None, subscribed_topic_regex="foo.*"),
    ]
    for consumer in consumers:
        consumer.join()
    reconcile(*consumers)
    before = world.group()

    world.restart()

    after = world.group()
    assert after is not before
    for field in ("members", "targets", "subscriptions", "static_members", "group_epoch", "metadata_hash", "_owners"):
        assert getattr(after.log, field) == getattr(before.log, field), field


def test_failed_write_leaves_the_group_to_be_compared_with_the_metadata_again() -> None:
    world = GroupWorld(image_of(foo=2))
    consumer = FakeConsumer(world, "a", "foo")
    consumer.join()
    world.image = image_of(2, foo=3)
    world.commit = lambda decision: []  # type: ignore[method-assign]
    world.send(consumer.request())

    del world.commit
    consumer.beat()

    assert len(consumer.partitions()) == 3


MEMBER_RECORDS = [  # made by Apache Kafka's own ConsumerGroupMemberMetadataValue
    (None, "00 00 02 63 03 2f68 01 01 ffffffff 00 01 00 01 00"),  # tag 0 of one byte: null
    (ClassicMemberMetadata(5), "00 00 02 63 03 2f68 01 01 ffffffff 00 01 00 07 01 00000005 01 00"),
]


@pytest.mark.parametrize(("classic_metadata", "expected"), MEMBER_RECORDS)
def test_member_record_is_kafkas_to_the_byte(classic_metadata: ClassicMemberMetadata | None, expected: str) -> None:
    member = ConsumerMember("m", client_id="c", client_host="/h", classic_metadata=classic_metadata)

    encoded = member.metadata_value().encode(0)

    assert encoded == bytes.fromhex(expected)
    assert ConsumerMember("m").with_metadata(ConsumerGroupMemberMetadataValue.decode(encoded, 0)) == member
