"""Joins to a classic group, after Apache Kafka's GroupMetadataManagerTest: full groups, static members, time-outs."""

from typing import Any

import pytest

from kafkapy.group.classic.join import NEW_MEMBER_JOIN_TIMEOUT_MS
from kafkapy.group.classic.rebalance import MAX_PENDING_MEMBERS
from kafkapy.group.classic.states import ClassicState
from kafkapy.protocol.error_code import ErrorCode
from tests.support.classic_groups import ClassicWorld

MAX_SIZE = 3
NONE, FULL = ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED
BOTH = {"range": b"r", "roundrobin": b"b"}
LATE: dict[str, Any] = {"rebalance_timeout_ms": 10_000, "session_timeout_ms": 15_000}
"""Sessions that outlast a rebalance."""


# -- full groups ------------------------------------------------------------------------------------------------------


def joining_ids(world: ClassicWorld, kind: str) -> tuple[list[dict[str, Any]], list[int]]:
    """Return what each of one member too many joins with, and the tokens of their first joins."""
    if kind == "static":
        fields: list[dict[str, Any]] = [{"group_instance_id": f"i{number}"} for number in range(MAX_SIZE + 1)]
    elif kind == "dynamic":
        fields = [{"member_id": world.new_id()} for _ in range(MAX_SIZE + 1)]
    else:
        fields = [{"version": 3} for _ in range(MAX_SIZE + 1)]
    return fields, [world.join(**each) for each in fields]


@pytest.mark.parametrize("kind", ["dynamic", "without id", "static"])
def test_of_one_too_many_the_last_is_refused_each_time(kind: str) -> None:
    world = ClassicWorld(group_max_size=MAX_SIZE, group_initial_rebalance_delay_ms=50)
    fields, tokens = joining_ids(world, kind)
    world.advance(100)
    responses = [world.take(token) for token in tokens]
    assert [response.error_code for response in responses] == [*[NONE] * MAX_SIZE, FULL]
    assert len(world.group.log.members) == MAX_SIZE

    again = [
        world.join(**{**each, "member_id": response.member_id or each.get("member_id", "")})
        for each, response in zip(fields, responses, strict=True)
    ]
    assert [world.code(token) for token in again] == [*[NONE] * MAX_SIZE, FULL]
    assert world.group.log.state is ClassicState.COMPLETING_REBALANCE
    assert len(world.group.log.members) == MAX_SIZE


def test_who_waits_in_a_full_group_may_join_again() -> None:
    world = ClassicWorld(group_max_size=MAX_SIZE, group_initial_rebalance_delay_ms=50)
    fields, first = joining_ids(world, "dynamic")
    assert [world.is_waiting(token) for token in first] == [*[True] * MAX_SIZE, False]
    again = [world.join(**each) for each in fields]
    world.advance(100)
    assert [world.code(token) for token in again] == [*[NONE] * MAX_SIZE, FULL]
    assert len(world.group.log.members) == MAX_SIZE


def test_of_a_group_that_has_become_too_large_the_last_to_join_again_are_out() -> None:
    world = ClassicWorld(group_max_size=MAX_SIZE + 2)
    ids = world.stable(MAX_SIZE + 2)
    world.config = type(world.config)(group_max_size=MAX_SIZE, group_initial_rebalance_delay_ms=0)
    tokens = [world.join(member_id) for member_id in ids]
    assert [world.code(token) for token in tokens] == [*[NONE] * MAX_SIZE, FULL, FULL]
    assert [member.member_id for member in world.group.log.members] == ids[:MAX_SIZE]


# -- new members ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_first", [False, True])
def test_a_new_member_that_waits_too_long_is_gone(is_first: bool) -> None:
    """It is waiting for the others, or for the first rebalance of the group."""
    long_ms = NEW_MEMBER_JOIN_TIMEOUT_MS * 2
    world = ClassicWorld(group_initial_rebalance_delay_ms=long_ms if is_first else 0)
    ids = [] if is_first else world.stable(session_timeout_ms=long_ms, rebalance_timeout_ms=long_ms)
    token = world.join(version=3, rebalance_timeout_ms=long_ms)
    world.advance(NEW_MEMBER_JOIN_TIMEOUT_MS - 1)
    assert world.is_waiting(token)
    world.advance(1)
    assert world.code(token) == ErrorCode.UNKNOWN_MEMBER_ID
    assert [member.member_id for member in world.group.log.members] == ids


def test_a_member_has_its_own_session_once_it_has_joined() -> None:
    session_ms = NEW_MEMBER_JOIN_TIMEOUT_MS + 5_000
    world = ClassicWorld()
    world.stable(session_timeout_ms=session_ms)
    world.advance(session_ms - 1)
    assert len(world.group.log.members) == 1
    world.advance(1)
    assert world.group.log.state is ClassicState.EMPTY
    assert world.group.log.generation == 2


def test_an_id_is_still_to_be_used_after_a_join_without_protocols() -> None:
    world = ClassicWorld()
    member_id = world.new_id()
    assert world.code(world.join(member_id, protocols={})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    token = world.join(member_id)
    world.advance(0)
    assert world.joined(token).member_id == member_id


@pytest.mark.parametrize("end", ["joins", "leaves", "times out"])
def test_the_others_wait_for_an_id_that_was_given_out(end: str) -> None:
    world = ClassicWorld()
    ids = world.stable(2, session_timeout_ms=60_000)
    pending = world.new_id(session_timeout_ms=10_000)
    tokens = [world.join(member_id, protocols=BOTH, session_timeout_ms=60_000) for member_id in ids]
    assert all(world.is_waiting(token) for token in tokens)
    if end == "joins":
        tokens.append(world.join(pending))
    elif end == "leaves":
        assert world.leave(("", "unknown"), (pending, None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    else:
        world.advance(10_000)
    assert {world.joined(token).generation_id for token in tokens} == {2}
    assert (pending in world.group.log.members) == (end == "joins")


def test_an_id_that_was_given_out_is_of_no_instance() -> None:
    """Apache Kafka fails there with UNKNOWN_SERVER_ERROR."""
    world = ClassicWorld()
    member_id = world.new_id()
    assert world.code(world.join(member_id, group_instance_id="i")) == ErrorCode.UNKNOWN_MEMBER_ID


def test_of_too_many_ids_that_were_given_out_the_oldest_is_forgotten() -> None:
    world = ClassicWorld()
    oldest, *others = [world.new_id() for _ in range(MAX_PENDING_MEMBERS + 1)]
    assert len(world.group.rebalance.pending_members) == MAX_PENDING_MEMBERS <= 1_000
    assert world.code(world.join(oldest)) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.is_waiting(world.join(others[0]))


@pytest.mark.parametrize("has_stranger", [False, True])
def test_members_and_an_id_that_was_given_out_leave_together(has_stranger: bool) -> None:
    world = ClassicWorld()
    ids = [*world.stable(2), world.new_id(), *(["stranger"] if has_stranger else [])]
    codes = [member.error_code for member in world.leave(*((member_id, None) for member_id in ids)).members]
    assert codes == [NONE, NONE, NONE, *([ErrorCode.UNKNOWN_MEMBER_ID] if has_stranger else [])]
    assert world.group.log.state is ClassicState.EMPTY
    assert not world.group.rebalance.pending_members


# -- sessions and time-outs -------------------------------------------------------------------------------------------


def test_a_loaded_group_gives_each_member_a_session() -> None:
    world = ClassicWorld()
    ids = world.stable(2, session_timeout_ms=20_000)
    world.advance(15_000)
    world.restart()
    world.advance(19_999)
    assert [member.member_id for member in world.group.log.members] == ids
    world.advance(1)
    assert not list(world.group.log.members)


def test_members_have_their_sessions_after_a_rebalance() -> None:
    world = ClassicWorld()
    (first,) = world.stable()
    newcomer = world.join(version=3)
    joined = [world.joined(world.join(first)), world.joined(newcomer)]
    world.sync_all(joined)
    for _ in range(4):
        world.advance(9_999)
        assert {world.heartbeat(each.member_id, 2) for each in joined} == {NONE}
    world.advance(9_999)
    assert world.heartbeat(first, 2) == NONE
    world.advance(1)
    assert [member.member_id for member in world.group.log.members] == [first]


@pytest.mark.parametrize("who", ["nobody", "leader", "followers", "all"])
def test_who_does_not_sync_in_time_is_out(who: str) -> None:
    world = ClassicWorld()
    ids = [world.new_id() for _ in range(3)]
    fields: dict[str, Any] = {"rebalance_timeout_ms": 5_000, "session_timeout_ms": 6_000}
    tokens = [world.join(member_id, **fields) for member_id in ids]
    world.advance(0)
    leader = world.joined(tokens[0]).leader
    syncing = {"nobody": [], "leader": ids[:1], "followers": ids[1:], "all": ids}[who]
    assert leader == ids[0]
    world.advance(2_500)
    assert {world.heartbeat(member_id, 1) for member_id in ids} == {NONE}
    syncs = [world.sync(member_id, 1) for member_id in reversed(syncing)]

    world.advance(2_500)

    assert [member.member_id for member in world.group.log.members] == syncing
    code = {"nobody": None, "followers": ErrorCode.REBALANCE_IN_PROGRESS}.get(who, NONE)
    assert [world.code(token) for token in syncs] == [code] * len(syncing)
    late = set(ids) - set(syncing)
    assert {world.heartbeat(member_id, 1) for member_id in late} <= {ErrorCode.UNKNOWN_MEMBER_ID}
    expected = {"nobody": ClassicState.EMPTY, "all": ClassicState.STABLE}.get(who, ClassicState.PREPARING_REBALANCE)
    assert world.group.log.state is expected


# -- static members ---------------------------------------------------------------------------------------------------


def static_pair(world: ClassicWorld, **fields: Any) -> tuple[str, str]:
    """Bring two static members, "leader" and "follower", to a stable generation; return their ids."""
    tokens = [world.join(group_instance_id=name, protocols=BOTH, **fields) for name in ("leader", "follower")]
    world.advance(0)
    responses = [world.joined(token) for token in tokens]
    if responses[0].generation_id != responses[1].generation_id:
        token = world.join(responses[0].member_id, group_instance_id="leader", protocols=BOTH, **fields)
        responses[0] = world.joined(token)
    world.sync_all(responses)
    assert world.group.log.state is ClassicState.STABLE
    leader, follower = (str(response.member_id) for response in responses)
    assert world.group.log.members.leader_id == leader
    return leader, follower


def test_while_only_static_members_are_away_the_group_waits() -> None:
    world = ClassicWorld()
    ids = dict(zip(("leader", "follower"), static_pair(world, rebalance_timeout_ms=10_000), strict=True))
    newcomer = world.join(world.new_id(), rebalance_timeout_ms=10_000, protocols=BOTH)
    generation = world.group.log.generation
    world.leave((next(each for each in world.group.rebalance.parked_joins), None))
    assert world.code(newcomer) == ErrorCode.UNKNOWN_MEMBER_ID
    for _ in range(6):
        world.advance(5_000)
        for name, member_id in ids.items():
            assert world.heartbeat(member_id, generation, name) == ErrorCode.REBALANCE_IN_PROGRESS
    assert (world.group.log.state, world.group.log.generation) == (ClassicState.PREPARING_REBALANCE, generation)
    tokens = [
        world.join(member_id, group_instance_id=name, rebalance_timeout_ms=10_000, protocols=BOTH)
        for name, member_id in ids.items()
    ]
    assert {world.joined(token).generation_id for token in tokens} == {generation + 1}


@pytest.mark.parametrize("knows_its_id", [False, True])
def test_a_static_member_that_comes_back_with_less_changes_the_protocol(knows_its_id: bool) -> None:
    """The leader does not join in time. It stays in the group, and the one that has joined leads."""
    world = ClassicWorld()
    leader, follower = static_pair(world, **LATE)
    generation = world.group.log.generation
    assert world.group.log.protocol_name == "range"
    member_id = follower if knows_its_id else ""
    token = world.join(member_id, group_instance_id="follower", protocols={"roundrobin": b"b"}, **LATE)
    assert world.is_waiting(token)
    world.advance(10_000)
    response = world.joined(token)
    assert (response.generation_id, response.protocol_name) == (generation + 1, "roundrobin")
    assert response.leader == response.member_id
    assert (response.member_id == follower) == knows_its_id
    assert {member.group_instance_id for member in response.members} == {"leader", "follower"}
    assert world.group.log.members.find(leader) is not None


def test_a_static_member_that_comes_back_with_less_of_the_same_protocol_has_what_it_had() -> None:
    world = ClassicWorld()
    leader, follower = static_pair(world)
    generation = world.group.log.generation
    response = world.joined(world.join(group_instance_id="follower", protocols={"range": b"r"}))
    assert (response.generation_id, response.leader, response.members) == (generation, leader, [])
    assert not response.skip_assignment
    assert response.member_id != follower

    assert world.code(world.join(follower, group_instance_id="follower")) == ErrorCode.FENCED_INSTANCE_ID
    stale = world.sync(follower, generation, group_instance_id="follower")
    assert world.code(stale) == ErrorCode.FENCED_INSTANCE_ID
    synced = world.synced(world.sync(response.member_id, generation, group_instance_id="follower"))
    assert synced.assignment == follower.encode()
    assert world.group.log.state is ClassicState.STABLE


def test_a_static_member_whose_replacement_was_not_written_goes_on() -> None:
    world = ClassicWorld()
    leader, follower = static_pair(world)
    world.log_error = ErrorCode.UNKNOWN_SERVER_ERROR
    assert world.code(world.join(group_instance_id="follower", protocols=BOTH)) == ErrorCode.UNKNOWN_SERVER_ERROR
    world.log_error = None
    tokens = [
        world.join(member_id, group_instance_id=name, protocols={"range": b"changed"})
        for name, member_id in (("follower", follower), ("leader", leader))
    ]
    world.sync_all([world.joined(token) for token in tokens])
    assert world.group.log.state is ClassicState.STABLE


def test_a_static_member_gets_another_id_each_time_it_comes_back_without_one() -> None:
    world = ClassicWorld()
    leader, _ = static_pair(world)
    ids = {leader} | {world.joined(world.join(group_instance_id="leader", protocols=BOTH)).member_id for _ in range(5)}
    assert len(ids) == 6
    assert len(world.group.log.members) == 2


def test_a_known_id_of_another_instance_is_refused() -> None:
    world = ClassicWorld()
    leader, follower = static_pair(world)
    for member_id, instance_id, expected in [
        (follower, "leader", ErrorCode.FENCED_INSTANCE_ID),
        (leader, "follower", ErrorCode.FENCED_INSTANCE_ID),
        ("unknown", "leader", ErrorCode.FENCED_INSTANCE_ID),
        (leader, "unknown", ErrorCode.UNKNOWN_MEMBER_ID),
    ]:
        assert world.code(world.join(member_id, group_instance_id=instance_id, protocols=BOTH)) == expected
        sync = world.sync(member_id, world.group.log.generation, group_instance_id=instance_id)
        assert world.code(sync) == expected
        assert world.heartbeat(member_id, world.group.log.generation, instance_id) == expected
        assert world.leave((member_id, instance_id)).members[0].error_code == expected
    assert world.group.log.state is ClassicState.STABLE


def test_a_static_member_leaves_whatever_its_id_is() -> None:
    world = ClassicWorld()
    static_pair(world)
    response = world.leave(("", "unknown"), ("", "follower"), ("other", "leader"))
    codes = [member.error_code for member in response.members]
    assert codes == [ErrorCode.UNKNOWN_MEMBER_ID, NONE, ErrorCode.FENCED_INSTANCE_ID]
    assert [member.instance_id for member in world.group.log.members] == ["leader"]


def test_a_member_that_missed_the_rebalance_is_removed_when_its_session_ends() -> None:
    """The others go on without it: the next generation has the static member that was away, and the one after not."""
    world = ClassicWorld()
    token = world.join(group_instance_id="i", **LATE)
    world.advance(0)
    away = world.joined(token).member_id
    world.synced(world.sync(away, 1))
    token = world.join(version=3, **LATE)
    world.advance(10_000)
    newcomer = world.joined(token)
    assert (newcomer.generation_id, len(newcomer.members)) == (2, 2)
    world.synced(world.sync(newcomer.member_id, 2))
    assert world.heartbeat(away, 1) == ErrorCode.ILLEGAL_GENERATION

    codes = []
    for _ in range(2):
        world.advance(5_000)
        codes.append(world.heartbeat(newcomer.member_id, 2))
    assert codes[-1] == ErrorCode.REBALANCE_IN_PROGRESS
    assert away not in world.group.log.members
    again = world.joined(world.join(newcomer.member_id, **LATE))
    assert (again.generation_id, [member.member_id for member in again.members]) == (3, [newcomer.member_id])
