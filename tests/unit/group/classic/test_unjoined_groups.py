"""Groups that are made by joins without a member id, and that nobody joins: bounded, the oldest ones go."""

from kafkapy.group.classic_requests import MAX_UNJOINED
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shard import FEW_DEADLINES
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_key import OffsetCommitKey
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from tests.support.classic_groups import GROUP, ClassicWorld


def make_groups(world: ClassicWorld, count: int) -> list[str]:
    """Have a member id given out for each of many groups; return the ids."""
    return [world.new_id(group_id=f"made-up-{number}") for number in range(count)]


def test_the_oldest_of_many_is_deleted_and_its_client_joins_anew() -> None:
    world = ClassicWorld()
    ids = make_groups(world, MAX_UNJOINED + 5)
    assert list(world.shard.groups) == [f"made-up-{number}" for number in range(5, MAX_UNJOINED + 5)]
    assert world.code(world.join(ids[0], group_id="made-up-0")) == ErrorCode.UNKNOWN_MEMBER_ID
    again = world.join(world.new_id(group_id="made-up-0"), group_id="made-up-0")
    newest = world.join(ids[-1], group_id=f"made-up-{len(ids) - 1}")
    world.advance(0)
    assert [world.joined(token).generation_id for token in (again, newest)] == [1, 1]


def test_groups_with_members_or_offsets_stay() -> None:
    world = ClassicWorld()
    world.stable()
    world.new_id(group_id="with offsets")
    key = OffsetCommitKey("with offsets", topic="orders", partition=0)
    world.carry_out_record(CoordinatorRecord(key, OffsetCommitValue(7, metadata="")))
    make_groups(world, 2 * MAX_UNJOINED)
    assert {GROUP, "with offsets"} <= set(world.shard.groups)
    assert len(world.shard.groups) == MAX_UNJOINED + 2


def test_a_group_that_its_members_left_stays() -> None:
    world = ClassicWorld()
    (member,) = world.stable()
    world.leave((member, None))
    make_groups(world, 2 * MAX_UNJOINED)
    assert world.group.is_empty


def test_the_next_coordinator_keeps_the_bound() -> None:
    world = ClassicWorld()
    make_groups(world, MAX_UNJOINED)
    world.restart()
    world.new_id(group_id="one more")
    assert len(world.shard.groups) == MAX_UNJOINED
    assert "made-up-0" not in world.shard.groups


def test_deadlines_of_groups_that_are_gone_are_not_kept() -> None:
    world = ClassicWorld()
    make_groups(world, 4 * MAX_UNJOINED)
    assert len(world.shard._deadlines) <= 2 * MAX_UNJOINED + FEW_DEADLINES
    world.advance(60_000)
    assert world.shard.deadline_ms() is None
