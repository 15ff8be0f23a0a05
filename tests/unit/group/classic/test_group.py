"""Scenarios of classic groups: members that come, go, come back; time-outs; logs that fail; failovers."""

from typing import Any

import pytest

from kafkapy.group.classic.rebalance import MAX_PENDING_MEMBERS
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import Client
from kafkapy.group.records import CoordinatorRecord, decode_record, encode_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue, MemberMetadata
from tests.support.classic_groups import GROUP, ClassicWorld

STATIC: dict[str, Any] = {"group_instance_id": "i1"}


def last_value(world: ClassicWorld) -> GroupMetadataValue:
    record = decode_record(*world.log[-1])
    assert record is not None
    assert isinstance(record.value, GroupMetadataValue)
    return record.value


# -- member ids ------------------------------------------------------------------------------------------------------


def test_a_new_member_gets_an_id_to_come_back_with() -> None:
    world = ClassicWorld()
    assert world.new_id().startswith("client-")
    assert world.group.log.state is ClassicState.EMPTY


def test_before_version_4_a_new_member_is_let_in_at_once() -> None:
    world = ClassicWorld()
    token = world.join(version=3)
    world.advance(1)
    assert world.joined(token).generation_id == 1


def test_an_id_that_nobody_comes_back_with_does_not_hold_up_the_others() -> None:
    world = ClassicWorld()
    (leader,) = world.stable()
    world.new_id()
    token = world.join(leader)
    world.advance(9_999)
    assert world.is_waiting(token)
    world.advance(1)
    assert world.joined(token).generation_id == 2


def test_ids_that_nobody_comes_back_with_have_a_bound() -> None:
    """The oldest is forgotten: who comes with it is told to begin anew, as after its session."""
    world = ClassicWorld()
    (leader,) = world.stable()
    ids = [world.new_id() for _ in range(MAX_PENDING_MEMBERS + 2)]
    assert [world.code(world.join(each)) for each in ids[:2]] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    tokens = [world.join(each) for each in (ids[2], leader)]
    world.advance(10_000)
    assert {world.joined(token).generation_id for token in tokens} == {2}


def test_a_refused_first_join_makes_no_group() -> None:
    world = ClassicWorld()
    assert world.code(world.join(protocol_type="")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.shard.groups == {}
    assert world.log == []


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001])
def test_a_session_timeout_out_of_bounds_is_refused(session_timeout_ms: int) -> None:
    world = ClassicWorld()
    assert world.code(world.join(session_timeout_ms=session_timeout_ms)) == ErrorCode.INVALID_SESSION_TIMEOUT


def test_the_empty_group_id_is_refused() -> None:
    world = ClassicWorld()
    assert world.code(world.join(group_id="")) == ErrorCode.INVALID_GROUP_ID


# -- protocols -------------------------------------------------------------------------------------------------------


def test_the_common_protocol_with_the_most_votes_wins() -> None:
    world = ClassicWorld()
    wishes = [["sticky", "range"], ["range", "sticky"], ["range", "sticky"], ["own", "range", "sticky"]]
    ids = [world.new_id() for _ in wishes]
    tokens = [
        world.join(member_id, protocols=dict.fromkeys(names, b"m"))
        for member_id, names in zip(ids, wishes, strict=True)
    ]
    world.advance(0)
    assert {world.joined(token).protocol_name for token in tokens} == {"range"}


def test_a_member_without_a_common_protocol_is_refused() -> None:
    world = ClassicWorld()
    world.stable()
    assert world.code(world.join(protocols={"other": b""})) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.code(world.join(protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_sync_of_another_protocol_is_refused() -> None:
    world = ClassicWorld()
    (leader,) = world.stable()
    assert world.code(world.sync(leader, 1, protocol_type="connect")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.code(world.sync(leader, 1, protocol_name="sticky")) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_group_goes_from_cooperative_to_eager_as_its_members_do() -> None:
    world = ClassicWorld()
    both = {"cooperative-sticky": b"c", "range": b"r"}
    first, second = world.stable(2, protocols=both)
    assert world.group.log.protocol_name == "cooperative-sticky"
    tokens = [world.join(first, protocols={"range": b"r"}), world.join(second, protocols=both)]
    assert {world.joined(token).protocol_name for token in tokens} == {"range"}


# -- the phases ------------------------------------------------------------------------------------------------------


def test_only_the_leader_hears_of_all_members() -> None:
    world = ClassicWorld()
    ids = [world.new_id() for _ in range(3)]
    tokens = [world.join(member_id, protocols={"range": member_id.encode()}) for member_id in ids]
    world.advance(0)
    leader, *followers = [world.joined(token) for token in tokens]
    assert {member.member_id: member.metadata for member in leader.members} == {i: i.encode() for i in ids}
    assert [response.members for response in followers] == [[], []]
    assert {response.leader for response in followers} == {leader.member_id}


def test_the_first_rebalance_waits_longer_while_members_come() -> None:
    world = ClassicWorld(group_initial_rebalance_delay_ms=3_000)
    tokens = [world.join(version=3)]
    world.advance(2_000)
    tokens.append(world.join(version=3))
    world.advance(2_999)
    assert all(world.is_waiting(token) for token in tokens)
    world.advance(1_001)
    assert {world.joined(token).generation_id for token in tokens} == {1}


def test_the_first_rebalance_waits_no_longer_than_the_rebalance_timeout() -> None:
    world = ClassicWorld(group_initial_rebalance_delay_ms=3_000)
    tokens = []
    for _ in range(8):
        tokens.append(world.join(version=3, rebalance_timeout_ms=10_000))
        world.advance(1_000)
    world.advance(3_000)
    assert not any(world.is_waiting(token) for token in tokens)


def test_a_consumer_that_the_leader_left_out_gets_zero_bytes() -> None:
    world = ClassicWorld()
    leader, follower = world.stable(2)
    for member_id in (leader, follower):
        world.join(member_id)
    waiting = world.sync(follower, 2)
    world.sync(leader, 2, {leader: b"l"})
    assert world.synced(waiting).assignment == b""


def test_a_late_member_is_out_after_the_rebalance_timeout_and_the_rest_goes_on() -> None:
    world = ClassicWorld()
    leader, late = world.stable(2, session_timeout_ms=100_000)
    token = world.join(leader, session_timeout_ms=100_000)
    world.advance(60_000)
    assert world.joined(token).generation_id == 2
    assert world.heartbeat(late, 1) == ErrorCode.UNKNOWN_MEMBER_ID


def test_members_that_do_not_sync_in_time_are_out() -> None:
    world = ClassicWorld()
    leader, follower = world.stable(2, session_timeout_ms=100_000)
    for member_id in (leader, follower):
        world.join(member_id, session_timeout_ms=100_000)
    waiting = world.sync(follower, 2)
    world.advance(60_000)
    assert world.code(waiting) == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader not in world.group.log.members


def test_a_waiting_sync_of_a_member_that_leaves_is_answered() -> None:
    world = ClassicWorld()
    leader, follower = world.stable(2)
    for member_id in (leader, follower):
        world.join(member_id)
    waiting = world.sync(follower, 2)
    world.leave((follower, None))
    assert world.code(waiting) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_repeated_join_answers_the_first_one() -> None:
    world = ClassicWorld()
    leader, _ = world.stable(2)
    first = world.join(leader)
    second = world.join(leader)
    assert world.code(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.is_waiting(second)


def test_rebalances_chain_without_anybody_becoming_unknown() -> None:
    world = ClassicWorld()
    ids = world.stable(3)
    newcomer = world.new_id()
    tokens = [world.join(newcomer), *(world.join(member_id) for member_id in ids)]
    responses = [world.joined(token) for token in tokens]
    another = world.new_id()
    world.join(another)
    codes = [world.code(world.sync(response.member_id, response.generation_id)) for response in responses]
    assert codes == [ErrorCode.REBALANCE_IN_PROGRESS] * 4
    assert {world.heartbeat(response.member_id, response.generation_id) for response in responses} == {
        ErrorCode.REBALANCE_IN_PROGRESS
    }


# -- leaving ---------------------------------------------------------------------------------------------------------


def test_leaving_together_answers_each_and_rebalances_once() -> None:
    world = ClassicWorld()
    ids = world.stable(3)
    response = world.leave((ids[1], None), ("stranger", None), (ids[2], None))
    assert [member.error_code for member in response.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0]
    assert world.joined(world.join(ids[0])).generation_id == 2


def test_an_id_that_leaves_unused_makes_nobody_join_again() -> None:
    world = ClassicWorld()
    world.stable()
    assert world.leave((world.new_id(), None)).members[0].error_code == ErrorCode.NONE
    assert world.group.log.state is ClassicState.STABLE


def test_the_last_one_to_leave_leaves_an_empty_generation() -> None:
    world = ClassicWorld()
    ids = world.stable(2)
    world.leave(*((member_id, None) for member_id in ids))
    value = last_value(world)
    assert (value.generation, value.protocol, value.leader, value.members) == (2, None, None, [])
    assert value.protocol_type == "consumer"
    assert world.group.is_empty


# -- static members --------------------------------------------------------------------------------------------------


def test_a_static_member_comes_back_without_a_rebalance() -> None:
    world = ClassicWorld()
    world.stable()
    token = world.join(**STATIC)
    (leader,) = [member.member_id for member in world.group.log.members if not member.is_static]
    world.join(leader)
    static_id = world.joined(token).member_id
    world.synced(world.sync(leader, 2, {static_id: b"s"}))
    response = world.joined(world.join(client=Client("new", "/10.0.0.1"), **STATIC))
    assert response.generation_id == 2
    assert response.member_id != static_id
    assert world.group.log.state is ClassicState.STABLE
    assert world.synced(world.sync(response.member_id, 2, group_instance_id="i1")).assignment == b"s"
    assert world.heartbeat(static_id, 2, "i1") == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(static_id, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def static_leader(world: ClassicWorld, **fields: int) -> str:
    token = world.join(**STATIC, **fields)
    world.advance(0)
    leader = world.joined(token)
    world.synced(world.sync(leader.member_id, 1, {leader.member_id: b"a"}, group_instance_id="i1"))
    return str(leader.member_id)


def test_a_static_leader_gets_skip_assignment() -> None:
    world = ClassicWorld()
    static_leader(world)
    response = world.joined(world.join(version=9, **STATIC))
    assert response.skip_assignment
    assert response.leader == response.member_id
    assert [member.member_id for member in response.members] == [response.member_id]


def test_an_older_static_leader_does_not_learn_that_it_leads() -> None:
    world = ClassicWorld()
    old_id = static_leader(world)
    response = world.joined(world.join(version=8, **STATIC))
    assert not response.skip_assignment
    assert (response.leader, response.members) == (old_id, [])


def test_a_static_member_that_comes_back_without_a_common_protocol_is_refused() -> None:
    world = ClassicWorld()
    static_leader(world)
    assert world.code(world.join(protocols={"sticky": b"m"}, **STATIC)) == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_static_member_stays_while_it_is_away() -> None:
    world = ClassicWorld()
    static_leader(world, session_timeout_ms=100_000)
    token = world.join(world.new_id(), session_timeout_ms=100_000)
    world.advance(60_000)
    response = world.joined(token)
    assert response.leader == response.member_id
    assert [member.group_instance_id for member in response.members] == ["i1", None]


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    world = ClassicWorld()
    static_leader(world)
    assert world.leave(("", "i1")).members[0].error_code == ErrorCode.NONE
    assert world.group.is_empty


def test_a_replacement_that_cannot_be_written_is_taken_back() -> None:
    world = ClassicWorld()
    old_id = static_leader(world)
    world.log_error = ErrorCode.NOT_COORDINATOR
    assert world.code(world.join(**STATIC)) == ErrorCode.NOT_COORDINATOR
    world.log_error = None
    assert world.heartbeat(old_id, 1, "i1") == ErrorCode.NONE
    assert world.group.log.members.leader_id == old_id


# -- sizes -----------------------------------------------------------------------------------------------------------


def test_a_full_group_takes_nobody_else() -> None:
    world = ClassicWorld(group_max_size=2)
    world.stable(2)
    response = world.take(world.join())
    assert (response.error_code, response.member_id) == (ErrorCode.GROUP_MAX_SIZE_REACHED, "")


def test_a_group_that_is_loaded_too_large_keeps_the_first_to_come() -> None:
    world = ClassicWorld()
    ids = world.stable(3)
    world.config = type(world.config)(group_max_size=2, group_initial_rebalance_delay_ms=0)
    world.restart()
    tokens = [world.join(member_id) for member_id in ids]
    codes = [world.code(token) for token in tokens]
    assert codes == [ErrorCode.NONE, ErrorCode.NONE, ErrorCode.GROUP_MAX_SIZE_REACHED]


# -- the log ---------------------------------------------------------------------------------------------------------


def test_an_assignment_that_cannot_be_written_has_all_join_again() -> None:
    world = ClassicWorld()
    leader, follower = world.stable(2)
    for member_id in (leader, follower):
        world.join(member_id)
    waiting = world.sync(follower, 2)
    world.log_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.code(world.sync(leader, 2, {leader: b"l"})) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.code(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.group.log.state is ClassicState.PREPARING_REBALANCE


def test_a_first_join_that_cannot_be_written_leaves_no_group() -> None:
    world = ClassicWorld()
    world.log_error = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert world.code(world.join()) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    world.log_error = None
    assert GROUP not in world.shard.groups
    assert world.new_id()


def loaded(value: GroupMetadataValue, version: int) -> ClassicWorld:
    """Return a coordinator that has loaded the record from its log."""
    world = ClassicWorld()
    (_, key, _, _) = encode_record(CoordinatorRecord(GroupMetadataKey(GROUP), value), 0)
    world.log.append((key, version.to_bytes(2, "big") + value.encode(version)))
    world.restart()
    return world


def member_record(member_id: str, instance_id: str | None = None, *, assignment: bytes = b"a") -> MemberMetadata:
    return MemberMetadata(
        member_id,
        group_instance_id=instance_id,
        client_id="c",
        client_host="/h",
        rebalance_timeout=60_000,
        session_timeout=10_000,
        subscription=b"s",
        assignment=assignment,
    )


@pytest.mark.parametrize("version", range(5))
def test_records_of_every_version_are_loaded(version: int) -> None:
    value = GroupMetadataValue("consumer", generation=7, protocol="range", leader="m", members=[member_record("m")])
    value.current_state_timestamp = 5
    world = loaded(value, version)
    assert (world.group.log.generation, world.group.log.state) == (7, ClassicState.STABLE)
    assert world.heartbeat("m", 7) == ErrorCode.NONE


def test_a_record_that_names_a_member_or_an_instance_twice_is_loaded() -> None:
    """A file may hold it, and the other groups of its partition are not to suffer."""
    members = [
        member_record("m"),
        member_record("m", assignment=b"b"),
        member_record("x", "i"),
        member_record("y", "i"),
    ]
    value = GroupMetadataValue("consumer", generation=7, protocol="range", leader="x", members=members)
    world = loaded(value, 4)
    assert [(each.member_id, each.assignment) for each in world.group.log.members] == [("m", b"b"), ("y", b"a")]
    assert world.heartbeat("m", 7) == ErrorCode.NONE


def test_a_deleted_group_is_dead_and_gone() -> None:
    world = ClassicWorld()
    (leader,) = world.stable()
    world.leave((leader, None))
    group = world.group
    world.carry_out(world.shard.delete_group(GROUP))
    assert group.log.is_dead
    assert world.code(world.join(leader)) == ErrorCode.UNKNOWN_MEMBER_ID


# -- explained -------------------------------------------------------------------------------------------------------


def test_a_rebalance_shows_its_reason_and_what_members_gained_and_lost() -> None:
    def of(*partitions: int) -> bytes:
        body = b"".join(partition.to_bytes(4, "big") for partition in partitions)
        return bytes.fromhex("0000 00000001 0001 74") + len(partitions).to_bytes(4, "big") + body + b"\xff" * 4

    world = ClassicWorld()
    (leader,) = world.stable()
    world.joined(world.join(leader))
    world.synced(world.sync(leader, 2, {leader: of(0, 1)}))
    newcomer = world.new_id(reason="scaling out")
    tokens = [world.join(newcomer, reason="scaling out"), world.join(leader)]
    assert [world.joined(token).generation_id for token in tokens] == [3, 3]
    world.sync(leader, 3, {leader: of(0), newcomer: of(1)})
    latest = world.group.history.rebalances[-1]
    changes = {change.member.member_id: change for change in latest.changes(assigned_partitions)}
    assert latest.reasons[0] == f"member {newcomer} joined (client says: scaling out)"
    assert changes[leader].lost == [("t", 1)]
    assert changes[newcomer].gained == [("t", 1)]
    assert changes[newcomer].has_joined
