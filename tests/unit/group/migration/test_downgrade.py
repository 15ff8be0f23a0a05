"""KIP-848 groups that become classic ones."""

from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.classic.states import ClassicState
from kafkapy.protocol.error_code import ErrorCode
from tests.support.consumer_groups import FakeConsumer, image_of
from tests.support.converted_groups import TOPIC, assigned, modern, rejoin, speaks, world_of
from tests.support.migration_script import assignment, subscription
from tests.support.mixed_groups import MixedWorld


def mixed_group(world: MixedWorld) -> tuple[FakeConsumer, str]:
    """Return a modern and a classic member, both where they belong."""
    consumer = modern(world)
    consumer.join()
    rejoin(world, "c")
    for _ in range(3):
        consumer.beat()
    rejoin(world, "c")
    assigned(world, "c", 3)
    assert world.consumer_group.state_name == "Stable"
    return consumer, "c"


def test_group_becomes_classic_when_the_last_modern_member_leaves() -> None:
    world = world_of()
    consumer, classic_id = mixed_group(world)

    consumer.leave()

    group = world.group
    assert (group.log.state, group.log.generation, group.log.protocol_name) == (
        ClassicState.PREPARING_REBALANCE,
        3,
        "range",
    )
    assert assigned_partitions(group.log.members[classic_id].assignment) == {("t", 2), ("t", 3)}
    assert world.heartbeat(classic_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    response = rejoin(world, classic_id, 2, 3)
    assert (response.generation_id, response.leader) == (4, classic_id)


def test_new_coordinator_goes_on_with_the_rebalance_of_a_group_that_has_become_classic() -> None:
    world = world_of()
    consumer, classic_id = mixed_group(world)
    consumer.leave()

    world.restart()

    assert (world.group.log.state, world.group.log.generation) == (ClassicState.PREPARING_REBALANCE, 3)
    assert world.heartbeat(classic_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(world, classic_id, 2, 3)
    world.synced(world.sync(classic_id, 4, {classic_id: assignment(0, 1, 2, 3, topic=TOPIC)}))
    world.restart()
    assert (world.group.log.state, world.group.log.generation) == (ClassicState.STABLE, 4)


def test_group_becomes_classic_when_the_last_modern_member_is_not_heard_of() -> None:
    world = world_of()
    _, classic_id = mixed_group(world)
    for _ in range(15):
        world.advance(3_000)
        world.heartbeat(classic_id, 3)

    assert world.is_classic
    assert [member.member_id for member in world.group.log.members] == [classic_id]


def test_group_becomes_classic_when_the_modern_member_does_not_revoke_in_time() -> None:
    world = world_of()
    consumer = modern(world, rebalance_timeout_ms=9_000)
    consumer.join()
    rejoin(world, "c")
    assigned(world, "c", 3)
    consumer.beat()
    for _ in range(2):
        world.advance(4_000)
        world.heartbeat("c", 3)
    assert not world.is_classic

    world.advance(1_000)

    assert world.is_classic


def test_administrator_may_remove_modern_members_by_leave_group() -> None:
    world = world_of()
    mixed_group(world)

    response = world.leave(("m", None), ("m", None), ("stranger", None))

    assert [member.error_code for member in response.members] == [0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.is_classic


def test_group_stays_where_the_policy_or_its_size_keeps_it() -> None:
    for config in ({"group_consumer_migration_policy": "upgrade"}, {"group_max_size": 0}):
        world = world_of(**config)
        consumer, classic_id = mixed_group(world)
        consumer.leave()
        assert list(world.consumer_group.log.members) == [classic_id]
        world.leave((classic_id, None))
        assert world.consumer_group.state_name == "Empty"


def test_last_member_leaves_a_group_of_the_kind_that_it_was() -> None:
    world = world_of()
    consumer = modern(world)
    consumer.join()

    consumer.leave()

    assert world.consumer_group.state_name == "Empty"


def test_static_member_that_comes_back_classic_makes_no_rebalance() -> None:
    world = world_of()
    consumer = modern(world, instance_id="i")
    consumer.join()
    consumer.leave(-2)

    joined = world.joined(world.join(group_instance_id="i", protocols=speaks()))

    assert (world.group.log.state, joined.generation_id, world.group.log.generation) == (ClassicState.STABLE, 2, 2)
    response = world.synced(world.sync(joined.member_id, 2, group_instance_id="i"))
    assert len(assigned_partitions(response.assignment)) == 4


def test_static_member_that_comes_back_classic_lets_those_who_wait_rebalance() -> None:
    world = world_of()
    consumer = modern(world, instance_id="i")
    consumer.join()
    assert assigned(world, "c", rejoin(world, "c").generation_id) == []

    world.joined(world.join(group_instance_id="i", protocols=speaks()))

    assert world.group.log.state is ClassicState.PREPARING_REBALANCE
    assert world.heartbeat("c", 3) == ErrorCode.REBALANCE_IN_PROGRESS


def test_static_member_that_comes_back_classic_with_another_subscription_rebalances() -> None:
    world = MixedWorld(image_of(t=4, u=1))
    consumer = modern(world, instance_id="i")
    consumer.join()

    other = subscription(topic="u")
    response = world.joined(world.join(group_instance_id="i", protocols={"range": other}))

    assert (world.group.log.state, world.group.log.generation) == (ClassicState.PREPARING_REBALANCE, 2)
    assert world.code(world.sync(response.member_id, response.generation_id, group_instance_id="i"))


def test_expression_of_a_static_member_is_forgotten_when_it_comes_back_classic() -> None:
    world = world_of()
    other = modern(world, "other")
    other.join()
    consumer = modern(world, instance_id="i", subscribed_topic_names=None, subscribed_topic_regex="t.*")
    consumer.join()
    assert list(world.consumer_group.log.subscriptions.resolved) == ["t.*"]

    world.joined(world.join(group_instance_id="i", protocols=speaks()))

    assert not world.consumer_group.log.subscriptions.resolved
    assert "ConsumerGroupRegularExpressionKey" in [record.key.NAME for record in world.written if record.value is None]


def test_an_expression_of_members_that_an_administrator_removes_is_forgotten() -> None:
    world = world_of()
    by_regex = {"subscribed_topic_names": None, "subscribed_topic_regex": "t.*"}
    for member_id, fields in (("a", by_regex), ("b", by_regex), ("c", {})):
        modern(world, member_id, instance_id=member_id, **fields).join()

    assert [member.error_code for member in world.leave(("", "a")).members] == [0]
    assert list(world.consumer_group.log.subscriptions.resolved) == ["t.*"]
    assert [member.error_code for member in world.leave(("b", "b")).members] == [0]
    assert not world.consumer_group.log.subscriptions.resolved
    assert list(world.consumer_group.log.members) == ["c"]


def test_downgrade_that_is_not_written_is_tried_again() -> None:
    world = world_of()
    _, classic_id = mixed_group(world)
    world.log_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for _ in range(16):
        world.advance(3_000)
        world.heartbeat(classic_id, 3)
    assert not world.is_classic

    world.log_error = None
    world.advance(1_000)

    assert world.is_classic


def test_member_whose_metadata_cannot_be_read_keeps_the_group_what_it_is() -> None:
    world = world_of()
    consumer = modern(world)
    consumer.join()
    world.joined(world.join("c", protocols={"range": subscription(topic=TOPIC), "sticky": b""}))

    consumer.leave()

    assert list(world.consumer_group.log.members) == ["c"]
