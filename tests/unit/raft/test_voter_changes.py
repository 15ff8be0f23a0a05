"""AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter and what a node asks for itself: cases of KafkaRaftClientReconfigTest.

tests/kafka_cases.tsv says which case is held by which test.
"""

from dataclasses import replace
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft import messages as m
from kafkapy.raft.core import RaftCore
from kafkapy.raft.effects import AppendBatch, ElectionState, HighWatermarkAdvanced, SendResponse
from kafkapy.raft.events import (
    AppendRequested,
    KraftUpgradeRequested,
    LogFlushed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    Started,
    TimePassed,
)
from kafkapy.raft.roles import Follower, Leader, Resigned
from kafkapy.raft.voters import Endpoint, Voter
from kafkapy.types import ReplicaKey
from tests.support.quorums import local_voter
from tests.support.raft_steps import a_core, a_leader, add, fetch, of, respond_to_fetch, send_request, sent

MOVED = Voter(local_voter(2).key, (Endpoint("CONTROLLER", "localhost", 8992),))


def remove(node_id: int) -> m.RemoveVoterRequest:
    return m.RemoveVoterRequest(voter=local_voter(node_id).key)


def update(voter: Voter = MOVED, leader_epoch: int = 1) -> m.UpdateVoterRequest:
    return m.UpdateVoterRequest(voter=voter, leader_epoch=leader_epoch)


def an_established_leader(voter_count: int = 2, **options: Any) -> RaftCore:
    """Node 1 of voters in the log; what it has written is committed, and 9 has caught up with it."""
    core = a_leader(voter_count, is_dynamic=True, **options)
    for node_id in range(2, voter_count + 1):
        fetch(core, core.log.end_offset, node_id=node_id, max_wait_ms=0)
    assert core.high_watermark == core.log.end_offset
    fetch(core, core.log.end_offset, node_id=9, max_wait_ms=0)
    return core


def commit(core: RaftCore, *node_ids: int, now_ms: int = 3020) -> list[int]:
    """Let these and this node have all of the log; return the responses to what was requested for."""
    effects = core.step(LogFlushed(core.log.end_offset, 0), now_ms)
    for node_id in node_ids:
        effects += fetch(core, core.log.end_offset, node_id=node_id, now_ms=now_ms, max_wait_ms=0)
    return [respond.response.error for respond in of(effects, SendResponse) if respond.respond_to == "ask"]


# What a leader refuses


@pytest.mark.parametrize("request_", [add(9), remove(2), update(leader_epoch=3)])
def test_voters_are_changed_by_the_leader_only(request_: m.Request) -> None:
    core = a_core(3, ElectionState(3, 2), is_dynamic=True)
    core.step(Started(), 0)
    assert send_request(core, request_, 5) == [m.NOT_LEADER_OR_FOLLOWER]


PROBLEM = "it names no voter"


@pytest.mark.parametrize("request_", [add(9), remove(2), update(leader_epoch=3)])
def test_a_request_that_names_no_voter_is_refused_by_the_leader_only(request_: m.Request) -> None:
    core = a_core(3, ElectionState(3, 2), is_dynamic=True)
    core.step(Started(), 0)
    assert send_request(core, replace(request_, problem=PROBLEM), 5) == [m.NOT_LEADER_OR_FOLLOWER]


@pytest.mark.parametrize(
    "request_",
    [
        replace(add(9), problem=PROBLEM),
        replace(remove(2), problem=PROBLEM),
        replace(update(), problem=PROBLEM),
        update(replace(MOVED, min_kraft_version=-1)),
        update(replace(MOVED, min_kraft_version=1, max_kraft_version=0)),
    ],
)
def test_what_names_no_voter_is_refused_before_all_else_is_checked(request_: m.Request) -> None:
    assert send_request(a_leader(is_dynamic=True), request_) == [m.INVALID_REQUEST]
    core = an_established_leader(3)
    assert send_request(core, remove(3)) == []
    assert send_request(core, request_) == [m.INVALID_REQUEST]


def test_an_update_for_another_epoch_is_refused_before_all_else_is_checked() -> None:
    core = an_established_leader(3)
    assert send_request(core, remove(3)) == []
    assert send_request(core, replace(update(leader_epoch=0), problem=PROBLEM)) == [m.FENCED_LEADER_EPOCH]
    assert send_request(core, replace(update(leader_epoch=2), problem=PROBLEM)) == [m.UNKNOWN_LEADER_EPOCH]


@pytest.mark.parametrize("request_", [add(9), remove(2), update()])
def test_voters_are_not_changed_before_the_leader_knows_what_is_committed(request_: m.Request) -> None:
    assert send_request(a_leader(is_dynamic=True), request_) == [m.REQUEST_TIMED_OUT]


@pytest.mark.parametrize("first", [add(9), remove(2)])
@pytest.mark.parametrize("second", [add(8), remove(3), update(local_voter(2))])
def test_one_change_waits_for_the_other(first: m.Request, second: m.Request) -> None:
    core = an_established_leader(3)
    fetch(core, core.log.end_offset, node_id=8, max_wait_ms=0)
    assert send_request(core, first) == []
    assert send_request(core, second) == [m.REQUEST_TIMED_OUT]


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(2), m.DUPLICATE_VOTER),
        (add(8), m.REQUEST_TIMED_OUT),  # it has not caught up
        (replace(add(9), voter=replace(local_voter(9), min_kraft_version=0, max_kraft_version=0)), m.INVALID_REQUEST),
        (replace(add(9), voter=replace(local_voter(9), min_kraft_version=2, max_kraft_version=2)), m.INVALID_REQUEST),
        (remove(9), m.VOTER_NOT_FOUND),
        (m.RemoveVoterRequest(voter=ReplicaKey(2, b"a former disk---")), m.VOTER_NOT_FOUND),
        (update(leader_epoch=0), m.FENCED_LEADER_EPOCH),
        (update(leader_epoch=2), m.UNKNOWN_LEADER_EPOCH),
        (update(local_voter(9)), m.VOTER_NOT_FOUND),
        (update(replace(MOVED, key=ReplicaKey(2, b"a former disk---"))), m.VOTER_NOT_FOUND),
        (update(replace(MOVED, min_kraft_version=0, max_kraft_version=0)), m.INVALID_REQUEST),
        (update(local_voter(1, 8992)), m.UNKNOWN_SERVER_ERROR),  # the leader's own entry
    ],
)
def test_what_cannot_be_is_refused(request_: m.Request, error: int) -> None:
    core = an_established_leader()
    voters = core.voters.current
    assert send_request(core, request_) == [error]
    assert core.voters.current == voters


def test_the_last_voter_stays() -> None:
    core = an_established_leader(1)
    assert send_request(core, remove(1)) == [m.VOTER_NOT_FOUND]


def refusal_of(core: RaftCore, request: m.Request, now_ms: int = 3011) -> str:
    """Return the message of the only response."""
    (respond,) = of(core.step(RequestReceived("other", request), now_ms), SendResponse)
    assert respond.response.error == m.REQUEST_TIMED_OUT
    return str(respond.response.message)


def test_an_update_that_is_not_committed_delays_a_change_and_is_none_under_way() -> None:
    core = an_established_leader(3)
    assert send_request(core, update()) == [m.NONE]
    assert isinstance(core.role, Leader)
    assert core.role.pending_voter_change is None
    assert "to commit the latest voter change at" in refusal_of(core, remove(3))
    assert send_request(core, update()) == [m.REQUEST_TIMED_OUT]
    assert commit(core, 2) == []
    assert send_request(core, remove(3), 3021) == []


def test_a_change_waits_while_a_new_voter_is_asked_for_its_versions() -> None:
    core = an_established_leader(3)
    assert core.begin_adding(add(9), 3010) is None
    for request in (add(8), remove(3), update()):
        assert send_request(core, request) == [m.REQUEST_TIMED_OUT]
    assert send_request(core, replace(remove(3), problem=PROBLEM)) == [m.INVALID_REQUEST]
    second = core.begin_adding(add(9), 3011)
    assert second is not None
    assert second.error == m.REQUEST_TIMED_OUT
    assert send_request(core, add(9), 3012) == []
    assert core.voters.current.ids == (1, 2, 3, 9)


def test_a_new_voter_that_does_not_tell_its_versions_delays_others_for_a_while() -> None:
    core = an_established_leader(3)
    assert core.begin_adding(add(9), 3010) is None
    core.end_adding(add(9))
    assert send_request(core, remove(3)) == []
    core = an_established_leader(3)
    assert core.begin_adding(add(9), 3010) is None
    assert send_request(core, remove(3), 5010) == [], "the request time-out has passed"


# Adding and removing


def test_a_voter_is_added_once_the_new_majority_has_it() -> None:
    core = an_established_leader()
    assert send_request(core, add(9)) == []
    assert core.voters.current.ids == (1, 2, 9)
    assert commit(core) == []
    assert commit(core, 9) == [m.NONE]


def test_without_acks_when_committed_a_new_voter_is_answered_at_once() -> None:
    core = an_established_leader()
    assert send_request(core, replace(add(9), acknowledges_when_committed=False)) == [m.NONE]
    assert commit(core, 2, 9) == []


def test_a_voter_is_removed_once_the_others_have_it() -> None:
    core = an_established_leader(3)
    assert send_request(core, remove(3)) == []
    assert core.voters.current.ids == (1, 2)
    assert commit(core, 3) == [], "its own copy no longer counts"
    assert commit(core, 2) == [m.NONE]
    assert core.is_leader


def test_a_leader_that_is_removed_leads_until_that_is_committed() -> None:
    core = an_established_leader(3)
    assert send_request(core, remove(1)) == []
    core.step(AppendRequested(1, 1, "x"), 3011)
    assert commit(core, 2) == []
    assert core.is_leader, "its own copy does not count"
    assert commit(core, 3) == [m.NONE]
    assert isinstance(core.role, Resigned)


@pytest.mark.parametrize("request_", [add(9), remove(3)])
def test_a_change_that_is_not_committed_in_time_is_answered_so_and_stays(request_: m.Request) -> None:
    core = an_established_leader(3)
    assert send_request(core, request_) == []
    voters = core.voters.current
    for node_id in (2, 3):
        fetch(core, 0, node_id=node_id, now_ms=4000, max_wait_ms=0)
    (respond,) = of(core.step(TimePassed(), 5010), SendResponse)
    assert respond.response.error == m.REQUEST_TIMED_OUT
    assert core.voters.current == voters
    assert "to commit the latest voter change at" in refusal_of(core, add(8), 5011)
    assert commit(core, 2, 3, 9, now_ms=5020) == []


@pytest.mark.parametrize("request_", [add(9), remove(3)])
def test_a_change_under_way_is_answered_at_the_end_of_the_leader(request_: m.Request) -> None:
    core = an_established_leader(3)
    assert send_request(core, request_) == []
    voters = core.voters.current
    (respond,) = of(core.step(ResignRequested(1), 3011), SendResponse)
    assert (respond.respond_to, respond.response.error) == ("ask", m.NOT_LEADER_OR_FOLLOWER)
    assert core.voters.current == voters, "its record may still be committed"


# Updating


def test_a_voter_that_has_moved_is_answered_at_once_as_it_has_to_fetch_the_record() -> None:
    """It asks for nothing else before it is answered: of two voters, none could commit the record meanwhile."""
    core = an_established_leader()
    assert send_request(core, update()) == [m.NONE]
    assert core.voters.current.endpoints_of(2) == MOVED.endpoints
    assert HighWatermarkAdvanced(core.log.end_offset) in core.step(LogFlushed(core.log.end_offset, 0), 3011) + fetch(
        core, core.log.end_offset, now_ms=3012
    )


def test_what_is_so_already_is_not_written_again() -> None:
    core = an_established_leader()
    effects = core.step(RequestReceived("ask", update(local_voter(2))), 3010)
    assert [respond.response.error for respond in of(effects, SendResponse)] == [m.NONE]
    assert not of(effects, AppendBatch)


def test_an_update_shows_that_one_voter_still_follows_and_not_that_a_majority_does() -> None:
    core = an_established_leader(5)
    for now_ms in (5000, 6100):
        send_request(core, update(replace(MOVED, endpoints=local_voter(2, 9000 + now_ms % 100).endpoints)), now_ms)
    assert isinstance(core.role, Resigned)


@pytest.mark.parametrize("request_", [add(9), remove(3)])
def test_a_change_does_not_show_that_a_majority_follows(request_: m.Request) -> None:
    core = an_established_leader(3)
    assert send_request(core, request_, 6000) == []
    core.step(TimePassed(), 6002)
    assert isinstance(core.role, Resigned)


def test_the_second_voter_has_time_to_fetch() -> None:
    core = an_established_leader(1)
    assert send_request(core, add(9), 60_000) == []
    core.step(TimePassed(), 60_000 + 2999)
    assert core.is_leader
    core.step(TimePassed(), 60_000 + 3000)
    assert not core.is_leader


def test_an_update_shows_that_the_voter_still_follows() -> None:
    core = an_established_leader()
    for now_ms in (5500, 8000):
        send_request(core, update(replace(MOVED, endpoints=local_voter(2, 9000 + now_ms % 100).endpoints)), now_ms)
        commit(core, now_ms=now_ms)
        assert core.is_leader


def test_static_voters_describe_themselves_and_nothing_is_written() -> None:
    core = a_leader(2)
    fetch(core, core.log.end_offset, max_wait_ms=0)
    end_offset = core.log.end_offset
    assert send_request(core, update()) == [m.NONE]
    assert send_request(core, update(local_voter(9))) == [m.VOTER_NOT_FOUND]
    assert core.log.end_offset == end_offset
    assert isinstance(core.role, Leader)
    assert core.role.described_voters == {2: MOVED}


def test_kraft_version_rises_once_all_voters_have_described_themselves() -> None:
    core = a_leader(3)
    fetch(core, core.log.end_offset, max_wait_ms=0)
    assert send_request(core, update()) == [m.NONE]
    refused = ErrorCode.INVALID_UPDATE_VERSION, "Invalid upgrade of kraft.version to KRAFT_VERSION_1 because"
    code, reason = core.kraft_upgrade_refusal() or (0, "")
    assert (code, reason.startswith(refused[1])) == (refused[0], True), "3 has not described itself"
    assert send_request(core, update(replace(local_voter(3), min_kraft_version=0, max_kraft_version=0))) == [m.NONE]
    assert core.kraft_upgrade_refusal() is not None, "3 cannot take part in it"
    assert send_request(core, update(local_voter(3))) == [m.NONE]
    assert core.kraft_upgrade_refusal() is None

    core.step(KraftUpgradeRequested(), 3011)

    assert (core.voters.kraft_version, core.voters.current.ids) == (1, (1, 2, 3))
    assert core.voters.current.get(2) == MOVED
    assert commit(core, 2) == []
    assert send_request(core, update(local_voter(2))) == [m.NONE]
    assert core.voters.current.get(2) == local_voter(2), "now it is written"


# What a node asks for itself


def requests_in_time(core: RaftCore, until_ms: int = 10_000) -> list[m.Request]:
    """Answer each fetch while time passes; return what else was requested of the leader, and leave it unanswered."""
    others: list[m.Request] = []
    for now_ms in range(10, until_ms, 100):
        waiting = core.connections.get(2)
        if waiting is None or waiting.request is None:
            core.step(TimePassed(), now_ms)
        elif isinstance(waiting.request, m.FetchRequest):
            respond_to_fetch(core, now_ms)
        elif waiting.request not in others:
            others.append(waiting.request)
    return others


def a_follower_of(is_dynamic: bool, node_id: int = 1, port: int = 9093, **config: Any) -> RaftCore:
    local = local_voter(node_id, port)
    core = a_core(3, ElectionState(3, 2), node_id=node_id, is_dynamic=is_dynamic, local=local, **config)
    core.step(Started(), 0)
    return core


def test_a_voter_whose_address_is_another_than_in_the_log_says_so() -> None:
    requested = requests_in_time(a_follower_of(is_dynamic=True, port=8992))
    assert requested[:1] == [m.UpdateVoterRequest(voter=local_voter(1, 8992), leader_epoch=3)]
    assert requests_in_time(a_follower_of(is_dynamic=True)) == []


def test_a_static_voter_describes_itself_to_each_new_leader_until_it_has_heard_it() -> None:
    core = a_follower_of(is_dynamic=False)
    assert requests_in_time(core, 2500) == [m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=3)]
    heard = m.VoterChangeResponse(leader_epoch=3, leader_id=2)
    core.step(ResponseReceived(2, core.connections[2].request_id, heard), 2500)
    assert requests_in_time(core) == []
    begin = m.BeginEpochRequest(leader_id=2, leader_epoch=4, leader_endpoints=local_voter(2).endpoints)
    core.step(RequestReceived("begin", begin), 10_000)
    requested: list[m.Request] = []
    for now_ms in range(10_000, 13_000, 100):
        waiting = core.connections.get(2)
        if waiting is not None and isinstance(waiting.request, m.FetchRequest):
            respond_to_fetch(core, now_ms)
        elif waiting is not None and waiting.request is not None:
            requested.append(waiting.request)
            break
        else:
            core.step(TimePassed(), now_ms)
    assert requested == [m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=4)]


def test_a_static_voter_whose_leader_knows_no_such_update_goes_on_without() -> None:
    core = a_follower_of(is_dynamic=False)
    assert requests_in_time(core, 2500) == [m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=3)]
    unknown = m.VoterChangeResponse(error=m.UNSUPPORTED_VERSION, leader_epoch=3, leader_id=-1)
    ((node_id, request),) = sent(core.step(ResponseReceived(2, core.connections[2].request_id, unknown), 2500))
    assert (node_id, type(request)) == (2, m.FetchRequest), "without a back-off"
    assert requests_in_time(core) == []


def test_an_update_waits_for_the_fetch_under_way() -> None:
    core = a_follower_of(is_dynamic=True, port=8992)
    respond_to_fetch(core, 1900)
    assert not sent(core.step(TimePassed(), 2000))
    ((_, request),) = sent(respond_to_fetch(core, 3800))
    assert isinstance(request, m.UpdateVoterRequest)


def test_the_response_to_an_update_may_name_another_leader() -> None:
    core = a_follower_of(is_dynamic=True, port=8992)
    respond_to_fetch(core, 1900)
    respond_to_fetch(core, 3800)
    reported = m.VoterChangeResponse(leader_epoch=4, leader_id=3, leader_endpoints=local_voter(3).endpoints)
    ((node_id, request),) = sent(core.step(ResponseReceived(2, core.connections[2].request_id, reported), 3801))
    assert (node_id, type(request), core.leader_epoch) == (3, m.FetchRequest, 4)


@pytest.mark.parametrize("error", [m.NONE, m.UNSUPPORTED_VERSION, m.REQUEST_TIMED_OUT])
def test_the_response_to_an_update_shows_that_the_leader_is_alive(error: int) -> None:
    core = a_follower_of(is_dynamic=False)
    assert requests_in_time(core, 2500) == [m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=3)]
    assert isinstance(core.role, Follower)
    core.role.has_fetched = False
    reported = m.VoterChangeResponse(error=error, leader_epoch=3, leader_id=2)
    core.step(ResponseReceived(2, core.connections[2].request_id, reported), 3000)
    assert core.role.has_fetched == (error != m.REQUEST_TIMED_OUT)
    assert (core.role.fetch_deadline_ms == 5000) == (error != m.REQUEST_TIMED_OUT)


@pytest.mark.parametrize("error", [m.REQUEST_TIMED_OUT, m.UNSUPPORTED_VERSION])
def test_a_refused_update_does_not_keep_a_voter_from_fetching(error: int) -> None:
    core = a_follower_of(is_dynamic=True, port=8992)
    respond_to_fetch(core, 1900)
    respond_to_fetch(core, 3800)
    reported = m.VoterChangeResponse(error=error, leader_epoch=3, leader_id=2)
    effects = core.step(ResponseReceived(2, core.connections[2].request_id, reported), 3801)
    effects += core.step(TimePassed(), 3830)
    assert m.FetchRequest in [type(request) for _, request in sent(effects)]


def test_a_node_joins_only_where_it_may() -> None:
    may = {"joins_by_itself": True}
    assert [type(each) for each in requests_in_time(a_follower_of(True, 9, **may))] == [m.AddVoterRequest]
    assert requests_in_time(a_follower_of(True, 9)) == []
    assert requests_in_time(a_follower_of(False, 9, **may)) == [], "kraft.version 0"


def test_a_node_that_joins_removes_its_former_directory_first() -> None:
    local = Voter(ReplicaKey(3, b"a new directory-"), local_voter(3).endpoints)
    core = a_core(3, ElectionState(3, 2), is_dynamic=True, local=local, joins_by_itself=True)
    core.step(Started(), 0)
    (requested,) = requests_in_time(core, 4000)
    assert isinstance(requested, m.RemoveVoterRequest)
    assert requested.voter == local_voter(3).key


@pytest.mark.parametrize("error", [m.NONE, m.REQUEST_TIMED_OUT, m.DUPLICATE_VOTER, m.NOT_LEADER_OR_FOLLOWER])
def test_a_node_that_joins_waits_after_the_response_before_it_asks_again(error: int) -> None:
    core = a_follower_of(True, 9, joins_by_itself=True)
    (requested,) = requests_in_time(core, 2500)
    assert isinstance(requested, m.AddVoterRequest)
    sent_ms = core.role.update_voter_deadline_ms - 2000  # type: ignore[union-attr]
    assert sent_ms == 2010
    answered = m.VoterChangeResponse(error=error, leader_epoch=-1, leader_id=-1)
    core.step(ResponseReceived(2, core.connections[2].request_id, answered), 3000)
    is_backed_off = core.connections.is_in_back_off(2, 3001)
    assert is_backed_off == (error == m.NOT_LEADER_OR_FOLLOWER)
    deadline_ms = core.role.update_voter_deadline_ms  # type: ignore[union-attr]
    assert deadline_ms == (4010 if is_backed_off else 5000)
