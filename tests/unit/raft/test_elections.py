"""Votes, pre-votes, and what ends or begins an epoch, in each role: cases of Apache Kafka's KafkaRaftClientTest.

tests/kafka_cases.tsv says which case is held by which test.
"""

from typing import Any

import pytest

from kafkapy.raft import messages as m
from kafkapy.raft.core import RaftCore
from kafkapy.raft.effects import ElectionState, LeaderChanged, PersistElection, SendResponse
from kafkapy.raft.events import RequestReceived, ResignRequested, ResponseReceived, Started, TimePassed
from kafkapy.raft.roles import LAST_EPOCH, Candidate, Follower, Leader, Prospective, Resigned, Unattached
from kafkapy.types import OffsetAndEpoch, ReplicaKey
from tests.support.quorums import local_voter
from tests.support.raft_steps import (
    ENDPOINTS,
    a_candidate,
    a_core,
    a_follower,
    a_leader,
    a_log,
    a_prospective,
    fetch,
    of,
    respond_to_fetch,
    respond_to_vote,
    response_to,
    sent,
    vote_request,
)

ME, SECOND, THIRD = (local_voter(node_id).key for node_id in (1, 2, 3))
STRANGER = 9


def begin(leader_epoch: int, leader_id: int = 2, **fields: Any) -> m.BeginEpochRequest:
    fields.setdefault("leader_endpoints", local_voter(max(leader_id, 0)).endpoints)
    return m.BeginEpochRequest(leader_id=leader_id, leader_epoch=leader_epoch, **fields)


def end(leader_epoch: int, *successors: ReplicaKey, leader_id: int = 2) -> m.EndEpochRequest:
    endpoints = local_voter(leader_id).endpoints
    return m.EndEpochRequest(
        leader_id=leader_id, leader_epoch=leader_epoch, preferred_successors=successors, leader_endpoints=endpoints
    )


def pre_voted(
    core: RaftCore, leader_epoch: int, now_ms: int = 10, *, node_id: int = 3, end: tuple[int, int] = (10, 3)
) -> m.VoteResponse:
    request = m.VoteRequest(
        candidate=local_voter(node_id).key, leader_epoch=leader_epoch, end=OffsetAndEpoch(*end), is_pre_vote=True
    )
    response = response_to(core, request, now_ms)
    assert isinstance(response, m.VoteResponse)
    return response


# Votes


@pytest.mark.parametrize(
    ("election", "leader_id"), [(ElectionState(2, 1), 1), (ElectionState(2, -1, ReplicaKey(1, bytes(16))), -1)]
)
def test_who_led_an_epoch_or_stood_in_it_votes_for_others_in_later_ones_only(
    election: ElectionState, leader_id: int
) -> None:
    core = a_core(3, election)
    core.step(Started(), 0)
    refused = vote_request(core, leader_epoch=2)
    assert (refused.error, refused.is_granted, refused.leader_id) == (0, False, leader_id)
    assert vote_request(core, leader_epoch=3).is_granted
    assert isinstance(core.role, Unattached)
    assert core.role.election_state() == ElectionState(3, -1, SECOND)


def test_a_leader_votes_for_nobody_in_its_epoch() -> None:
    core = a_leader()
    for node_id in (2, STRANGER):
        response = vote_request(core, leader_epoch=1, node_id=node_id)
        assert (response.error, response.is_granted, response.leader_id) == (0, False, 1)
        assert not pre_voted(core, 1, 3002, node_id=node_id, end=(9, 1)).is_granted
    assert isinstance(core.role, Leader)


def test_a_follower_votes_for_others_in_a_later_epoch_only() -> None:
    core = a_follower()
    response = vote_request(core, leader_epoch=3, end=(10, 2), node_id=3)
    assert (response.is_granted, response.leader_id) == (False, 2)
    assert isinstance(core.role, Follower)
    assert vote_request(core, leader_epoch=4, end=(10, 3), node_id=3).is_granted


def test_a_prospect_votes_and_goes_on_asking() -> None:
    core = a_core(3, ElectionState(4))
    core.step(Started(), 0)
    core.step(TimePassed(), core.deadline_ms() or 0)
    assert isinstance(core.role, Prospective)
    assert vote_request(core, leader_epoch=4, node_id=3).is_granted
    assert isinstance(core.role, Prospective)
    assert core.role.voted == THIRD
    assert not vote_request(core, leader_epoch=4, node_id=2).is_granted


def test_an_observer_votes_as_it_may_be_a_voter_that_does_not_know_it_yet() -> None:
    core = a_core(3, ElectionState(2), node_id=STRANGER)
    core.step(Started(), 0)
    assert vote_request(core, leader_epoch=3, node_id=2, end=(1, 2)).is_granted
    assert core.role.election_state() == ElectionState(3, -1, SECOND)


# Pre-votes


@pytest.mark.parametrize("role", ["unattached", "voted", "leader without address", "candidate", "resigned", "observer"])
def test_pre_votes_are_given_to_anybody_by_who_follows_nobody(role: str) -> None:
    election = {
        "voted": ElectionState(5, -1, SECOND),
        "leader without address": ElectionState(5, 8),
        "candidate": ElectionState(5, -1, ME),
        "resigned": ElectionState(5, 1),
    }.get(role, ElectionState(5))
    core = a_core(3, election, node_id=STRANGER if role == "observer" else 1)
    core.step(Started(), 0)
    kind = type(core.role)
    for node_id in (2, 2, 3, 7):
        assert pre_voted(core, 5, node_id=node_id, end=(1, 4)).is_granted
    assert type(core.role) is kind
    assert core.leader_epoch == 5


@pytest.mark.parametrize("node_id", [1, STRANGER])
def test_a_follower_gives_pre_votes_until_it_has_fetched(node_id: int) -> None:
    core = a_core(3, ElectionState(3, 2), log=a_log(end_offset=10, leader_epoch=3), node_id=node_id)
    core.step(Started(), 0)
    response = pre_voted(core, 3)
    assert (response.is_granted, response.leader_id) == (True, 2)
    core = a_core(3, ElectionState(3, 2), log=a_log(end_offset=10, leader_epoch=3), node_id=node_id)
    core.step(Started(), 0)
    respond_to_fetch(core, 9)
    response = pre_voted(core, 3)
    assert (response.is_granted, response.leader_id) == (False, 2)


def test_a_pre_vote_for_a_later_epoch_begins_it_and_is_no_vote() -> None:
    core = a_follower()
    respond_to_fetch(core)
    response = pre_voted(core, 4)
    assert (response.is_granted, response.leader_epoch, response.leader_id) == (True, 4, -1)
    assert core.role.election_state() == ElectionState(4)


@pytest.mark.parametrize(
    ("leader_epoch", "end", "error"),
    [
        (2, (10, 1), m.FENCED_LEADER_EPOCH),
        (3, (10, 4), m.INVALID_REQUEST),
        (3, (-1, 3), m.INVALID_REQUEST),
        (3, (10, -1), m.INVALID_REQUEST),
        (3, (9, 3), m.NONE),
        (3, (99, 2), m.NONE),
    ],
)
def test_a_pre_vote_that_cannot_be_or_of_a_shorter_log_is_not_given(
    leader_epoch: int, end: tuple[int, int], error: int
) -> None:
    response = pre_voted(a_follower(), leader_epoch, end=end)
    assert (response.error, response.is_granted) == (error, False)


@pytest.mark.parametrize(("leader_epoch", "error"), [(2, m.FENCED_LEADER_EPOCH), (3, m.INVALID_REQUEST)])
def test_a_vote_for_nobody_is_refused_once_its_epoch_is_right(leader_epoch: int, error: int) -> None:
    request = m.VoteRequest(
        candidate=ReplicaKey(-1, bytes(16)), leader_epoch=leader_epoch, end=OffsetAndEpoch(9, 1), is_pre_vote=False
    )
    assert response_to(a_follower(), request, 5).error == error


def test_a_prospect_that_hears_of_a_leader_follows_it() -> None:
    core = a_core(3, ElectionState(4))
    core.step(Started(), 0)
    core.step(TimePassed(), core.deadline_ms() or 0)
    assert isinstance(core.role, Prospective)
    request_id = core.connections[3].request_id
    assert response_to(core, begin(4), 1500).error == m.NONE
    assert isinstance(core.role, Follower)
    granted = m.VoteResponse(leader_epoch=4, leader_id=-1, is_granted=True)
    core.step(ResponseReceived(3, request_id, granted), 1501)
    assert isinstance(core.role, Follower), "its response comes too late"


def test_a_prospect_whose_time_has_passed_asks_again_at_once() -> None:
    core = a_core(3, ElectionState(4))
    core.step(Started(), 0)
    core.step(TimePassed(), core.deadline_ms() or 0)
    first = core.role
    assert isinstance(first, Prospective)
    for now_ms in (2001, 2201):
        core.step(TimePassed(), now_ms)
    requested = sent(core.step(TimePassed(), first.election_deadline_ms))
    assert isinstance(core.role, Prospective)
    assert core.role is not first
    assert sorted(node_id for node_id, request in requested if isinstance(request, m.VoteRequest)) == [2, 3]


@pytest.mark.parametrize("role", ["unattached", "prospective", "candidate", "resigned"])
def test_the_election_timeout_runs_on_when_a_later_epoch_is_heard_of(role: str) -> None:
    core = {
        "unattached": lambda: a_core(3, ElectionState(4)),
        "resigned": lambda: a_core(3, ElectionState(4, 1)),
        "prospective": a_prospective,
        "candidate": a_candidate,
    }[role]()
    if role in ("unattached", "resigned"):
        core.step(Started(), 0)
    before: Any = core.role
    request = m.VoteRequest(candidate=THIRD, leader_epoch=9, end=OffsetAndEpoch(0, 0), is_pre_vote=True)
    core.step(RequestReceived("vote", request), before.election_deadline_ms - 5)
    assert isinstance(core.role, Unattached)
    assert (core.leader_epoch, core.role.election_deadline_ms) == (9, before.election_deadline_ms)


def test_who_has_resigned_stands_as_soon_as_its_time_has_passed() -> None:
    core = a_core(3, ElectionState(4, 1))
    core.step(Started(), 0)
    core.step(TimePassed(), core.role.election_deadline_ms)  # type: ignore[union-attr]
    assert isinstance(core.role, Prospective)
    assert core.leader_epoch == 5


def test_who_stood_with_another_disk_has_voted_for_that_one() -> None:
    """It must not count a vote for itself, as that disk's former owner may have won with it."""
    core = a_core(3, ElectionState(4, -1, ReplicaKey(1, b"a former disk---")))
    core.step(Started(), 0)
    assert isinstance(core.role, Unattached)
    assert not vote_request(core, leader_epoch=4).is_granted


@pytest.mark.parametrize("leader_id", [-1, 8])
def test_a_vote_is_kept_while_asking_for_pre_votes_and_after_losing_them(leader_id: int) -> None:
    election = ElectionState(4, leader_id, THIRD)
    core = a_core(3, election)
    core.step(Started(), 0)
    core.step(TimePassed(), core.deadline_ms() or 0)
    assert isinstance(core.role, Prospective)
    assert core.role.election_state() == election
    for node_id in (2, 3):
        respond_to_vote(core, node_id, 1500, is_granted=False)
        if not isinstance(core.role, Prospective):
            break
    assert isinstance(core.role, Unattached)
    assert core.role.election_state() == election
    assert not vote_request(core, leader_epoch=4).is_granted


@pytest.mark.parametrize("voted", [None, SECOND, THIRD])
def test_a_follower_remembers_its_vote_over_a_start(voted: ReplicaKey | None) -> None:
    core = a_core(3, ElectionState(3, 2, voted))
    core.step(Started(), 0)
    assert isinstance(core.role, Follower)
    assert core.role.election_state() == ElectionState(3, 2, voted)
    core.step(TimePassed(), 2000)
    assert core.role.election_state() == ElectionState(3, 2, voted), "nor does it forget it as its leader falls silent"


@pytest.mark.parametrize("follows", [True, False])
@pytest.mark.parametrize(
    "election", [ElectionState(4, -1, THIRD), ElectionState(4, 2, THIRD), ElectionState(4, -1, ME), ElectionState(4, 1)]
)
def test_a_vote_ends_with_its_epoch(election: ElectionState, follows: bool) -> None:
    core = a_core(3, election)
    core.step(Started(), 0)
    if follows:
        response_to(core, begin(5), 5)
        assert core.role.election_state() == ElectionState(5, 2)
    else:
        pre_voted(core, 5, end=(0, 0))
        assert core.role.election_state() == ElectionState(5)
        assert vote_request(core, leader_epoch=5).is_granted


def test_who_follows_needs_no_leader_among_its_voters() -> None:
    core = a_follower()
    assert response_to(core, begin(4, STRANGER), 5).error == m.NONE
    assert isinstance(core.role, Follower)
    assert core.role.election_state() == ElectionState(4, STRANGER)


def test_a_leader_without_an_address_is_known_and_not_followed() -> None:
    core = a_follower()
    response_to(core, begin(4, STRANGER, leader_endpoints=()), 5)
    assert isinstance(core.role, Unattached)
    assert core.role.election_state() == ElectionState(4, STRANGER)


def test_who_has_resigned_believes_in_no_other_leader_of_its_epoch() -> None:
    core = a_core(3, ElectionState(4, 1))
    core.step(Started(), 0)
    assert response_to(core, begin(4), 5).error == m.INVALID_REQUEST
    assert isinstance(core.role, Resigned)


@pytest.mark.parametrize(("leader_id", "known"), [(-1, -1), (8, 8)])
def test_a_prospect_that_loses_and_knows_no_address_of_a_leader_waits(leader_id: int, known: int) -> None:
    core = a_core(3, ElectionState(4, leader_id))
    core.step(Started(), 0)
    core.step(TimePassed(), core.deadline_ms() or 0)
    assert isinstance(core.role, Prospective)
    for node_id in (2, 3):
        respond_to_vote(core, node_id, 1500, is_granted=False)
        if not isinstance(core.role, Prospective):
            break
    assert isinstance(core.role, Unattached)
    assert (core.leader_epoch, core.leader_id) == (4, known)


@pytest.mark.parametrize("make", [a_prospective, a_candidate])
def test_a_vote_that_is_not_answered_is_requested_again(make: Any) -> None:
    core = make()
    role = core.role
    role.election_deadline_ms = 60_000
    requested = sorted(node_id for node_id, _ in sent(core.step(TimePassed(), 7100)))
    assert requested == []
    requested = sorted(node_id for node_id, _ in sent(core.step(TimePassed(), 7200)))
    assert requested == [2, 3]
    assert core.role is role


def test_responses_to_a_vote_come_too_late_for_a_follower() -> None:
    core = a_candidate()
    request_id = core.connections[3].request_id
    response_to(core, begin(5), 5001)
    granted = m.VoteResponse(leader_epoch=4, leader_id=-1, is_granted=True)
    core.step(ResponseReceived(3, request_id, granted), 5002)
    assert isinstance(core.role, Follower)
    assert (core.leader_epoch, core.leader_id) == (5, 2)


def test_a_candidate_that_has_lost_waits_for_the_rest_of_its_time() -> None:
    core = a_candidate()
    deadline_ms = core.role.election_deadline_ms  # type: ignore[union-attr]
    for node_id in (2, 3):
        respond_to_vote(core, node_id, is_granted=False)
    core.step(TimePassed(), deadline_ms - 1)
    assert isinstance(core.role, Candidate)
    assert core.role.election_state() == ElectionState(4, -1, ME)
    effects = core.step(TimePassed(), deadline_ms)
    assert isinstance(core.role, Prospective)
    assert core.leader_epoch == 4
    assert all(isinstance(request, m.VoteRequest) and request.is_pre_vote for _, request in sent(effects))


# The end of an epoch


@pytest.mark.parametrize("make", [a_candidate, a_leader])
def test_the_end_of_an_earlier_epoch_changes_nothing(make: Any) -> None:
    core = make()
    role = core.role
    response = response_to(core, end(core.leader_epoch - 1, ME), 5001 if isinstance(role, Candidate) else 3001)
    assert (response.error, response.leader_epoch) == (m.FENCED_LEADER_EPOCH, core.leader_epoch)
    assert core.role is role


def test_who_hears_of_an_epoch_by_its_end_stands_at_once() -> None:
    core = a_core(3, ElectionState(5))
    core.step(Started(), 0)
    response = response_to(core, end(5, ME, THIRD), 10)
    assert (response.error, response.leader_epoch, response.leader_id) == (m.NONE, 5, 2)
    core.step(TimePassed(), 10)
    assert isinstance(core.role, Prospective)


def test_a_later_successor_fetches_on_and_stands_after_a_while() -> None:
    core = a_follower()
    effects = core.step(RequestReceived("end", end(3, THIRD, ME)), 9)
    assert of(effects, SendResponse)[0].response.error == m.NONE
    core.step(TimePassed(), 10)
    assert isinstance(core.role, Follower)
    core.step(TimePassed(), 9 + 1000)
    assert isinstance(core.role, Prospective)
    assert core.leader_epoch == 3


def test_who_has_resigned_tells_each_voter_until_it_has_heard_it() -> None:
    core = a_core(3, ElectionState(19, 1), election_timeout_ms=10_000)
    requested = sent(core.step(Started(), 0))
    assert [(node_id, type(request)) for node_id, request in requested] == [
        (2, m.EndEpochRequest),
        (3, m.EndEpochRequest),
    ]
    heard = m.EndEpochResponse(leader_epoch=19, leader_id=1)
    assert not sent(core.step(ResponseReceived(2, core.connections[2].request_id, heard), 5))
    core.step(TimePassed(), 2000)
    assert [node_id for node_id, _ in sent(core.step(TimePassed(), 2100))] == [3]


@pytest.mark.parametrize("leader_epoch", [0, 2])
def test_a_leader_resigns_in_its_own_epoch_only(leader_epoch: int) -> None:
    core = a_leader()
    core.step(ResignRequested(leader_epoch), 3001)
    assert core.is_leader


@pytest.mark.parametrize("node_id", [1, STRANGER])
def test_only_a_leader_can_resign(node_id: int) -> None:
    core = a_core(3, ElectionState(3, 2), node_id=node_id)
    core.step(Started(), 0)
    role = core.role
    assert isinstance(role, Follower)
    assert not core.step(ResignRequested(3), 1)
    assert core.role is role


def test_a_leader_that_resigns_answers_the_fetches_that_wait() -> None:
    core = a_leader()
    assert not of(fetch(core, 1, high_watermark=1, max_wait_ms=60_000), SendResponse)
    effects = core.step(ResignRequested(1), 3002)
    assert [respond.response.error for respond in of(effects, SendResponse)] == [m.NOT_LEADER_OR_FOLLOWER]
    assert isinstance(core.role, Resigned)


# The beginning of an epoch


def test_who_has_resigned_follows_the_next_leader() -> None:
    core = a_leader()
    core.step(ResignRequested(1), 3002)
    effects = core.step(RequestReceived("begin", begin(2)), 3003)
    assert LeaderChanged(2, 2) in effects
    assert core.leader_id == 2


def test_a_leader_of_an_earlier_epoch_answers_the_fetches_that_wait_and_follows() -> None:
    core = a_leader()
    assert not of(fetch(core, 1, high_watermark=1, max_wait_ms=60_000), SendResponse)
    effects = core.step(RequestReceived("begin", begin(2, 3)), 3002)
    errors = {respond.respond_to: respond.response.error for respond in of(effects, SendResponse)}
    assert errors == {"fetch": m.NOT_LEADER_OR_FOLLOWER, "begin": m.NONE}
    assert of(effects, PersistElection)[-1].state == ElectionState(2, 3)


def test_a_follower_learns_more_addresses_of_its_leader() -> None:
    core = a_follower()
    more = (*ENDPOINTS, ENDPOINTS[0]._replace(name="ANOTHER", port=8992))
    assert response_to(core, begin(3, leader_endpoints=more), 5).error == m.NONE
    assert core.role.leader_endpoints == more
    response_to(core, begin(3), 6)
    assert core.role.leader_endpoints == more, "it does not forget them"


@pytest.mark.parametrize(
    ("request_", "error"),
    [
        (begin(2), m.FENCED_LEADER_EPOCH),
        (begin(3, 3), m.INVALID_REQUEST),
        (begin(4, -1, leader_endpoints=ENDPOINTS), m.INVALID_REQUEST),
        (begin(4, 1), m.INVALID_REQUEST),
        (begin(3, voter=ReplicaKey(1, b"a former disk---")), m.INVALID_VOTER_KEY),
        (begin(3, voter=ReplicaKey(8, bytes(16))), m.INVALID_VOTER_KEY),
        (begin(3, voter=ME), m.NONE),
    ],
)
def test_the_beginning_of_an_epoch_that_cannot_be_is_refused(request_: m.BeginEpochRequest, error: int) -> None:
    core = a_follower()
    assert response_to(core, request_, 5).error == error
    assert (core.leader_epoch, core.leader_id) == (3, 2)


def test_a_leader_tells_the_voters_that_do_not_fetch() -> None:
    core = a_leader()
    role = core.role
    assert isinstance(role, Leader)
    reported = set()
    for now_ms in range(3001, 5500, 100):
        effects = fetch(core, 1, now_ms=now_ms, max_wait_ms=0)
        reported |= {node_id for node_id, request in sent(effects) if isinstance(request, m.BeginEpochRequest)}
        for node_id in (2, 3):
            connection = core.connections.get(node_id)
            if connection is not None and connection.request is not None:
                response = m.BeginEpochResponse(leader_epoch=1, leader_id=1)
                core.step(ResponseReceived(node_id, connection.request_id, response), now_ms)
    assert reported == {3}


# Time, and what fails


@pytest.mark.parametrize("election", [ElectionState(3), ElectionState(3, 2)])
def test_an_observer_stands_never(election: ElectionState) -> None:
    core = a_core(3, election, node_id=STRANGER)
    core.step(Started(), 0)
    kind = type(core.role)
    for now_ms in range(100, 60_000, 100):
        core.step(TimePassed(), now_ms)
    assert type(core.role) is kind
    assert core.leader_epoch == 3


def test_a_voter_without_a_leader_finds_it_by_asking_any_node() -> None:
    core = a_core(3, ElectionState(3))
    ((node_id, request),) = sent(core.step(Started(), 0))
    assert isinstance(request, m.FetchRequest)
    reported = m.FetchResponse(error=m.FENCED_LEADER_EPOCH, leader_epoch=4, leader_id=2, leader_endpoints=ENDPOINTS)
    requested = sent(core.step(ResponseReceived(node_id, core.connections[node_id].request_id, reported), 5))
    assert (core.leader_epoch, core.leader_id) == (4, 2)
    assert [node_id for node_id, _ in requested] == [2]


def test_a_response_to_a_fetch_comes_too_late_for_a_prospect_and_under_another_leader() -> None:
    for change in (lambda core: core.step(TimePassed(), 5000), lambda core: response_to(core, begin(4, 3), 6)):
        core = a_follower()
        request_id = core.connections[2].request_id
        change(core)
        response = m.FetchResponse(leader_epoch=3, leader_id=2, batches=(m.LogBatch(10, 11, 3),))
        core.step(ResponseReceived(2, request_id, response), 5001)
        assert core.log.end == (10, 3)


@pytest.mark.parametrize(
    "election", [ElectionState(), ElectionState(2, 1), ElectionState(2, 3), ElectionState(2, -1, ME), ElectionState(2)]
)
def test_the_only_voter_leads_whatever_it_was(election: ElectionState) -> None:
    core = a_core(1, election)
    core.step(Started(), 0)
    for now_ms in (5000, 10_000):
        core.step(TimePassed(), now_ms)
    assert core.is_leader
    assert core.leader_epoch == election.leader_epoch + (election.voted is None), "a candidate stands already"


def test_a_leader_that_hears_of_a_later_epoch_follows() -> None:
    core = a_leader()
    node_id, request_id = next(
        (node_id, each.request_id)
        for node_id, each in core.connections.items()
        if isinstance(each.request, m.BeginEpochRequest)
    )
    reported = m.BeginEpochResponse(
        error=m.FENCED_LEADER_EPOCH, leader_epoch=4, leader_id=3, leader_endpoints=local_voter(3).endpoints
    )
    core.step(ResponseReceived(node_id, request_id, reported), 3001)
    assert isinstance(core.role, Follower)
    assert (core.leader_epoch, core.leader_id) == (4, 3)


# The last epoch


@pytest.mark.parametrize("voter_count", [1, 3])
@pytest.mark.parametrize(
    "election",
    [
        ElectionState(LAST_EPOCH, -1, SECOND),
        ElectionState(LAST_EPOCH, 1),
        ElectionState(LAST_EPOCH, -1, ME),
        ElectionState(LAST_EPOCH, 2),
    ],
)
def test_nobody_goes_beyond_the_last_epoch(voter_count: int, election: ElectionState) -> None:
    """The winner of the last one leads it; others ask for pre-votes, win them, and do not stand."""
    core = a_core(voter_count, election)
    core.step(Started(), 0)
    now_ms = 0
    for _ in range(20):
        assert core.leader_epoch == LAST_EPOCH
        assert core.role.voted in (None, election.voted) or core.is_leader
        now_ms = max(now_ms + 1, core.deadline_ms() or 0)
        core.step(TimePassed(), now_ms)
        for node_id, connection in core.connections.items():
            if isinstance(connection.request, m.VoteRequest):
                respond_to_vote(core, node_id, now_ms, is_granted=connection.request.is_pre_vote)


def test_a_voter_without_pre_votes_is_not_asked_for_more_than_that_in_the_last_epoch() -> None:
    core = a_core(3, ElectionState(LAST_EPOCH))
    core.step(Started(), 0)
    now_ms = core.deadline_ms() or 0
    core.step(TimePassed(), now_ms)
    assert not sent(respond_to_vote(core, 2, now_ms, error=m.UNSUPPORTED_VERSION))
    assert isinstance(core.role, Prospective)
