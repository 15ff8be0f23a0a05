"""What the records of a KIP-848 group add up to: owners of partitions, instances, subscriptions, the group's state."""

from collections.abc import Mapping
from dataclasses import replace

import pytest

from kafkapy.group.consumer.member import ConsumerMember, MemberState
from kafkapy.group.consumer.records import group_tombstones
from kafkapy.group.consumer.state import ConsumerGroupLog, GroupState
from kafkapy.protocol.messages.consumer_group_current_member_assignment_key import (
    ConsumerGroupCurrentMemberAssignmentKey,
)
from kafkapy.protocol.messages.consumer_group_member_metadata_key import ConsumerGroupMemberMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.consumer_group_metadata_value import ConsumerGroupMetadataValue
from kafkapy.protocol.messages.consumer_group_regular_expression_key import ConsumerGroupRegularExpressionKey
from kafkapy.protocol.messages.consumer_group_regular_expression_value import ConsumerGroupRegularExpressionValue
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_value import (
    ConsumerGroupTargetAssignmentMetadataValue,
)

FOO, BAR, ZAR = (bytes(15) + bytes([number]) for number in (1, 2, 3))


def put(log: ConsumerGroupLog, *members: ConsumerMember) -> None:
    for member in members:
        log.replay(ConsumerGroupMemberMetadataKey("g", member_id=member.member_id), member.metadata_value())
        key = ConsumerGroupCurrentMemberAssignmentKey("g", member_id=member.member_id)
        log.replay(key, member.assignment_value())


def remove(log: ConsumerGroupLog, member_id: str) -> None:
    log.replay(ConsumerGroupCurrentMemberAssignmentKey("g", member_id=member_id), None)
    log.replay(ConsumerGroupMemberMetadataKey("g", member_id=member_id), None)


def set_epochs(log: ConsumerGroupLog, group_epoch: int, assignment_epoch: int | None = None) -> None:
    log.replay(ConsumerGroupMetadataKey("g"), ConsumerGroupMetadataValue(epoch=group_epoch))
    if assignment_epoch is not None:
        value = ConsumerGroupTargetAssignmentMetadataValue(assignment_epoch=assignment_epoch)
        log.replay(ConsumerGroupTargetAssignmentMetadataKey("g"), value)


def resolve(log: ConsumerGroupLog, regex: str, *topics: str) -> None:
    value = ConsumerGroupRegularExpressionValue(topics=list(topics), version=10, timestamp=12345) if topics else None
    log.replay(ConsumerGroupRegularExpressionKey("g", regular_expression=regex), value)


def at(epoch: int, **partitions: int) -> dict[bytes, dict[int, int]]:
    """Return foo-1, assigned at an epoch, from `at(5, foo=1)`."""
    ids = {"foo": FOO, "bar": BAR, "zar": ZAR}
    return {ids[topic]: {partition: epoch} for topic, partition in partitions.items()}


# -- owners ---------------------------------------------------------------------------------------------------------


def test_a_member_owns_what_it_has_and_what_it_has_still_to_give() -> None:
    log = ConsumerGroupLog("g")
    member = ConsumerMember("m", 10, assigned=at(5, foo=1), pending_revocation=at(5, bar=4))
    put(log, member)
    assert [log.owner(FOO, 1), log.owner(BAR, 4), log.owner(ZAR, 7)] == ["m", "m", None]
    put(log, replace(member, member_epoch=11, assigned=at(7, bar=1), pending_revocation=at(7, zar=4)))
    assert [log.owner(BAR, 1), log.owner(ZAR, 4)] == ["m", "m"]
    assert not log.is_owned(FOO, 1)
    assert not log.is_owned(BAR, 4)
    remove(log, "m")
    assert not any(log.is_owned(topic_id, partition) for topic_id in (FOO, BAR, ZAR) for partition in range(10))


def test_a_partition_that_comes_back_before_it_was_revoked_stays_owned() -> None:
    log = ConsumerGroupLog("g")
    member = ConsumerMember("m", 10, pending_revocation=at(5, foo=1))
    put(log, member)
    put(log, replace(member, member_epoch=11, assigned=at(7, foo=1), pending_revocation={}))
    assert log.owner(FOO, 1) == "m"


def test_a_former_owner_that_moves_on_leaves_the_present_one_alone() -> None:
    """A compacted log may have given the partition away before it says that the former owner had revoked it."""
    log = ConsumerGroupLog("g")
    former, present = ConsumerMember("m1", 10, assigned=at(5, foo=1)), ConsumerMember("m2", 11, assigned=at(7, foo=1))
    put(log, former, present)
    assert log.owner(FOO, 1) == "m2"
    put(log, replace(former, member_epoch=12, assigned={}))
    assert log.owner(FOO, 1) == "m2"
    remove(log, "m1")
    assert log.owner(FOO, 1) == "m2"


# -- members --------------------------------------------------------------------------------------------------------


def test_an_instance_is_found_as_long_as_its_member_is_there() -> None:
    log = ConsumerGroupLog("g")
    put(log, ConsumerMember("dynamic"))
    assert log.static_member("i") is None
    assert log.static_member(None) is None
    put(log, ConsumerMember("m", instance_id="i", subscribed_topic_names=frozenset({"foo"})))
    assert log.static_member("i") is log.members["m"]
    remove(log, "m")
    assert (log.static_member("i"), sorted(log.members)) == (None, ["dynamic"])


def test_states_of_a_group() -> None:
    log = ConsumerGroupLog("g")
    assert log.state is GroupState.EMPTY
    one, other = (ConsumerMember(name, 2, previous_member_epoch=0) for name in ("m1", "m2"))
    put(log, one)
    set_epochs(log, 2)
    assert log.state is GroupState.ASSIGNING
    put(log, other)
    set_epochs(log, 3)
    assert log.state is GroupState.ASSIGNING
    set_epochs(log, 3, 3)
    assert log.state is GroupState.RECONCILING
    put(log, one.moved_to(3))
    assert log.state is GroupState.RECONCILING
    put(log, other.moved_to(3, state=MemberState.UNREVOKED_PARTITIONS))
    assert log.state is GroupState.RECONCILING
    put(log, other.moved_to(3))
    assert log.state is GroupState.STABLE
    remove(log, "m1")
    remove(log, "m2")
    assert log.state is GroupState.EMPTY


def test_the_tombstones_of_a_group_are_of_all_that_it_has() -> None:
    log = ConsumerGroupLog("g")
    put(log, ConsumerMember("m1", 10, assigned=at(5, foo=1)), ConsumerMember("m2", 10, subscribed_topic_regex="f.*"))
    set_epochs(log, 10, 10)
    resolve(log, "f.*", "foo", "fooo")
    tombstones = group_tombstones("g", list(log.members), list(log.subscriptions.resolved))
    names = [type(record.key).__name__.removeprefix("ConsumerGroup").removesuffix("Key") for record in tombstones]
    assert names == [
        *["CurrentMemberAssignment"] * 2,
        *["TargetAssignmentMember"] * 2,
        "TargetAssignmentMetadata",
        *["MemberMetadata"] * 2,
        "RegularExpression",
        "PartitionMetadata",
        "Metadata",
    ]
    assert {record.value for record in tombstones} == {None}


# -- subscriptions --------------------------------------------------------------------------------------------------


def subscriber(name: str, *topics: str, regex: str = "") -> ConsumerMember:
    return ConsumerMember(name, subscribed_topic_names=frozenset(topics), subscribed_topic_regex=regex)


def test_a_group_is_homogeneous_while_all_members_name_the_same_topics() -> None:
    log = ConsumerGroupLog("g")

    def is_homogeneous() -> bool:
        return log.subscriptions.is_homogeneous(len(log.members))

    found = [is_homogeneous()]
    for member in (subscriber("m1", "foo"), subscriber("m2", "bar", "foo"), subscriber("m3", "bar", "foo")):
        put(log, member)
        found.append(is_homogeneous())
    remove(log, "m1")
    found.append(is_homogeneous())
    put(log, subscriber("m2", "bar", "foo", "zar"))
    found.append(is_homogeneous())
    assert found == [True, True, False, False, True, False]


def test_a_topic_is_wanted_while_a_member_names_it() -> None:
    log = ConsumerGroupLog("g")
    put(log, subscriber("m1", "foo"), subscriber("m2", "bar"))
    assert log.subscriptions.topics() == {"foo", "bar"}
    remove(log, "m1")
    assert log.subscriptions.topics() == {"bar"}
    remove(log, "m2")
    assert log.subscriptions.topics() == set()


def test_members_of_an_expression_are_counted() -> None:
    log = ConsumerGroupLog("g")

    def counts_after(member: ConsumerMember) -> Mapping[str, int]:
        put(log, member)
        return dict(log.subscriptions.regexes)

    assert counts_after(subscriber("m1", regex="one")) == {"one": 1}
    assert counts_after(subscriber("m2", regex="two")) == {"one": 1, "two": 1}
    assert counts_after(subscriber("m3", regex="one")) == {"one": 2, "two": 1}
    assert counts_after(subscriber("m4", "foo")) == {"one": 2, "two": 1}
    assert counts_after(subscriber("m3", regex="two")) == {"one": 1, "two": 2}
    for member_id, left in (("m1", {"two": 2}), ("m2", {"two": 1}), ("m3", {})):
        remove(log, member_id)
        assert log.subscriptions.regexes == left


def test_what_expressions_match_is_wanted_beside_what_is_named() -> None:
    log = ConsumerGroupLog("g")
    put(log, subscriber("m1", "foo", "bar", "zar"), subscriber("m2", "foo", "bar"))
    assert log.subscriptions.names == {"foo": 2, "bar": 2, "zar": 1}
    resolve(log, "foo|bar", "foo", "bar")
    resolve(log, "foobar", "foobar")
    assert log.subscriptions.topics() == {"foo", "bar", "zar", "foobar"}
    resolve(log, "foobar", "other")
    assert log.subscriptions.topics() == {"foo", "bar", "zar", "other"}
    resolve(log, "foobar")
    resolve(log, "foo|bar")
    assert log.subscriptions.topics() == {"foo", "bar", "zar"}


@pytest.mark.parametrize(
    ("names", "regex", "expected"),
    [
        ({"foo"}, "foo.*", {"foo", "bar", "zar", "fooo"}),
        ({"foo"}, "", {"foo", "bar", "zar"}),
        (set(), "foo.*", {"foo", "bar", "zar", "fooo"}),
        (set(), "", {"foo", "bar", "zar"}),
        ({"other"}, "unresolved", {"foo", "bar", "zar", "other"}),
    ],
)
def test_a_change_of_one_member_is_counted_before_it_is_made(names: set[str], regex: str, expected: set[str]) -> None:
    log = ConsumerGroupLog("g")
    before = subscriber("m3", "foo", regex="foo.*")
    put(log, subscriber("m1", "foo", "bar", "zar"), subscriber("m2", "foo", "bar"), before)
    resolve(log, "foo.*", "foo", "fooo")
    changed = log.subscriptions.copy()
    changed.remove(before.subscribed_topic_names, before.subscribed_topic_regex)
    changed.add(names, regex)
    changed.forget_unused()
    assert changed.topics() == expected
    assert log.subscriptions.topics() == {"foo", "bar", "zar", "fooo"}
