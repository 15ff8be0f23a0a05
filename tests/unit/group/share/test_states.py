"""Which share partitions have a state, and what becomes of it: cases of Apache Kafka's GroupMetadataManagerTest.

Of 4.3.1. The group is one without members, as Apache Kafka's log says it.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import pytest

from kafkapy.group.share.records import epoch_record, states_record
from kafkapy.group.share.states import GroupStates, StatesByTopic, TopicStates, combined
from kafkapy.group.share.target import is_assignment_pending
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from tests.support.consumer_groups import image_of, topic_id
from tests.support.share_groups import ShareWorld, assigned

Counts = Mapping[str, int]
"""Partitions by topic, which are those from 0 on."""


def states(
    initializing: Counts | None = None, initialized: Counts | None = None, deleting: Iterable[str] = ()
) -> GroupStates:
    return GroupStates(by_topic(initializing or {}), by_topic(initialized or {}), frozenset(map(topic_id, deleting)))


def by_topic(counts: Counts) -> StatesByTopic:
    return {topic_id(name): TopicStates(name, frozenset(range(count))) for name, count in counts.items()}


def world_with(image: MetadataImage, found: GroupStates, named: MetadataImage | None = None) -> ShareWorld:
    """Return a shard whose log says that the group has these states; `named`: the topics when that was written."""
    world = ShareWorld(image)
    world.groups_world.load(epoch_record("g", 1, 0), states_record("g", found, named or image))
    return world


def written(world: ShareWorld, decision: Any) -> GroupStates:
    """Return the states of the one record that a decision writes."""
    (record,) = world.commit(decision)
    assert record.value is not None
    after = world.log().states
    assert after is not None
    assert record.value == after.to_value(world.image), "what is replayed is what was written"
    return without_times(after)


def without_times(found: GroupStates) -> GroupStates:
    kinds = (found.initializing, found.initialized)
    plain = [{key: TopicStates(each.name, each.partitions) for key, each in kind.items()} for kind in kinds]
    return GroupStates(plain[0], plain[1], found.deleting)


# -- the deletion of a group ------------------------------------------------------------------------------------------

T1, T2, T3 = map(topic_id, ("t1", "t2", "t3"))
ALL = image_of(t1=2, t2=2, t3=2)


@pytest.mark.parametrize(
    ("image", "deleting", "deleted"),
    [
        (ALL, (), {T1: {0, 1}, T2: {0, 1}}),
        (ALL, ("t3",), {T1: {0, 1}, T2: {0, 1}, T3: {0, 1}}),
        (image_of(t1=2, t2=2), ("t3",), {T1: {0, 1}, T2: {0, 1}}),
        (image_of(), ("t3",), {T1: {0, 1}, T2: {0, 1}}),
    ],
    ids=("none-being-deleted", "one-being-deleted", "its-topic-is-gone", "all-topics-are-gone"),
)
def test_a_group_is_deleted_with_the_states_of_all_its_topics(
    image: MetadataImage, deleting: tuple[str, ...], deleted: Mapping[bytes, set[int]]
) -> None:
    world = world_with(image, states({"t1": 2}, {"t2": 2}, deleting), ALL)
    decision = world.shard.share.begin_deletion("g")
    assert decision.delete.partitions == deleted
    assert written(world, decision) == GroupStates({}, {}, frozenset(deleted))


# -- the deletion of offsets ------------------------------------------------------------------------------------------


def test_offsets_of_topics_are_deleted_with_their_states() -> None:
    world = world_with(image_of(t1=3, t2=2), states({}, {"t1": 3, "t2": 2}))
    decision = world.shard.share.delete_offsets("g", ["t1", "t2"])
    assert decision.response.responses == []
    assert decision.delete.partitions == {T1: {0, 1, 2}, T2: {0, 1}}
    assert written(world, decision) == states(deleting=["t1", "t2"])


def test_a_deletion_of_offsets_that_has_not_succeeded_is_tried_again_if_its_topic_is_named() -> None:
    image = image_of(t1=3, t2=2, t3=2, t4=2)
    world = world_with(image, states({}, {"t1": 3, "t2": 2}, ["t3", "t4"]))
    decision = world.shard.share.delete_offsets("g", ["t1", "t2", "t3"])
    assert decision.response.responses == []
    assert decision.delete.partitions == {T1: {0, 1, 2}, T2: {0, 1}, T3: {0, 1}}
    assert written(world, decision) == states(deleting=["t1", "t2", "t3", "t4"])


def test_topics_without_offsets_have_errors_of_their_own() -> None:
    world = world_with(image_of(t1=3, t2=2), states({"t2": 2}, {"t1": 3}))
    decision = world.shard.share.delete_offsets("g", ["t1", "t2", "t3"])
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert [(each.topic_name, each.error_code, each.error_message) for each in decision.response.responses] == [
        ("t2", unknown, "There is no offset information to delete."),
        ("t3", unknown, "This server does not host this topic-partition."),
    ]
    assert decision.delete.partitions == {T1: {0, 1, 2}}
    assert written(world, decision) == states({"t2": 2}, {}, ["t1"])


def test_topics_are_no_longer_being_deleted_once_their_states_are() -> None:
    world = world_with(ALL, states({}, {"t3": 2}, ["t1", "t2"]))
    response = world.shard.share.delete_offsets("g", []).response
    done = world.shard.share.offsets_deleted("g", response, {T1: "t1"})
    assert [(each.topic_name, each.topic_id, each.error_code) for each in done.response.responses] == [("t1", T1, 0)]
    assert written(world, done) == states({}, {"t3": 2}, ["t2"])
    nothing = world.shard.share.offsets_deleted("g", world.shard.share.delete_offsets("g", []).response, {})
    assert nothing.response.responses == []
    assert written(world, nothing) == states({}, {"t3": 2}, ["t2"])


# -- initialisation ---------------------------------------------------------------------------------------------------


def test_states_that_are_created_are_initialised_and_others_are_not() -> None:
    world = world_with(image_of(t1=2, t2=3), states({"t1": 2}, {"t2": 3}))
    assert written(world, world.shard.share.states_initialized("g", {T1: {0, 1}})) == states({}, {"t1": 2, "t2": 3})
    for nothing in (world.shard.share.states_initialized("g", {}), world.shard.share.states_failed("g", {})):
        assert nothing.records == []


def test_states_that_could_not_be_created_are_no_longer_being_initialised() -> None:
    world = world_with(image_of(t1=2, t2=3), states({"t1": 2}, {"t2": 3}))
    assert world.shard.share.states_failed("nobody", {T1: {0}}).records == []
    assert written(world, world.shard.share.states_failed("g", {T1: {0, 1}})) == states({}, {"t2": 3})


def test_what_a_member_subscribes_to_is_initialised_unless_it_is_or_was_begun_lately() -> None:
    image = image_of(t1=2, t2=2, t3=3)
    world = world_with(image, states({"t1": 2}, {"t2": 3}))
    found = world.log().states
    assert found is not None
    since_ms = found.initializing[T1].since_ms
    names = ("t1", "t2", "t3", "missing")
    assert found.missing([], image, since_ms, 10) == {}
    t3 = TopicStates("t3", frozenset({0, 1, 2}), since_ms + 9)
    assert found.missing(names, image, since_ms + 9, 10) == {T3: t3}
    later = {
        T1: TopicStates("t1", frozenset({0, 1}), since_ms + 10),
        T3: TopicStates("t3", t3.partitions, since_ms + 10),
    }
    assert found.missing(names, image, since_ms + 10, 10) == later


def test_topics_that_are_deleted_are_forgotten_in_each_state() -> None:
    image = image_of(t1=2, t2=3, t3=3, t4=3, t5=3, t6=3)
    found = states({"t1": 2, "t3": 3}, {"t2": 3, "t4": 3}, ["t5", "t6"])
    gone = frozenset(map(topic_id, ("t1", "t2", "t6")))
    assert found.without_topics(gone) == states({"t3": 3}, {"t4": 3}, ["t5"])
    assert found.without_topics(frozenset()) == found
    world = world_with(image, found)
    assert world.shard.share.forget_topic(topic_id("other")) == []
    for name in ("t1", "t2", "t6"):
        (record,) = world.shard.share.forget_topic(topic_id(name))
        world.groups_world.load(record)
    after = world.log().states
    assert after is not None
    assert without_times(after) == states({"t3": 3}, {"t4": 3}, ["t5"])


def test_partitions_of_both_are_combined_by_topic_at_the_later_time() -> None:
    first, second = TopicStates("t1", frozenset({0}), 1), TopicStates("t1", frozenset({1}), 2)
    assert combined({}, {}) == {}
    assert combined({T1: first}, {}) == combined({}, {T1: first}) == combined({T1: first}, {T1: first}) == {T1: first}
    assert combined({T1: first}, {T2: second}) == {T1: first, T2: second}
    assert combined({T1: first}, {T1: second}) == {T1: TopicStates("t1", frozenset({0, 1}), 2)}


# -- what is initialised, and not assigned yet -----------------------------------------------------------------------


def test_an_epoch_is_begun_once_for_what_is_initialised_while_assignments_wait() -> None:
    world = ShareWorld(image_of(t1=2), group_share_assignment_interval_ms=15_000)
    joined = world.join("m", "t1")
    assert not is_assignment_pending(world.log(), world.image)
    world.initialize()
    assert is_assignment_pending(world.log(), world.image)
    for names in (["Metadata"], []):
        beaten = world.heartbeat("m", joined.member_epoch)
        assert (beaten.member_epoch, world.names_written()) == (2, names)
    world.pass_time(15_000)
    assert assigned(world.heartbeat("m", 2)) == {"t1": [0, 1]}
    assert not is_assignment_pending(world.log(), world.image)
