"""Single steps of the core, message by message; the simulation in tests/sim covers whole runs."""

from typing import Any

import pytest

from kafkapy.raft import messages as m
from kafkapy.raft.core import RaftConfig, RaftCore
from kafkapy.raft.effects import (
    AppendBatch,
    ElectionState,
    FlushLog,
    HighWatermarkAdvanced,
    LeaderChanged,
    PersistElection,
    SendRequest,
    SendResponse,
    SendResponseWithRecords,
    TruncateLog,
)
from kafkapy.raft.events import (
    AppendRequested,
    LogFlushed,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    Started,
    TimePassed,
)
from kafkapy.raft.log_view import LogView
from kafkapy.raft.roles import Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kafkapy.raft.voters import VoterHistory, VoterSet, static_voter
from kafkapy.types import OffsetAndEpoch, ReplicaKey
from tests.support.quorums import local_voter
from tests.support.raft_steps import (
    ENDPOINTS,
    a_core,
    a_dynamic_leader,
    a_follower,
    a_leader,
    a_log,
    add,
    fetch,
    of,
    respond_to_fetch,
    send_request,
    sent,
    vote_request,
)


def test_the_only_voter_leads_at_once_and_commits_what_is_durable() -> None:
    core = a_core(1, ElectionState(4, 1), log=a_log(end_offset=10, leader_epoch=4))
    effects = core.step(Started(), 0)
    assert [effect.state for effect in of(effects, PersistElection)] == [
        ElectionState(4, 1, None),
        ElectionState(5, -1, local_voter(1).key),
        ElectionState(5, 1, None),
    ]
    assert of(effects, AppendBatch)[0].batch == m.LogBatch(10, 10, 5, (m.LeaderChange(1, (1,), (1,)),))
    assert of(effects, FlushLog) == [FlushLog(11, 0)]
    assert of(effects, LeaderChanged)[-1] == LeaderChanged(1, 5, 10)
    assert not of(effects, HighWatermarkAdvanced)
    assert of(core.step(LogFlushed(11, 0), 1), HighWatermarkAdvanced) == [HighWatermarkAdvanced(11)]
    assert core.deadline_ms() is None


def test_election_state_is_durable_before_anything_that_follows_from_it() -> None:
    effects = a_core(1).step(Started(), 0)
    persisted = max(index for index, effect in enumerate(effects) if isinstance(effect, PersistElection))
    appended = min(index for index, effect in enumerate(effects) if isinstance(effect, AppendBatch))
    assert persisted < appended


def test_an_append_is_committed_once_synced_and_not_before() -> None:
    core = a_core(1)
    core.step(Started(), 0)
    core.step(LogFlushed(1, 0), 1)
    first = core.step(AppendRequested(1, 3, "data"), 2)
    assert of(first, AppendBatch)[0].batch == m.LogBatch(1, 3, 1, (), "data")
    assert not of(first, HighWatermarkAdvanced)
    core.step(AppendRequested(1, 1, "more"), 2)
    assert of(core.step(LogFlushed(4, 0), 3), HighWatermarkAdvanced) == [HighWatermarkAdvanced(4)]
    assert of(core.step(LogFlushed(5, 0), 4), HighWatermarkAdvanced) == [HighWatermarkAdvanced(5)]


@pytest.mark.parametrize(
    ("election", "role", "leader_epoch"),
    [
        (ElectionState(), Unattached, 3),
        (ElectionState(2, 2), Unattached, 3),
        (ElectionState(5, 1), Resigned, 5),
        (ElectionState(5, 2), Follower, 5),
        (ElectionState(5, -1, ReplicaKey(1, b"\1" * 16)), Candidate, 5),
        (ElectionState(5, -1, ReplicaKey(2, b"\2" * 16)), Unattached, 5),
        (ElectionState(5, 9), Unattached, 5),
    ],
)
def test_a_replica_takes_up_what_it_was(election: ElectionState, role: type, leader_epoch: int) -> None:
    core = a_core(3, election, log=a_log(end_offset=10, leader_epoch=3))
    core.step(Started(), 0)
    assert type(core.role) is role
    assert core.leader_epoch == leader_epoch


def test_a_vote_is_given_once_and_remembered() -> None:
    core = a_core(3)
    core.step(Started(), 0)
    assert vote_request(core, leader_epoch=1, node_id=2).is_granted
    assert core.role.election_state() == ElectionState(1, -1, local_voter(2).key)
    assert not vote_request(core, leader_epoch=1, node_id=3).is_granted
    assert vote_request(core, leader_epoch=1, node_id=2).is_granted
    assert vote_request(core, leader_epoch=2, node_id=3).is_granted


@pytest.mark.parametrize(("end", "is_granted"), [((9, 3), False), ((10, 3), True), ((2, 4), True), ((99, 2), False)])
def test_only_logs_that_are_as_complete_get_votes(end: tuple[int, int], is_granted: bool) -> None:
    core = a_core(3, log=a_log(end_offset=10, leader_epoch=3))
    core.step(Started(), 0)
    assert vote_request(core, leader_epoch=7, end=end).is_granted == is_granted
    assert core.leader_epoch == 7


@pytest.mark.parametrize(
    ("leader_epoch", "end", "error"),
    [
        (2, (10, 1), m.FENCED_LEADER_EPOCH),
        (5, (10, 5), m.INVALID_REQUEST),
        (5, (-1, 1), m.INVALID_REQUEST),
    ],
)
def test_impossible_votes_are_refused(leader_epoch: int, end: tuple[int, int], error: int) -> None:
    core = a_core(3, log=a_log(end_offset=10, leader_epoch=3))
    core.step(Started(), 0)
    assert vote_request(core, leader_epoch=leader_epoch, end=end).error == error


def test_a_vote_meant_for_a_former_disk_is_refused() -> None:
    core = a_core(3)
    core.step(Started(), 0)
    request = m.VoteRequest(
        candidate=local_voter(2).key,
        leader_epoch=1,
        end=OffsetAndEpoch(0, 0),
        is_pre_vote=False,
        voter=ReplicaKey(1, b"a former disk---"),
    )
    response = of(core.step(RequestReceived("v", request), 1), SendResponse)[0].response
    assert response.error == m.INVALID_VOTER_KEY


def test_a_silent_leader_is_pre_voted_against_without_a_new_epoch() -> None:
    core = a_follower()
    effects = core.step(TimePassed(), 5000)
    assert isinstance(core.role, Prospective)
    assert core.leader_epoch == 3
    requests = [effect.request for effect in of(effects, SendRequest)]
    assert all(isinstance(request, m.VoteRequest) and request.is_pre_vote for request in requests)
    assert not of(effects, PersistElection)


def test_lost_pre_votes_lead_back_to_the_leader() -> None:
    core = a_follower()
    core.step(TimePassed(), 5000)
    for node_id in (2, 3):
        response = m.VoteResponse(leader_epoch=3, leader_id=2, leader_endpoints=ENDPOINTS)
        core.step(ResponseReceived(node_id, core.connections[node_id].request_id, response), 5001)
        if isinstance(core.role, Follower):
            break
    assert isinstance(core.role, Follower)
    assert core.leader_id == 2


def test_a_voter_without_pre_votes_gets_a_real_vote_request() -> None:
    core = a_follower()
    core.step(TimePassed(), 5000)
    unsupported = m.VoteResponse(error=m.UNSUPPORTED_VERSION, leader_epoch=3, leader_id=-1)
    effects = core.step(ResponseReceived(3, core.connections[3].request_id, unsupported), 5001)
    assert isinstance(core.role, Candidate)
    assert core.leader_epoch == 4
    requests = [effect.request for effect in of(effects, SendRequest)]
    assert [request.is_pre_vote for request in requests if isinstance(request, m.VoteRequest)] == [False, False]


def test_a_follower_fetches_on_only_once_what_it_has_is_durable() -> None:
    core = a_follower()
    effects = respond_to_fetch(core, high_watermark=10, batches=(m.LogBatch(10, 14, 3),))
    assert of(effects, FlushLog) == [FlushLog(15, 0)]
    assert not of(effects, SendRequest)
    request = of(core.step(LogFlushed(15, 0), 6), SendRequest)[0].request
    assert isinstance(request, m.FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch) == (15, 3)


@pytest.mark.parametrize("can_become_voter", [True, False])
def test_only_an_observer_that_can_become_a_voter_syncs_its_log_before_it_fetches_on(can_become_voter: bool) -> None:
    core = a_core(3, ElectionState(3, 2), node_id=9, can_become_voter=can_become_voter)
    core.step(Started(), 0)
    effects = respond_to_fetch(core, high_watermark=5, batches=(m.LogBatch(0, 4, 3),))
    assert [each.batch.last_offset for each in of(effects, AppendBatch)] == [4]
    requested = [each.request.fetch_offset for each in of(effects, SendRequest)]  # type: ignore[union-attr]
    assert (of(effects, FlushLog), requested) == (([FlushLog(5, 0)], []) if can_become_voter else ([], [5]))
    assert core.high_watermark == 5


def test_a_follower_cuts_its_log_to_the_diverging_epoch() -> None:
    core = a_follower()
    effects = respond_to_fetch(core, diverging=OffsetAndEpoch(7, 3))
    assert of(effects, TruncateLog) == [TruncateLog(7)]
    assert core.log.end == (7, 3)


def test_batches_that_do_not_fit_are_not_taken() -> None:
    core = a_follower()
    effects = respond_to_fetch(core, batches=(m.LogBatch(10, 11, 3), m.LogBatch(13, 14, 3)))
    assert core.log.end == (12, 3)
    assert len(of(effects, AppendBatch)) == 1


@pytest.mark.parametrize("batch", [m.LogBatch(10, 11, 9), m.LogBatch(11, 12, 3), m.LogBatch(10, 9, 3)])
def test_a_response_of_which_nothing_fits_is_none_of_a_leader(batch: m.LogBatch) -> None:
    """Its disk has changed the bytes: to ask for them again and again would take a core, here and there."""
    core = a_follower()
    effects = respond_to_fetch(core, 1000, batches=(batch,))
    assert core.log.end == (10, 3)
    assert 2 not in dict(sent(effects)), "it is not requested again before the back-off has passed"
    core.step(TimePassed(), 2001)
    assert isinstance(core.role, Prospective), "its time-out goes on"


def test_a_response_that_comes_too_late_changes_nothing() -> None:
    core = a_follower()
    response = m.FetchResponse(leader_epoch=3, leader_id=2, batches=(m.LogBatch(10, 11, 3),))
    assert not of(core.step(ResponseReceived(2, 999, response), 5), AppendBatch)


def test_a_second_leader_in_the_same_epoch_is_not_believed() -> None:
    core = a_follower()
    request = m.BeginEpochRequest(leader_id=3, leader_epoch=3, leader_endpoints=ENDPOINTS)
    response = of(core.step(RequestReceived("x", request), 5), SendResponse)[0].response
    assert response.error == m.INVALID_REQUEST
    assert core.leader_id == 2


def test_a_leader_commits_what_a_majority_has_durable() -> None:
    core = a_leader()
    core.step(AppendRequested(1, 2, "x"), 3000)
    fetch(core, 1)
    assert core.high_watermark == 1
    effects = fetch(core, 3)
    assert core.high_watermark == 1, "our own copy is not synced yet"
    effects = core.step(LogFlushed(3, 0), 3002)
    assert of(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(3)]


def test_a_waiting_fetch_is_answered_by_an_append_or_by_time() -> None:
    core = a_leader()
    assert not of(fetch(core, 1, high_watermark=1), SendResponse)
    effects = core.step(AppendRequested(1, 1, "x"), 3002)
    assert of(effects, SendResponseWithRecords)[0].fetch_offset == 1
    assert not of(fetch(core, 2, high_watermark=1), SendResponse)
    assert core.deadline_ms() is not None
    response = of(core.step(TimePassed(), 3501), SendResponse)[0].response
    assert isinstance(response, m.FetchResponse)
    assert not response.batches


def test_an_observer_gets_records_and_the_high_watermark_that_commits_them_in_one_response() -> None:
    core = a_leader()
    fetch(core, 1)  # by a voter: the first record is committed
    assert not of(fetch(core, 1, node_id=9, high_watermark=1), SendResponse)
    effects = core.step(AppendRequested(1, 1, "x"), 3002)
    effects += core.step(LogFlushed(2, 0), 3003)
    assert not of(effects, SendResponseWithRecords)
    effects = fetch(core, 2)
    answered = of(effects, SendResponseWithRecords)
    assert [(each.fetch_offset, each.response.high_watermark) for each in answered] == [(1, 2)]


@pytest.mark.parametrize("known", [0, m.NO_HIGH_WATERMARK])
def test_an_observer_that_knows_of_less_or_does_not_say_gets_records_at_once(known: int) -> None:
    core = a_leader()
    fetch(core, 1)
    core.step(AppendRequested(1, 1, "x"), 3002)
    assert of(fetch(core, 1, node_id=9, high_watermark=known), SendResponseWithRecords)
    assert of(fetch(core, 0, 0, node_id=9, high_watermark=1), SendResponseWithRecords)


def test_an_observer_gets_uncommitted_records_after_its_wait() -> None:
    core = a_leader()
    fetch(core, 1)
    core.step(AppendRequested(1, 1, "x"), 3002)
    assert not of(fetch(core, 1, node_id=9, high_watermark=1), SendResponseWithRecords)
    assert of(core.step(TimePassed(), 3501), SendResponseWithRecords)


@pytest.mark.parametrize(("leader_epoch", "error"), [(0, m.FENCED_LEADER_EPOCH), (2, 75)])
def test_fetches_of_another_epoch_are_refused(leader_epoch: int, error: int) -> None:
    core = a_leader()
    request = m.FetchRequest(
        replica=local_voter(2).key,
        leader_epoch=leader_epoch,
        fetch_offset=0,
        last_fetched_epoch=0,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=1,
    )
    assert of(core.step(RequestReceived("f", request), 3001), SendResponse)[0].response.error == error


def test_a_leader_without_fetches_from_a_majority_resigns() -> None:
    core = a_leader()
    waiting = fetch(core, 1, high_watermark=1, max_wait_ms=60_000)
    assert not of(waiting, SendResponse)
    effects = core.step(TimePassed(), 3001 + 3000)
    assert isinstance(core.role, Resigned)
    assert of(effects, SendResponse)[0].response.error == m.NOT_LEADER_OR_FOLLOWER
    assert LeaderChanged(-1, 1) in effects
    requests = [effect.request for effect in of(effects, SendRequest)]
    assert all(isinstance(request, m.EndEpochRequest) for request in requests)


def test_a_resigned_leader_takes_part_again_in_a_later_epoch() -> None:
    core = a_leader()
    core.step(ResignRequested(1), 3002)
    assert isinstance(core.role, Resigned)
    deadline_ms = core.role.election_deadline_ms
    core.step(TimePassed(), deadline_ms)
    assert core.leader_epoch == 2
    assert not isinstance(core.role, Leader | Resigned)


def test_the_first_successor_stands_at_once() -> None:
    core = a_follower()
    request = m.EndEpochRequest(leader_id=2, leader_epoch=3, preferred_successors=(local_voter(1).key,))
    core.step(RequestReceived("end", request), 9)
    assert isinstance(core.role, Prospective)


def test_voters_cannot_be_changed_with_static_voters() -> None:
    core = a_leader()
    fetch(core, 1)
    request = m.RemoveVoterRequest(voter=local_voter(3).key)
    response = of(core.step(RequestReceived("r", request), 3003), SendResponse)[0].response
    assert response.error == m.UNSUPPORTED_VERSION


# Voters in the log


def test_a_voter_counts_from_when_it_is_appended() -> None:
    core = a_dynamic_leader()
    fetch(core, 3, node_id=2)
    assert send_request(core, add(2)) == []
    assert core.voters.current.ids == (1, 2)
    core.step(LogFlushed(4, 0), 3011)
    assert core.high_watermark == 3, "the new voter has not got it yet"
    effects = fetch(core, 4, node_id=2)
    assert HighWatermarkAdvanced(4) in effects
    assert [respond.response.error for respond in of(effects, SendResponse) if respond.respond_to == "ask"] == [m.NONE]


def test_only_one_voter_change_runs_at_a_time() -> None:
    core = a_dynamic_leader()
    fetch(core, 3, node_id=2)
    fetch(core, 3, node_id=3)
    assert send_request(core, add(2)) == []
    assert send_request(core, add(3)) == [m.REQUEST_TIMED_OUT]
    assert send_request(core, m.RemoveVoterRequest(voter=local_voter(1).key)) == [m.REQUEST_TIMED_OUT]
    timed_out = core.step(TimePassed(), 5010)
    assert [respond.response.error for respond in of(timed_out, SendResponse) if respond.respond_to == "ask"] == [
        m.REQUEST_TIMED_OUT
    ]
    assert send_request(core, add(3), 5011) == [m.REQUEST_TIMED_OUT], "its record is still not committed"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (add(1), m.DUPLICATE_VOTER),
        (add(2), m.REQUEST_TIMED_OUT),
        (m.RemoveVoterRequest(voter=local_voter(1).key), m.VOTER_NOT_FOUND),
        (m.RemoveVoterRequest(voter=local_voter(5).key), m.VOTER_NOT_FOUND),
        (m.UpdateVoterRequest(voter=local_voter(5), leader_epoch=1), m.VOTER_NOT_FOUND),
        (m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=0), m.FENCED_LEADER_EPOCH),
        (m.UpdateVoterRequest(voter=local_voter(1), leader_epoch=1), m.UNKNOWN_SERVER_ERROR),
    ],
)
def test_voter_changes_that_cannot_be_are_refused(request_: Any, error: int) -> None:
    assert send_request(a_dynamic_leader(), request_) == [error]


def test_a_voter_change_waits_until_the_one_of_the_former_leader_is_committed() -> None:
    core = a_dynamic_leader()
    core.voters.add_voters(3, VoterSet([local_voter(1)]))
    fetch(core, 3, node_id=2)
    assert send_request(core, add(2)) == [m.REQUEST_TIMED_OUT]


def test_a_truncation_brings_the_former_voters_back() -> None:
    core = a_follower()
    voters = VoterSet([local_voter(1), local_voter(2)])
    respond_to_fetch(core, batches=(m.LogBatch(10, 11, 3, (m.KRaftVersion(1), m.Voters(voters))),))
    assert (core.voters.current, core.voters.kraft_version) == (voters, 1)
    core.step(LogFlushed(12, 0), 6)
    respond_to_fetch(core, 7, diverging=OffsetAndEpoch(10, 3))
    assert (core.voters.current.ids, core.voters.kraft_version) == ((1, 2, 3), 0)


def test_a_vote_is_kept_when_the_leader_of_its_epoch_shows_up() -> None:
    core = a_core(3)
    core.step(Started(), 0)
    assert vote_request(core, leader_epoch=1, node_id=3).is_granted
    begin = m.BeginEpochRequest(leader_id=2, leader_epoch=1, leader_endpoints=ENDPOINTS)
    effects = core.step(RequestReceived("begin", begin), 11)
    assert of(effects, PersistElection)[-1].state == ElectionState(1, 2, local_voter(3).key)


def test_a_new_leader_counts_of_its_own_log_only_what_is_durable() -> None:
    core = a_follower()
    respond_to_fetch(core, batches=(m.LogBatch(10, 14, 3),))
    core.step(TimePassed(), 5000)
    for _ in range(2):
        for node_id in (2, 3):
            connection = core.connections.get(node_id)
            if connection is not None and isinstance(connection.request, m.VoteRequest):
                response = m.VoteResponse(leader_epoch=core.leader_epoch, leader_id=-1, is_granted=True)
                core.step(ResponseReceived(node_id, connection.request_id, response), 5001)
    role = core.role
    assert isinstance(role, Leader)
    assert role.progress.voters[1].durable_end_offset == 10
    core.step(LogFlushed(16, 0), 5002)
    assert role.progress.voters[1].durable_end_offset == 16


def test_an_observer_fetches_from_the_voters_of_its_log_when_no_bootstrap_server_is_left() -> None:
    voters = VoterSet(static_voter(voter, *local_voter(voter).endpoints) for voter in (1, 2, 3))
    config = RaftConfig(local=local_voter(9), can_become_voter=False, bootstrap_ids=(-2,))
    core = RaftCore(config, LogView(), VoterHistory(voters), ElectionState(), seed=7)
    waiting = of(core.step(Started(), 0), SendRequest)
    requested: set[int] = set()
    for now_ms in range(0, 1000, 100):
        requested |= {sent.node_id for sent in waiting}
        failed = [core.step(RequestFailed(sent.node_id, sent.request_id), now_ms) for sent in waiting]
        effects = [effect for each in failed for effect in each] + core.step(TimePassed(), now_ms)
        waiting = of(effects, SendRequest)
    assert requested == {-2, 1, 2, 3}


@pytest.mark.parametrize(("now_ms", "is_granted"), [(100, False), (100_000, True)])
def test_an_observer_gives_pre_votes_once_its_leader_has_been_silent_for_the_fetch_timeout(
    now_ms: int, is_granted: bool
) -> None:
    """It may be a voter by a record that it has not fetched, and its vote needed for a majority."""
    core = a_core(3, log=a_log(end_offset=10, leader_epoch=3), node_id=4)
    core.step(Started(), 0)
    begin = m.BeginEpochRequest(leader_id=2, leader_epoch=3, leader_endpoints=ENDPOINTS)
    core.step(RequestReceived("begin", begin), 1)
    respond_to_fetch(core, high_watermark=10)
    request = m.VoteRequest(candidate=local_voter(3).key, leader_epoch=3, end=OffsetAndEpoch(10, 3), is_pre_vote=True)
    (respond,) = of(core.step(RequestReceived("vote", request), now_ms), SendResponse)
    assert isinstance(respond.response, m.VoteResponse)
    assert respond.response.is_granted == is_granted
