"""Classic groups as a client sees them: joining, syncing, heartbeats, leaving; static members; every version."""

import re
from collections.abc import Callable

import pytest

from kafkapy.group.hash_order import hash_of_text, in_put_order
from kafkapy.protocol.error_code import ErrorCode
from tests.support.client_requests import create_topic
from tests.support.membership import (
    MEMBER_ID_REQUIRED,
    Member,
    assignment,
    describe_group,
    join_together,
    leave,
    stabilize,
    subscription,
    wait_for_state,
)
from tests.support.offsets import commit, committed, find_coordinator
from tests.support.wire import WireClient

NONE = 0
NO_GENERATION = -1
UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"

NewMember = Callable[..., Member]


@pytest.fixture
def group(client: WireClient, topic: str) -> str:
    """As everywhere, but with three partitions."""
    create_topic(client, topic, 3)
    find_coordinator(client, topic)
    return topic


@pytest.fixture
def new_member(connect: Callable[[], WireClient], group: str) -> NewMember:
    """Connect somebody who may join the group."""
    return lambda **fields: Member(connect(), group, **fields)


# -- every version --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(10))
def test_a_member_joins_syncs_lives_and_leaves_in_every_version(new_member: NewMember, version: int) -> None:
    member = new_member()
    if version >= 4:
        member.get_id(version)
    joined = member.join(version)
    assert (joined.error_code, joined.generation_id, joined.leader) == (NONE, 1, member.member_id)
    assert (joined.protocol_type, joined.protocol_name) == ("consumer" if version >= 7 else None, "range")
    assert [(each.member_id, each.group_instance_id) for each in joined.members] == [(member.member_id, None)]
    assert not joined.skip_assignment
    sync_version = min(version, 5)
    synced = member.sync({member.member_id: b"mine"}, sync_version)
    assert (synced.error_code, synced.assignment) == (NONE, b"mine")
    named = ("consumer", "range") if sync_version >= 5 else (None, None)
    assert (synced.protocol_type, synced.protocol_name) == named
    assert member.heartbeat(min(version, 4)) == NONE
    left = member.leave(min(version, 5))
    assert left.error_code == NONE
    assert [(each.member_id, each.error_code) for each in left.members] == (
        [(member.member_id, NONE)] if version >= 3 else []
    )


@pytest.mark.parametrize("version", [6, 7, 9])
def test_a_member_id_required_response_names_only_the_member(new_member: NewMember, version: int) -> None:
    response = new_member().join(version)
    assert (response.error_code, response.generation_id) == (MEMBER_ID_REQUIRED, NO_GENERATION)
    assert re.fullmatch(f"wire-{UUID}", response.member_id)
    assert (response.leader, response.members, response.protocol_type) == ("", [], None)
    assert response.protocol_name == (None if version >= 7 else "")


def test_a_static_member_is_let_in_at_once_and_named_after_its_instance(new_member: NewMember) -> None:
    response = new_member(instance_id="kitchen").join()
    assert response.error_code == NONE
    assert re.fullmatch(f"kitchen-{UUID}", response.member_id)
    assert response.members[0].group_instance_id == "kitchen"


# -- generations ----------------------------------------------------------------------------------------------------


def test_the_leader_hears_of_all_members_and_its_assignment_reaches_them(new_member: NewMember, group: str) -> None:
    first, second = new_member(), new_member()
    responses = join_together(first, second)
    assert {response.generation_id for response in responses} == {2}
    assert {response.leader for response in responses} == {first.member_id}
    assert {each.member_id for each in responses[0].members} == {first.member_id, second.member_id}
    assert responses[0].members[0].metadata == subscription(group)
    assert responses[1].members == []
    second.send_sync()
    assert not second.client.has_response(0.2)
    assert first.sync({first.member_id: b"one", second.member_id: b"two"}).assignment == b"one"
    assert second.client.receive().assignment == b"two"
    assert second.sync().assignment == b"two"


def test_a_member_that_the_leader_left_out_gets_zero_bytes(new_member: NewMember) -> None:
    leader, left_out = new_member(), new_member()
    join_together(leader, left_out)
    left_out.send_sync()
    assert leader.sync({leader.member_id: b"one"}).assignment == b"one"
    response = left_out.client.receive()
    assert (response.error_code, response.assignment) == (NONE, b"")
    assert left_out.sync().assignment == b""


def test_members_are_described_in_the_order_of_a_javas_hash_map(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    members = [new_member() for _ in range(7)]
    stabilize(*members)
    ids = [each.member_id for each in describe_group(client, group).members]
    assert ids == in_put_order(ids, hash_of_text)
    assert set(ids) == {each.member_id for each in members}


def test_a_new_member_makes_the_others_join_again(new_member: NewMember, client: WireClient, group: str) -> None:
    first, second = new_member(), new_member()
    stabilize(first)
    second.get_id()
    assert first.heartbeat() == NONE
    second.send_join()
    wait_for_state(client, group, "PreparingRebalance")
    assert first.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.sync().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.commit(group) == NONE
    assert first.join().generation_id == 2
    assert second.receive_join().generation_id == 2
    assert first.commit(group) == ErrorCode.REBALANCE_IN_PROGRESS
    assert first.heartbeat() == NONE


def test_a_follower_that_joins_again_gets_what_it_has_and_a_leader_another_generation(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    stabilize(leader, follower)
    again = follower.join()
    assert (again.error_code, again.generation_id, again.leader) == (NONE, 2, leader.member_id)
    leader.send_join()
    assert not leader.client.has_response(0.2)
    assert follower.join().generation_id == 3
    assert leader.receive_join().generation_id == 3


def test_a_follower_with_another_subscription_rebalances(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    stabilize(leader, follower)
    follower.send_join(protocols={"range": subscription("other")})
    assert not follower.client.has_response(0.2)
    joined = leader.join()
    assert joined.generation_id == follower.receive_join().generation_id == 3
    assert {each.metadata for each in joined.members} > {subscription("other")}


def test_before_the_assignment_a_member_that_joins_again_gets_the_same_generation(new_member: NewMember) -> None:
    leader, follower = new_member(), new_member()
    join_together(leader, follower)
    assert follower.join().generation_id == 2
    again = leader.join()
    assert (again.generation_id, len(again.members)) == (2, 2)


def test_an_id_that_nobody_came_back_with_is_waited_for_until_it_leaves(new_member: NewMember) -> None:
    leader, pending = new_member(), new_member()
    stabilize(leader)
    pending.get_id()
    leader.send_join()
    assert not leader.client.has_response(0.2)
    left = pending.leave()
    assert [(each.member_id, each.error_code) for each in left.members] == [(pending.member_id, NONE)]
    assert leader.receive_join().generation_id == 2


def test_who_does_not_join_again_in_time_is_out(new_member: NewMember, client: WireClient, group: str) -> None:
    late, prompt = new_member(rebalance_timeout_ms=2_500), new_member(rebalance_timeout_ms=2_500)
    stabilize(late, prompt)
    prompt.send_join(protocols={"range": subscription("other")})
    joined = prompt.receive_join()
    assert (joined.generation_id, joined.leader) == (3, prompt.member_id)
    assert late.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_who_does_not_sync_in_time_is_out_and_the_others_join_again(new_member: NewMember) -> None:
    leader, follower = new_member(rebalance_timeout_ms=2_500), new_member(rebalance_timeout_ms=2_500)
    join_together(leader, follower)
    follower.send_sync()
    assert follower.client.receive().error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert follower.join().leader == follower.member_id
    assert leader.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_the_last_member_leaves_a_group_of_the_next_generation(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    member = new_member()
    stabilize(member)
    member.leave()
    described = describe_group(client, group)
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])
    assert join_together(new_member())[0].generation_id == 3


# -- protocols ------------------------------------------------------------------------------------------------------


def test_the_group_uses_the_protocol_that_all_know_and_most_like(new_member: NewMember) -> None:
    data = subscription("t")
    first = new_member(protocols={"range": data, "sticky": data, "old": data})
    second = new_member(protocols={"sticky": data, "range": data})
    third = new_member(protocols={"new": data, "sticky": data, "range": data})
    responses = join_together(first, second, third)
    assert {response.protocol_name for response in responses} == {"sticky"}


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": "connect"},
        {"protocol_type": ""},
        {"protocols": {}},
        {"protocols": {"sticky": b""}},
    ],
    ids=["other type", "no type", "no protocols", "none in common"],
)
def test_a_member_that_does_not_fit_is_refused(new_member: NewMember, fields: dict[str, object]) -> None:
    member = new_member()
    stabilize(member)
    response = new_member().join(**fields)
    assert (response.error_code, response.member_id) == (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "")
    assert member.join(**fields).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.heartbeat() == NONE


@pytest.mark.parametrize("fields", [{"protocol_type": ""}, {"protocols": {}}], ids=["no type", "no protocols"])
def test_the_first_member_needs_a_protocol(new_member: NewMember, fields: dict[str, object]) -> None:
    assert new_member(**fields).join().error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL


@pytest.mark.parametrize(
    "fields",
    [
        {"protocol_type": None},
        {"protocol_name": None},
        {"protocol_type": "connect"},
        {"protocol_name": "sticky"},
    ],
    ids=["no type", "no name", "other type", "other name"],
)
def test_a_sync_of_another_protocol_is_refused(new_member: NewMember, fields: dict[str, object]) -> None:
    member = new_member()
    join_together(member)
    assert member.sync(**fields).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert member.sync({member.member_id: b"a"}).assignment == b"a"


def test_a_protocol_that_is_no_consumers_is_carried_as_it_is(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    worker = new_member(protocol_type="connect", protocols={"sessioned": b"\xff\xfe"})
    join_together(worker)
    named = {"protocol_type": "connect", "protocol_name": "sessioned"}
    assert worker.sync({worker.member_id: b"\x01"}, **named).assignment == b"\x01"
    described = describe_group(client, group)
    assert (described.protocol_type, described.protocol_data) == ("connect", "sessioned")
    assert (described.members[0].member_metadata, described.members[0].member_assignment) == (b"\xff\xfe", b"\x01")


# -- refused --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("session_timeout_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_out_of_bounds_is_refused(new_member: NewMember, session_timeout_ms: int) -> None:
    response = new_member().join(session_timeout_ms=session_timeout_ms)
    assert (response.error_code, response.member_id) == (ErrorCode.INVALID_SESSION_TIMEOUT, "")


def test_a_group_needs_an_id(client: WireClient, group: str) -> None:
    find_coordinator(client, "")
    member = Member(client, "")
    assert member.join().error_code == ErrorCode.INVALID_GROUP_ID
    assert member.sync().error_code == ErrorCode.INVALID_GROUP_ID
    assert member.heartbeat() == ErrorCode.INVALID_GROUP_ID
    assert member.leave().error_code == ErrorCode.INVALID_GROUP_ID


def test_nobody_is_known_in_a_group_that_is_not_there(new_member: NewMember) -> None:
    stranger = new_member()
    stranger.member_id = "stranger"
    response = stranger.join()
    assert (response.error_code, response.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave(2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    left = stranger.leave()
    assert left.error_code == NONE
    assert [(each.member_id, each.error_code) for each in left.members] == [("stranger", ErrorCode.UNKNOWN_MEMBER_ID)]


def test_a_stranger_and_an_old_generation_are_refused(new_member: NewMember, group: str) -> None:
    member, stranger = new_member(), new_member()
    stabilize(member)
    stranger.member_id, stranger.generation = "stranger", member.generation
    assert stranger.join().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.sync().error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert stranger.commit(group) == ErrorCode.UNKNOWN_MEMBER_ID
    for generation in (0, 2, -1):
        assert member.heartbeat(generation=generation) == ErrorCode.ILLEGAL_GENERATION
        assert member.sync(generation_id=generation).error_code == ErrorCode.ILLEGAL_GENERATION
        assert member.commit(group, generation_id_or_member_epoch=generation) == ErrorCode.ILLEGAL_GENERATION
    assert member.heartbeat() == NONE


def test_leaving_together_answers_each(new_member: NewMember, client: WireClient, group: str) -> None:
    first, second = new_member(), new_member()
    stabilize(first, second)
    response = leave(client, group, (first.member_id, None), ("stranger", None), ("", None), (second.member_id, None))
    codes = [each.error_code for each in response.members]
    assert (response.error_code, codes) == (NONE, [NONE, 25, 25, NONE])
    assert describe_group(client, group).group_state == "Empty"


# -- static members -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [8, 9])
def test_a_static_leader_comes_back_and_nobody_joins_again(new_member: NewMember, version: int) -> None:
    old, follower, new = new_member(instance_id="a"), new_member(instance_id="b"), new_member(instance_id="a")
    stabilize(old, follower)
    response = new.join(version)
    assert (response.error_code, response.generation_id) == (NONE, 2)
    if version >= 9:
        assert response.skip_assignment
        assert (response.leader, len(response.members)) == (new.member_id, 2)
    else:
        assert (response.leader, response.members) == (old.member_id, [])
    assert new.sync().assignment == assignment(new.group_id, 0)
    assert new.heartbeat() == follower.heartbeat() == NONE


def test_a_static_follower_that_comes_back_skips_nothing(new_member: NewMember) -> None:
    leader, old, new = new_member(instance_id="a"), new_member(instance_id="b"), new_member(instance_id="b")
    stabilize(leader, old)
    response = new.join()
    assert (response.leader, response.members, response.skip_assignment) == (leader.member_id, [], False)
    assert new.sync().assignment == assignment(new.group_id, 1)


def test_who_was_replaced_is_fenced(new_member: NewMember, group: str) -> None:
    old, new = new_member(instance_id="a"), new_member(instance_id="a")
    stabilize(old)
    new.join()
    fenced = ErrorCode.FENCED_INSTANCE_ID
    assert old.join().error_code == fenced
    assert old.sync().error_code == fenced
    assert old.heartbeat() == fenced
    assert old.commit(group) == fenced
    assert old.leave().members[0].error_code == fenced
    assert new.commit(group) == NONE


def test_a_join_that_waits_is_fenced_when_its_instance_comes_again(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    other, old, new = new_member(), new_member(instance_id="a"), new_member(instance_id="a")
    stabilize(other)
    old.send_join()
    wait_for_state(client, group, "PreparingRebalance")
    new.send_join()
    assert old.receive_join().error_code == ErrorCode.FENCED_INSTANCE_ID
    assert other.join().generation_id == new.receive_join().generation_id == 2


def test_a_static_member_that_comes_back_amid_a_generation_makes_another(new_member: NewMember) -> None:
    leader, old, new = new_member(), new_member(instance_id="a"), new_member(instance_id="a")
    join_together(leader, old)
    new.send_join()
    assert not new.client.has_response(0.2)
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.join().generation_id == new.receive_join().generation_id == 3


def test_a_static_member_that_changes_the_groups_protocol_makes_all_join_again(new_member: NewMember) -> None:
    both = {"range": subscription("t"), "sticky": subscription("t")}
    leader, old = new_member(instance_id="a", protocols=both), new_member(instance_id="b", protocols=both)
    stabilize(leader, old)
    new = new_member(instance_id="b", protocols={"sticky": subscription("t")})
    new.send_join()
    assert not new.client.has_response(0.2)
    assert leader.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader.join().protocol_name == new.receive_join().protocol_name == "sticky"


def test_an_administrator_removes_a_static_member_by_its_instance(
    new_member: NewMember, client: WireClient, group: str
) -> None:
    member = new_member(instance_id="a")
    stabilize(member)
    response = leave(client, group, ("", "a"), ("", "b"))
    assert [(each.member_id, each.group_instance_id, each.error_code) for each in response.members] == [
        ("", "a", NONE),
        ("", "b", ErrorCode.UNKNOWN_MEMBER_ID),
    ]
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_that_is_not_there_is_unknown(new_member: NewMember) -> None:
    member = new_member(instance_id="a")
    stabilize(member)
    member.instance_id = "b"
    assert member.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.leave().members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# -- offsets of a group with members --------------------------------------------------------------------------------


def test_only_members_commit_while_there_are_some(new_member: NewMember, client: WireClient, group: str) -> None:
    member = new_member()
    stabilize(member)
    assert member.commit(group, 5) == NONE
    assert commit(client, group, group, 6) == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert commit(client, group, group, 6, member_id=member.member_id) == [ErrorCode.ILLEGAL_GENERATION]
    assert committed(client, group, group) == [5]
    member.leave()
    assert commit(client, group, group, 6) == [NONE]
    assert committed(client, group, group) == [6]


@pytest.mark.parametrize("version", range(2, 10))
def test_members_commit_in_every_version(new_member: NewMember, client: WireClient, group: str, version: int) -> None:
    member = new_member()
    stabilize(member)
    assert member.commit(group, 5, version) == NONE
    assert member.commit(group, 6, version, generation_id_or_member_epoch=7) == ErrorCode.ILLEGAL_GENERATION
    assert committed(client, group, group) == [5]
