"""Which target assignments a KIP-848 group writes when a new one is computed: those that change, and the epoch."""

from kafkapy.protocol.messages.consumer_group_target_assignment_member_key import ConsumerGroupTargetAssignmentMemberKey
from kafkapy.protocol.messages.consumer_group_target_assignment_metadata_key import (
    ConsumerGroupTargetAssignmentMetadataKey,
)
from tests.support.consumer_groups import FakeConsumer, GroupWorld, image_of, reconcile

Targets = dict[str, set[int] | None]


def written_targets(world: GroupWorld) -> Targets:
    """Return the partitions of each target that the last heartbeat wrote, None for a tombstone."""
    found: Targets = {}
    for record in world.written:
        if isinstance(record.key, ConsumerGroupTargetAssignmentMemberKey):
            topics = record.value and record.value.topic_partitions
            found[record.key.member_id] = (
                None if topics is None else {each for topic in topics for each in topic.partitions}
            )
    return found


def written_epoch(world: GroupWorld) -> int | None:
    """Return the epoch of the target that the last heartbeat wrote."""
    keys = ConsumerGroupTargetAssignmentMetadataKey
    return next((each.value.assignment_epoch for each in world.written if isinstance(each.key, keys)), None)


def settled(count: int, partitions: int, **fields: str) -> tuple[GroupWorld, list[FakeConsumer]]:
    """Return members "m0", "m1", ... that have their equal shares of foo; each an instance with `instance_id`."""
    world = GroupWorld(image_of(foo=partitions))
    members = [
        FakeConsumer(world, f"m{number}", "foo", **{key: f"{value}{number}" for key, value in fields.items()})
        for number in range(count)
    ]
    for member in members:
        member.join()
    reconcile(*members)
    return world, members


def shares(members: list[FakeConsumer]) -> dict[str, set[int]]:
    return {member.member_id: {partition for _, partition in member.partitions()} for member in members}


def test_the_first_member_gets_a_target() -> None:
    world = GroupWorld(image_of(foo=4))
    FakeConsumer(world, "m0", "foo").join()
    assert (written_targets(world), written_epoch(world)) == ({"m0": {0, 1, 2, 3}}, world.group().log.group_epoch)


def test_a_target_that_stays_is_not_written() -> None:
    world, members = settled(2, 4)
    epoch, before = world.group().log.group_epoch, shares(members)
    members[1].beat(subscribed_topic_names=["foo", "not there"])
    assert world.group().log.group_epoch == epoch + 1
    assert (written_targets(world), written_epoch(world)) == ({}, epoch + 1)
    reconcile(*members)
    assert shares(members) == before


def test_a_new_member_takes_from_those_that_have_more() -> None:
    world, members = settled(2, 6)
    before = shares(members)
    FakeConsumer(world, "new", "foo").join()
    written = written_targets(world)
    assert written.keys() == {"m0", "m1", "new"}
    for member_id, partitions in before.items():
        kept = written[member_id]
        assert kept is not None
        assert kept < partitions
    assert written["new"] == set(range(6)) - (written["m0"] or set()) - (written["m1"] or set())


def test_only_the_targets_that_change_are_written() -> None:
    world, members = settled(3, 6)
    before = shares(members)
    world.image = image_of(2, foo=7)
    members[0].beat()
    ((member_id, partitions),) = written_targets(world).items()
    assert partitions == before[member_id] | {6}


def test_the_others_get_what_a_member_that_left_had() -> None:
    world, members = settled(3, 6)
    before = shares(members)
    members[2].leave()
    assert written_targets(world) == {"m2": None}, "its own target goes with it"
    members[0].beat()
    written = written_targets(world)
    assert written.keys() == {"m0", "m1"}
    assert all(before[member_id] < (written[member_id] or set()) for member_id in written)


def test_a_member_that_subscribes_to_more_gets_its_share_of_that() -> None:
    world = GroupWorld(image_of(foo=2, bar=2))
    first, second = FakeConsumer(world, "m0", "foo", "bar"), FakeConsumer(world, "m1", "bar")
    first.join()
    second.join()
    reconcile(first, second)
    assert len(second.partitions()) == 2
    second.beat(subscribed_topic_names=["foo", "bar"])
    assert written_epoch(world) == world.group().log.group_epoch
    reconcile(first, second)
    assert (len(first.partitions()), len(second.partitions())) == (2, 2)
    assert sorted(first.partitions() + second.partitions()) == [("bar", 0), ("bar", 1), ("foo", 0), ("foo", 1)]


def test_a_static_member_comes_back_to_its_target() -> None:
    world, members = settled(3, 6, instance_id="i")
    before = shares(members)
    members[2].leave(-2)
    FakeConsumer(world, "again", "foo", instance_id="i2").join()
    assert written_targets(world) == {"m2": None, "again": before["m2"]}
    assert written_epoch(world) is None, "the target is the one before, by the same epoch"


def test_topics_that_an_expression_matches_are_assigned_like_named_ones() -> None:
    world = GroupWorld(image_of(foo=2, fooo=2, bar=2))
    by_name, by_regex = FakeConsumer(world, "m0", "bar"), FakeConsumer(world, "m1", subscribed_topic_regex="foo.*")
    by_name.join()
    by_regex.join()
    reconcile(by_name, by_regex)
    assert by_name.partitions() == [("bar", 0), ("bar", 1)]
    assert by_regex.partitions() == [("foo", 0), ("foo", 1), ("fooo", 0), ("fooo", 1)]
