"""Requests of classic members to a KIP-848 group, and what an upgrade refuses.

After Apache Kafka's GroupMetadataManagerTest.
"""

from typing import Any

import pytest

from kafkapy.group.consumer.member import MemberState
from kafkapy.protocol.error_code import ErrorCode
from tests.support.consumer_groups import error_of
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
from tests.support.migration_script import assignment
from tests.support.mixed_groups import MixedWorld

UNKNOWN, FENCED = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID


def mixed(world: MixedWorld) -> int:
    """Bring classic members "c" and "s", the latter static, to a generation beside a modern one; return it."""
    modern(world).join()
    for member_id, fields in (("c", {}), ("", {"group_instance_id": "i"})):
        world.joined(world.join(member_id, protocols=speaks(), **fields))
    return world.consumer_group.log.assignment_epoch


@pytest.mark.parametrize(
    ("member_id", "instance_id", "expected"),
    [
        ("stranger", None, UNKNOWN),
        ("stranger", "another", UNKNOWN),
        ("c", "another", UNKNOWN),
        ("stranger", "i", FENCED),
        ("m", None, UNKNOWN),
    ],
)
def test_only_classic_members_send_classic_requests(
    member_id: str, instance_id: str | None, expected: ErrorCode
) -> None:
    world = world_of()
    generation = mixed(world)

    assert world.code(world.sync(member_id, generation, group_instance_id=instance_id)) == expected
    assert world.heartbeat(member_id, generation, instance_id) == expected
    if instance_id is not None:
        assert world.code(world.join(member_id, group_instance_id=instance_id, protocols=speaks())) == expected


def test_a_generation_and_a_protocol_have_to_be_those_of_the_member() -> None:
    world = world_of()
    mixed(world)
    generation = rejoin(world, "c").generation_id

    for wrong in (generation - 1, generation + 1):
        assert world.code(world.sync("c", wrong)) == ErrorCode.ILLEGAL_GENERATION
        assert world.heartbeat("c", wrong) == ErrorCode.ILLEGAL_GENERATION
    for fields in ({"protocol_name": "roundrobin"}, {"protocol_type": "connect"}):
        assert world.code(world.sync("c", generation, **fields)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    world.synced(world.sync("c", generation, protocol_name="range", protocol_type="consumer"))


@pytest.mark.parametrize("fields", [{"protocol_type": "connect"}, {"protocols": {}}], ids=["type", "none"])
def test_a_member_of_no_consumer_does_not_join(fields: dict[str, Any]) -> None:
    world = world_of()
    modern(world).join()

    assert world.code(world.join("c", **{"protocols": speaks(), **fields})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_member_behind_the_target_has_to_join() -> None:
    world = world_of()
    generation = mixed(world)

    assert world.consumer_group.log.members["c"].member_epoch < generation
    behind = world.consumer_group.log.members["c"].member_epoch
    assert world.heartbeat("c", behind) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.code(world.sync("c", behind)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_with_partitions_to_give_gets_the_rest_and_has_to_join_again() -> None:
    world = world_of()
    (first,) = classic_group(world, (0, 1, 2, 3))
    modern(world).join()
    generation = rejoin(world, first, 0, 1, 2, 3).generation_id

    assert world.consumer_group.log.members[first].state is MemberState.UNREVOKED_PARTITIONS
    assert assigned(world, first, generation) == own_partitions(world, first)
    assert len(own_partitions(world, first)) == 2
    assert world.heartbeat(first, generation) == ErrorCode.REBALANCE_IN_PROGRESS


def test_while_the_next_target_is_delayed_a_member_goes_on() -> None:
    world = world_of(group_consumer_assignment_interval_ms=5_000)
    consumer = modern(world)
    consumer.join()
    generation = rejoin(world, "c").generation_id

    log = world.consumer_group.log
    assert (log.group_epoch, log.assignment_epoch) == (generation + 1, generation)
    assert world.heartbeat("c", generation) == ErrorCode.NONE
    assert assigned(world, "c", generation) == []

    world.advance(5_000)
    consumer.beat()
    assert world.heartbeat("c", generation) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.code(world.sync("c", generation)) == ErrorCode.REBALANCE_IN_PROGRESS


def test_members_of_both_protocols_leave_together_and_the_epoch_rises_once() -> None:
    world = world_of()
    mixed(world)
    modern(world, "other", instance_id="o").join()
    modern(world, "last").join()
    epoch = world.consumer_group.log.group_epoch

    gone = (("c", None), ("", "i"), ("other", "o"), ("stranger", None), ("", "another"), ("stranger", "o"))
    codes = [member.error_code for member in world.leave(*gone).members]

    assert codes == [0, 0, 0, UNKNOWN, UNKNOWN, FENCED]
    assert sorted(world.consumer_group.log.members) == ["last", "m"]
    assert world.consumer_group.log.group_epoch == epoch + 1
    assert [record.key.NAME for record in world.written].count("ConsumerGroupMetadataKey") == 1


def test_nobody_who_leaves_changes_nothing() -> None:
    world = world_of()
    modern(world).join()

    assert [member.error_code for member in world.leave(("stranger", None)).members] == [UNKNOWN]
    assert world.written == []


@pytest.mark.parametrize("fields", [{"member_id": "new"}, {"member_id": "c"}, {"group_instance_id": "i"}])
def test_without_migrations_no_classic_member_joins_not_even_one_that_is_there(fields: dict[str, Any]) -> None:
    world = world_of()
    mixed(world)
    modern(world, "o", instance_id="o").join()
    world.config = type(world.config)(group_consumer_migration_policy="disabled")

    for each in (fields, {"group_instance_id": "o"}):
        assert world.code(world.join(**each, protocols=speaks())) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(("user_data", "is_refused"), [(None, False), (b"", False), (b"x", True)])
def test_a_group_whose_assignor_has_data_of_its_own_is_not_upgraded(user_data: bytes | None, is_refused: bool) -> None:
    world = world_of()
    (first,) = classic_group(world, (0, 1, 2, 3))
    generation = world.joined(world.join(first, protocols=speaks())).generation_id
    given = assignment(0, 1, 2, 3, user_data=user_data, topic=TOPIC)
    world.synced(world.sync(first, generation, {first: given}))

    if not is_refused:
        modern(world).join()
        assert own_partitions(world, first) == [0, 1, 2, 3]
        return
    code, message = error_of(modern(world).join)
    assert code == ErrorCode.GROUP_ID_NOT_FOUND
    assert message == (
        "Cannot upgrade classic group g to consumer group because an unsupported custom assignor is in use. Please "
        "refer to the documentation or switch to a default assignor before re-attempting the upgrade."
    )
    assert world.is_classic
