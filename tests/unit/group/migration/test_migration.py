"""Groups between the two protocols: conversions, members of the classic protocol in KIP-848 groups, their time-outs.

Answers and records of the usual ways are compared with Apache Kafka's own in tests/scenarios/test_group_migrations.py.
"""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.explain import explain
from kafkapy.protocol.error_code import ErrorCode
from tests.support.consumer_groups import error_of, image_of, topic_id
from tests.support.converted_groups import (
    TOPIC,
    assigned,
    classic_group,
    modern,
    own_partitions,
    rejoin,
    speaks,
    world_of,
)
from tests.support.migration_script import assignment, subscription
from tests.support.mixed_groups import MixedWorld, logged

SESSION_MS, REBALANCE_MS, MODERN_SESSION_MS = 10_000, 60_000, 45_000


# -- up -------------------------------------------------------------------------------------------------------------


def test_classic_members_keep_what_they_have_when_a_modern_one_joins() -> None:
    world = world_of()
    first, second = classic_group(world, (0, 1), (2, 3))

    consumer = modern(world)
    consumer.join()

    group = world.consumer_group.log
    assert (group.group_epoch, group.assignment_epoch, consumer.epoch) == (2, 2, 2)
    assert (own_partitions(world, first), own_partitions(world, second)) == ([0, 1], [2, 3])
    assert consumer.partitions() == []
    assert group.members[first].classic_session_timeout_ms == SESSION_MS
    assert logged(world.shard) == reloaded(world)


def reloaded(world: MixedWorld) -> Any:
    world.restart()
    return logged(world.shard)


def test_members_revoke_one_after_another_and_the_modern_one_gets_its_share() -> None:
    world = world_of(3)
    (first,) = classic_group(world, (0, 1, 2))
    consumer = modern(world)
    consumer.join()
    assert world.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS

    assert rejoin(world, first, 0, 1, 2).generation_id == 1
    assert assigned(world, first, 1) == [0, 1]
    assert world.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    consumer.beat()
    assert consumer.partitions() == []

    assert rejoin(world, first, 0, 1).generation_id == 2
    assert assigned(world, first, 2) == [0, 1]
    consumer.beat()
    assert consumer.partitions() == [("t", 2)]
    assert world.heartbeat(first, 2) == ErrorCode.NONE
    assert world.consumer_group.state_name == "Stable"


def test_members_of_an_eager_assignor_own_nothing_when_they_join() -> None:
    world = world_of(3)
    (first,) = classic_group(world, (0, 1, 2))
    modern(world).join()

    response = world.joined(world.join(first, protocols=speaks(version=0)))

    assert (response.generation_id, assigned(world, first, 2)) == (2, [0, 1])


def test_waiting_classic_member_has_to_join_once_its_partitions_are_free() -> None:
    world = world_of(2)
    consumer = modern(world)
    consumer.join()
    response = world.joined(world.join("c", protocols=speaks()))
    assert assigned(world, "c", response.generation_id) == []
    assert world.heartbeat("c", 3) == ErrorCode.NONE

    consumer.beat()
    consumer.beat()
    assert world.heartbeat("c", 3) == ErrorCode.REBALANCE_IN_PROGRESS

    rejoin(world, "c")
    assert assigned(world, "c", 3) == [1]
    assert world.heartbeat("c", 3) == ErrorCode.NONE


def test_waiting_joins_and_syncs_get_a_retriable_error() -> None:
    world = world_of()
    first, second = classic_group(world, (0, 1), (2, 3))
    waiting = world.join(first, protocols=speaks())
    modern(world).join()
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS

    world = world_of()
    first, second = classic_group(world, (0, 1), (2, 3))
    tokens = [world.join(member_id, protocols=speaks()) for member_id in (first, second)]
    for token in tokens:
        world.joined(token)
    waiting = world.sync(second, 2)
    modern(world).join()
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert own_partitions(world, second) == [2, 3]


def test_members_that_are_in_no_generation_yet_join_the_new_group_by_themselves() -> None:
    world = world_of(group_initial_rebalance_delay_ms=3_000)
    member_id = world.new_id(protocols=speaks())
    waiting = world.join(member_id, protocols=speaks())

    consumer = modern(world)
    consumer.join()

    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert (list(world.consumer_group.log.members), consumer.epoch) == (["m"], 2)
    assert rejoin(world, member_id).generation_id == 3


def test_static_member_comes_back_with_the_other_protocol() -> None:
    world = world_of()
    token = world.join(group_instance_id="i", protocols=speaks())
    world.advance(0)
    response = world.joined(token)
    world.sync(response.member_id, 1, {response.member_id: assignment(0, 1, 2, 3, topic=TOPIC)}, group_instance_id="i")

    consumer = modern(world, instance_id="i")
    consumer.join()

    assert list(world.consumer_group.log.members) == ["m"]
    assert len(consumer.partitions()) == 4
    assert world.heartbeat(response.member_id, 1, "i") == ErrorCode.FENCED_INSTANCE_ID


def test_partition_that_came_meanwhile_is_noticed_when_a_static_member_makes_the_upgrade() -> None:
    world = world_of(2)
    token = world.join(group_instance_id="i", protocols=speaks())
    world.advance(0)
    response = world.joined(token)
    world.sync(response.member_id, 1, {response.member_id: assignment(0, 1, topic=TOPIC)}, group_instance_id="i")
    world.image = image_of(2, t=3)

    consumer = modern(world, instance_id="i")
    consumer.join()

    assert consumer.partitions() == [("t", 0), ("t", 1), ("t", 2)]


REFUSALS = [
    ({"group_consumer_migration_policy": "DISABLED"}, "online upgrade is disabled."),
    ({"group_consumer_migration_policy": "downgrade"}, "online upgrade is disabled."),
    ({"group_consumer_max_size": 1}, "the group size exceeds the consumer group maximum size."),
]


@pytest.mark.parametrize(("config", "reason"), REFUSALS)
def test_group_that_may_not_be_converted_stays_as_it_is(config: dict[str, Any], reason: str) -> None:
    world = world_of(**config)
    first, second = classic_group(world, (0, 1), (2, 3))

    message = f"Cannot upgrade classic group g to consumer group because {reason}"
    assert error_of(modern(world).join) == (ErrorCode.GROUP_ID_NOT_FOUND, message)

    assert world.group.log.state is ClassicState.STABLE
    assert (world.heartbeat(first, 1), world.heartbeat(second, 1)) == (ErrorCode.NONE, ErrorCode.NONE)


def test_partitions_of_several_members_cannot_be_converted() -> None:
    world = world_of()
    first, _ = classic_group(world, (0, 1), (1, 2))

    message = (
        "Cannot upgrade classic group g to consumer group because its assignor gives one partition to several members."
    )
    assert error_of(modern(world).join) == (ErrorCode.GROUP_ID_NOT_FOUND, message)
    assert world.heartbeat(first, 1) == ErrorCode.NONE


def test_partitions_that_do_not_exist_are_left_behind() -> None:
    world = world_of(2)
    (first,) = classic_group(world, (0, 7))

    modern(world).join()

    assert own_partitions(world, first) == [0]
    assert world.consumer_group.log.targets["m"] == {topic_id(TOPIC): frozenset({1})}


def test_conversion_that_is_not_written_has_not_been() -> None:
    world = world_of()
    first, second = classic_group(world, (0, 1), (2, 3))
    waiting = world.join(first, protocols=speaks())
    world.log_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    with pytest.raises(ApiError):
        modern(world).join()
    world.log_error = None

    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.is_classic
    tokens = [world.join(member_id, protocols=speaks()) for member_id in (first, second)]
    assert {world.joined(token).generation_id for token in tokens} == {2}
    modern(world).join()
    assert not world.is_classic


# -- classic members of a KIP-848 group -----------------------------------------------------------------------------


def test_session_of_a_classic_member_is_its_own() -> None:
    world = world_of()
    first, _ = classic_group(world, (0, 1), (2, 3))
    consumer = modern(world)
    consumer.join()
    world.advance(SESSION_MS - 1)
    world.heartbeat(first, 1)

    world.advance(1)

    assert sorted(world.consumer_group.log.members) == sorted(["m", first])


def test_new_coordinator_gives_classic_members_the_groups_session_until_they_are_heard_of() -> None:
    world = world_of()
    first, _ = classic_group(world, (0, 1), (2, 3))
    consumer = modern(world)
    consumer.join()
    world.restart()
    world.advance(MODERN_SESSION_MS - 1)
    consumer.beat()
    world.heartbeat(first, 1)

    world.advance(1)
    assert sorted(world.consumer_group.log.members) == sorted(["m", first])
    world.advance(SESSION_MS)
    assert list(world.consumer_group.log.members) == ["m"]


def test_member_that_does_not_join_in_time_is_removed() -> None:
    world = world_of()
    (first,) = classic_group(world, (0, 1, 2, 3), rebalance_timeout_ms=20_000)
    consumer = modern(world)
    consumer.join()
    for _ in range(4):
        assert world.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
        consumer.beat()
        world.advance(5_000)

    assert world.heartbeat(first, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    consumer.beat()
    assert len(consumer.partitions()) == 4


def test_member_that_does_not_sync_in_time_is_removed() -> None:
    world = world_of()
    modern(world).join()
    response = world.joined(world.join("c", protocols=speaks(), rebalance_timeout_ms=8_000))
    world.advance(4_000)
    assert world.heartbeat("c", response.generation_id) == ErrorCode.NONE

    world.advance(4_000)

    assert "c" not in world.consumer_group.log.members


def test_sync_ends_the_wait_for_it() -> None:
    world = world_of()
    modern(world).join()
    response = world.joined(world.join("c", protocols=speaks(), rebalance_timeout_ms=8_000))
    world.synced(world.sync("c", response.generation_id))
    world.advance(8_000)

    assert world.heartbeat("c", response.generation_id) == ErrorCode.NONE


def test_policy_that_allows_nothing_refuses_classic_members() -> None:
    world = world_of(group_consumer_migration_policy="disabled")
    modern(world).join()

    assert world.code(world.join("c", protocols=speaks())) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_full_group_takes_no_classic_member() -> None:
    world = world_of(group_consumer_max_size=1)
    modern(world).join()

    assert world.code(world.join("c", protocols=speaks())) == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_protocols_must_be_common_to_the_classic_members() -> None:
    world = world_of()
    modern(world).join()
    metadata = subscription(topic=TOPIC)
    world.joined(world.join("a", protocols={"range": metadata, "sticky": metadata}))

    assert world.code(world.join("b", protocols={"roundrobin": metadata})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join("b", protocols={"sticky": metadata})).protocol_name == "sticky"
    assert world.code(world.join("c", protocols={"range": metadata})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.joined(world.join("a", protocols={"sticky": metadata, "range": metadata})).protocol_name == "sticky"


def test_assignment_is_written_in_the_version_of_the_members_subscription() -> None:
    world = world_of()
    modern(world).join()
    for version in (0, 1, 3, 9):
        metadata = version.to_bytes(2, "big") + subscription(version=min(version, 3), topic=TOPIC)[2:]
        joined = world.joined(world.join(f"c{version}", protocols={"range": metadata}))
        response = world.synced(world.sync(f"c{version}", joined.generation_id))
        assert int.from_bytes(response.assignment[:2], "big") == min(version, 3)


# -- there and back -------------------------------------------------------------------------------------------------


def test_empty_groups_change_their_kind_and_write_it_to_the_log() -> None:
    world = world_of()
    consumer = modern(world)
    consumer.join()
    consumer.leave()
    (classic_id,) = classic_group(world, (0, 1, 2, 3))
    assert [type(group) for group in reloaded_groups(world)] == [ClassicGroup]
    assert world.group.log.state is ClassicState.STABLE

    world.leave((classic_id, None))
    consumer.join()
    assert isinstance(world.shard.groups["g"], ConsumerGroup)
    assert [type(group) for group in reloaded_groups(world)] == [ConsumerGroup]


def reloaded_groups(world: MixedWorld) -> list[Any]:
    world.restart()
    return list(world.shard.groups.values())


def test_history_continues_across_conversions() -> None:
    world = world_of()
    (first,) = classic_group(world, (0, 1, 2, 3))
    consumer = modern(world)
    consumer.join()
    consumer.leave()

    reported = explain(world.shard.groups["g"], world.image).decode()

    assert f"member {first} joined" in reported
    assert "member m (client client) joined" in reported
    assert "only members of the classic protocol are left: m has gone" in reported
