"""What a classic group knows of its members' subscriptions, and when its offsets expire and it may be deleted."""

from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.states import ClassicState
from kafkapy.protocol.error_code import ErrorCode
from tests.support.classic_groups import WALL_START_MS, ClassicWorld
from tests.support.migration_script import subscription

READABLE: dict[str, Any] = {"protocols": {"range": subscription(topic="topic")}}
COMMITTED_MS = 20_000


def code_of(call: Any, *arguments: Any) -> ErrorCode:
    try:
        call(*arguments)
    except ApiError as error:
        return ErrorCode(error.code)
    return ErrorCode.NONE


def empty_after(**fields: Any) -> ClassicWorld:
    """Return a group that its only member has left."""
    world = ClassicWorld()
    (member_id,) = world.stable(**fields)
    world.leave((member_id, None))
    return world


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        (READABLE, {"topic": True, "other": False}),
        ({"protocols": {"range": b"unreadable"}}, {"topic": True, "other": True}),
        ({"protocols": {"range": b""}}, {"topic": True, "other": True}),
        ({**READABLE, "protocol_type": "connect"}, {"topic": False, "other": False}),
    ],
    ids=["consumers", "consumers whose subscriptions cannot be read", "without subscriptions", "others"],
)
def test_a_group_is_subscribed_to_what_its_members_read(fields: dict[str, Any], expected: dict[str, bool]) -> None:
    world = ClassicWorld()
    member_ids = world.stable(2, **fields)
    assert {topic: world.group.is_subscribed_to(topic) for topic in expected} == expected
    world.leave(*((each, None) for each in member_ids))
    assert {topic: world.group.is_subscribed_to(topic) for topic in expected} == dict.fromkeys(expected, False)


def test_offsets_of_a_group_that_never_had_members_expire_by_their_commit() -> None:
    world = ClassicWorld()
    world.new_id()
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) == COMMITTED_MS


@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_offsets_of_a_group_without_members_expire_from_then_on(protocol_type: str) -> None:
    world = empty_after(protocol_type=protocol_type)
    empty_since_ms = WALL_START_MS + world.now_ms
    world.advance(5_000)
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) == empty_since_ms


def test_offsets_of_a_stable_group_of_consumers_expire_by_their_commit() -> None:
    world = ClassicWorld()
    (member_id,) = world.stable(**READABLE)
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) == COMMITTED_MS
    world.join(world.new_id(**READABLE), **READABLE)
    assert world.group.log.state is ClassicState.PREPARING_REBALANCE
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) is None
    world.join(member_id, **READABLE)
    assert world.group.log.state is ClassicState.COMPLETING_REBALANCE
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) is None


@pytest.mark.parametrize(
    "fields",
    [{**READABLE, "protocol_type": "connect"}, {"protocols": {"range": b"unreadable"}}],
    ids=["others", "unreadable"],
)
def test_offsets_of_a_group_whose_subscriptions_are_unknown_do_not_expire(fields: dict[str, Any]) -> None:
    world = ClassicWorld()
    world.stable(**fields)
    assert world.group.offsets_unused_since_ms(COMMITTED_MS) is None


def test_a_group_is_deleted_without_members() -> None:
    world = ClassicWorld()
    (member_id,) = world.stable()
    group = world.group
    assert code_of(group.check_deletion) == ErrorCode.NON_EMPTY_GROUP
    waiting = world.join(world.new_id())
    assert group.log.state is ClassicState.PREPARING_REBALANCE
    assert code_of(group.check_deletion) == ErrorCode.NON_EMPTY_GROUP
    world.join(member_id)
    joined = world.joined(waiting)
    assert group.log.state is ClassicState.COMPLETING_REBALANCE
    assert code_of(group.check_deletion) == ErrorCode.NON_EMPTY_GROUP
    world.leave((member_id, None), (joined.member_id, None))
    assert code_of(group.check_deletion) == ErrorCode.NONE
    group.die()
    assert code_of(group.check_deletion) == ErrorCode.GROUP_ID_NOT_FOUND
    assert code_of(group.check_offset_delete) == ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("is_static", [False, True])
def test_the_leader_is_one_that_has_joined(is_static: bool) -> None:
    """The leader of the last generation does not join in time, and is left out unless it is a static member."""
    world = ClassicWorld()
    first = world.join(**({"group_instance_id": "i"} if is_static else {"member_id": world.new_id()}))
    others = [world.new_id() for _ in range(2)]
    tokens = [first, *(world.join(member_id) for member_id in others)]
    world.advance(0)
    responses = [world.joined(token) for token in tokens]
    world.sync_all([response for response in responses if response.generation_id == responses[-1].generation_id])
    leader, generation = responses[0].member_id, world.group.log.generation
    assert world.group.log.members.leader_id == leader

    tokens = [world.join(member_id, protocols={"range": b"changed"}) for member_id in others]
    for _ in range(7):
        world.advance(9_000)
        world.heartbeat(leader, generation)
    assert {world.joined(token).leader for token in tokens} == {others[0]}
    assert (world.group.log.members.find(leader) is not None) == is_static


def test_a_leader_that_joins_again_leads_again() -> None:
    world = ClassicWorld()
    leader, second = world.stable(2)
    tokens = [world.join(world.new_id()), world.join(second), world.join(leader)]
    assert {world.joined(token).leader for token in tokens} == {leader}


def test_a_member_that_joins_again_has_its_new_time_outs_and_protocols() -> None:
    world = ClassicWorld()
    (member_id,) = world.stable(protocols={"roundrobin": b"a"}, rebalance_timeout_ms=60_000, session_timeout_ms=10_000)
    changed = {"range": b"b", "roundrobin": b"a"}
    world.joined(world.join(member_id, protocols=changed, rebalance_timeout_ms=120_000, session_timeout_ms=20_000))
    member = world.group.log.members.find(member_id)
    assert member is not None
    assert (member.rebalance_timeout_ms, member.session_timeout_ms) == (120_000, 20_000)
    assert {name: member.metadata(name) for name in changed} == changed


@pytest.mark.parametrize("is_syncing", [False, True])
def test_a_static_member_that_waits_is_fenced_by_the_one_that_replaces_it(is_syncing: bool) -> None:
    world = ClassicWorld()
    (leader,) = world.stable()
    token = world.join(group_instance_id="i")
    if is_syncing:
        world.join(leader)
        static_id = world.joined(token).member_id
        token = world.sync(static_id, 2, group_instance_id="i")
    assert world.is_waiting(token)
    world.join(group_instance_id="i")
    assert world.code(token) == ErrorCode.FENCED_INSTANCE_ID
