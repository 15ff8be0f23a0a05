"""A member of a KIP-848 group: read from its records, and described.

After Apache Kafka's ConsumerGroupMemberTest.
"""

import pytest

from kafkapy.group.consumer.member import LEAVE_STATIC_EPOCH, ConsumerMember, MemberState
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_current_member_assignment_value import (
    ConsumerGroupCurrentMemberAssignmentValue,
    TopicPartitions,
)
from kafkapy.protocol.messages.consumer_group_describe_response import Member
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_member_metadata_value import (
    ClassicMemberMetadata,
    ClassicProtocol,
    ConsumerGroupMemberMetadataValue,
)
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_target_assignment_member_key import (
    ConsumerGroupTargetAssignmentMemberKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_member_value import (
    ConsumerGroupTargetAssignmentMemberValue,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_member_value import (
    TopicPartition as TargetPartitions,
)
from tests.support.consumer_groups import GroupWorld, image_of, topic_id

FOO, BAR = topic_id("foo"), topic_id("bar")
CLASSIC = ClassicMemberMetadata(45_000, supported_protocols=[ClassicProtocol("range", metadata=b"\1\2\3")])


def metadata_of(classic: ClassicMemberMetadata | None = None) -> ConsumerGroupMemberMetadataValue:
    return ConsumerGroupMemberMetadataValue(
        instance_id="instance",
        rack_id="rack",
        client_id="client",
        client_host="host",
        subscribed_topic_names=["foo", "bar"],
        subscribed_topic_regex="ba.*",
        rebalance_timeout_ms=1000,
        server_assignor="range",
        classic_member_metadata=classic,
    )


def assignment_of(
    epoch: int, assigned: dict[bytes, list[int]], pending: dict[bytes, list[int]]
) -> ConsumerGroupCurrentMemberAssignmentValue:
    """Return a record as versions before 4.3 write it: with no epochs of partitions."""
    return ConsumerGroupCurrentMemberAssignmentValue(
        member_epoch=epoch,
        previous_member_epoch=epoch - 1,
        assigned_partitions=[TopicPartitions(each, partitions=numbers) for each, numbers in assigned.items()],
        partitions_pending_revocation=[TopicPartitions(each, partitions=numbers) for each, numbers in pending.items()],
    )


def described(
    assignment: ConsumerGroupCurrentMemberAssignmentValue,
    target: dict[bytes, list[int]] | None = None,
    classic: ClassicMemberMetadata | None = None,
) -> Member:
    world = GroupWorld(image_of(foo=6, bar=6))
    replay = world.consumer.replay
    replay(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(epoch=10))
    replay(ConsumerGroupMemberMetadataKey("g", member_id="m"), metadata_of(classic))
    replay(ConsumerGroupCurrentMemberAssignmentKey("g", member_id="m"), assignment)
    if target is not None:
        parts = [TargetPartitions(each, partitions=partitions) for each, partitions in target.items()]
        value = ConsumerGroupTargetAssignmentMemberValue(topic_partitions=parts)
        replay(ConsumerGroupTargetAssignmentMemberKey("g", member_id="m"), value)
    (member,) = world.consumer.describe("g").members
    return member


def test_a_member_is_what_its_metadata_says() -> None:
    member = ConsumerMember("m").with_metadata(metadata_of(CLASSIC))

    assert member == ConsumerMember(
        "m",
        instance_id="instance",
        rack_id="rack",
        client_id="client",
        client_host="host",
        subscribed_topic_names=frozenset({"foo", "bar"}),
        subscribed_topic_regex="ba.*",
        rebalance_timeout_ms=1000,
        server_assignor="range",
        classic_metadata=CLASSIC,
    )


@pytest.mark.parametrize(("epoch", "expected"), [(10, 10), (LEAVE_STATIC_EPOCH, 0)])
def test_partitions_without_epochs_were_assigned_at_the_members(epoch: int, expected: int) -> None:
    member = ConsumerMember("m").with_assignment(assignment_of(epoch, {FOO: [0, 1, 2]}, {BAR: [3, 4, 5]}))

    assert (member.member_epoch, member.previous_member_epoch, member.state) == (epoch, epoch - 1, MemberState.STABLE)
    assert member.assigned == {FOO: dict.fromkeys((0, 1, 2), expected)}
    assert member.pending_revocation == {BAR: dict.fromkeys((3, 4, 5), expected)}


def test_a_partition_has_the_epoch_of_its_assignment_until_it_is_revoked() -> None:
    member = ConsumerMember("m", assigned={FOO: {1: 10, 2: 8}}, pending_revocation={BAR: {4: 9}})

    known = [(FOO, 1), (FOO, 2), (BAR, 4), (FOO, 4), (BAR, 1), (topic_id("zar"), 0)]
    assert [member.assignment_epoch(*each) for each in known] == [10, 8, 9, None, None, None]


@pytest.mark.parametrize(("classic", "member_type"), [(CLASSIC, 0), (None, 1)])
def test_a_member_is_described_with_what_it_has_still_to_give(
    classic: ClassicMemberMetadata | None, member_type: int
) -> None:
    member = described(assignment_of(10, {FOO: [0, 1, 2]}, {BAR: [3, 4, 5]}), {BAR: [0, 1]}, classic)

    assert (member.member_id, member.member_epoch, member.member_type) == ("m", 10, member_type)
    assert (member.client_id, member.client_host, member.instance_id, member.rack_id) == (
        "client",
        "host",
        "instance",
        "rack",
    )
    assert (sorted(member.subscribed_topic_names), member.subscribed_topic_regex) == (["bar", "foo"], "ba.*")
    has = {(each.topic_id, each.topic_name, *each.partitions) for each in member.assignment.topic_partitions}
    assert has == {(FOO, "foo", 0, 1, 2), (BAR, "bar", 3, 4, 5)}
    to_have = [(each.topic_id, each.topic_name, *each.partitions) for each in member.target_assignment.topic_partitions]
    assert to_have == [(BAR, "bar", 0, 1)]


def test_partitions_of_a_topic_are_described_together_and_those_of_unknown_topics_not() -> None:
    member = described(assignment_of(5, {FOO: [0, 1], topic_id("gone"): [7]}, {FOO: [2]}))

    assert [(each.topic_name, each.partitions) for each in member.assignment.topic_partitions] == [("foo", [0, 1, 2])]
    assert member.target_assignment.topic_partitions == []
