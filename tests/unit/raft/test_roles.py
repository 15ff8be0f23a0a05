"""The table of transitions, walked for every pair of roles; who grants votes in which role."""

import itertools

import pytest

from kafkapy.raft.election import VoteTally, successor_backoff_ms
from kafkapy.raft.linger import AppendLinger
from kafkapy.raft.progress import QuorumProgress
from kafkapy.raft.roles import (
    LEGAL_TRANSITIONS,
    Candidate,
    EpochRule,
    Follower,
    Leader,
    Prospective,
    Resigned,
    Role,
    Unattached,
    is_legal,
)
from kafkapy.raft.voters import VoterSet, static_voter
from kafkapy.types import ReplicaKey

ME = ReplicaKey(1, b"\1" * 16)
OTHER = ReplicaKey(2, b"\2" * 16)
THIRD = ReplicaKey(3, b"\3" * 16)
VOTERS = VoterSet([static_voter(1), static_voter(2), static_voter(3)])
ROLES: list[type[Role]] = [Unattached, Prospective, Candidate, Follower, Leader, Resigned]

# What may follow what, and whether the epoch stays (=), rises (+) or either (*).
TABLE = """
              Unattached Prospective Candidate Follower Leader Resigned
Unattached    *          =           .         *        .      .
Prospective   *          =           +         *        .      .
Candidate     +          =           .         *        =      .
Follower      +          =           .         *        .      .
Leader        +          .           .         +        .      =
Resigned      +          =           .         +        .      .
"""


def a(role: type[Role], leader_epoch: int, voted: ReplicaKey | None = None) -> Role:
    tally = VoteTally(VOTERS, ME)
    if role is Unattached:
        return Unattached(leader_epoch=leader_epoch, election_deadline_ms=0, voted=voted)
    if role is Prospective:
        return Prospective(leader_epoch=leader_epoch, tally=tally, election_deadline_ms=0, voted=voted)
    if role is Candidate:
        return Candidate(leader_epoch=leader_epoch, voted=ME, tally=tally, election_deadline_ms=0)
    if role is Follower:
        return Follower(leader_epoch=leader_epoch, leader_id=2, leader_endpoints=(), fetch_deadline_ms=0)
    if role is Leader:
        return Leader(
            leader_epoch=leader_epoch,
            leader_id=1,
            voted=ME,
            leader_endpoints=(),
            epoch_start_offset=0,
            progress=QuorumProgress(ME, VOTERS, 0),
            check_quorum_deadline_ms=0,
            begin_epoch_deadline_ms=0,
            linger=AppendLinger(linger_ms=0, batch_bytes=1, released_end_offset=0),
        )
    return Resigned(
        leader_epoch=leader_epoch,
        leader_id=1,
        leader_endpoints=(),
        unacknowledged_voter_ids=set(),
        preferred_successors=(),
        election_deadline_ms=0,
    )


@pytest.mark.parametrize(("source", "target"), list(itertools.product(ROLES, ROLES)))
def test_every_pair_of_roles_follows_the_table(source: type[Role], target: type[Role]) -> None:
    header, *rows = TABLE.strip().splitlines()
    row = next(row for row in rows if row.startswith(source.__name__))
    mark = row.split()[1 + header.split().index(target.__name__)]
    assert is_legal(a(source, 5), a(target, 5)) == (mark in "=*")
    assert is_legal(a(source, 5), a(target, 6)) == (mark in "+*")
    assert not is_legal(a(source, 5), a(target, 4))


def test_the_table_names_no_other_transition() -> None:
    marks = sum(row.count(mark) for row in TABLE.splitlines() for mark in "=+*")
    assert len(LEGAL_TRANSITIONS) == marks
    assert set(LEGAL_TRANSITIONS.values()) == set(EpochRule)


@pytest.mark.parametrize("role", [Unattached, Prospective])
def test_a_replica_without_leader_votes_once_an_epoch(role: type[Role]) -> None:
    fresh, voted = a(role, 5), a(role, 5, voted=OTHER)
    assert fresh.can_grant_vote(THIRD, is_log_up_to_date=True, is_pre_vote=False)
    assert not fresh.can_grant_vote(THIRD, is_log_up_to_date=False, is_pre_vote=False)
    assert not voted.can_grant_vote(THIRD, is_log_up_to_date=True, is_pre_vote=False)
    assert voted.can_grant_vote(OTHER, is_log_up_to_date=True, is_pre_vote=False)
    assert not voted.can_grant_vote(ReplicaKey(2, b"x" * 16), is_log_up_to_date=True, is_pre_vote=False)


@pytest.mark.parametrize("role", [Candidate, Follower, Leader, Resigned])
def test_whoever_is_engaged_in_the_epoch_gives_no_vote(role: type[Role]) -> None:
    assert not a(role, 5).can_grant_vote(THIRD, is_log_up_to_date=True, is_pre_vote=False)


@pytest.mark.parametrize("role", ROLES)
def test_pre_votes_go_to_up_to_date_logs_unless_a_leader_is_alive(role: type[Role]) -> None:
    assert a(role, 5).can_grant_vote(THIRD, is_log_up_to_date=True, is_pre_vote=True) == (role is not Leader)
    assert not a(role, 5).can_grant_vote(THIRD, is_log_up_to_date=False, is_pre_vote=True)


def test_a_follower_that_hears_its_leader_gives_no_pre_vote() -> None:
    follower = a(Follower, 5)
    assert isinstance(follower, Follower)
    follower.has_fetched = True
    assert not follower.can_grant_vote(THIRD, is_log_up_to_date=True, is_pre_vote=True)


def test_a_tally_counts_its_own_vote_and_needs_a_majority() -> None:
    tally = VoteTally(VOTERS, ME)
    assert tally.open_voter_ids == (2, 3)
    assert not tally.is_won
    tally.record(9, True)
    assert not tally.is_won
    tally.record(2, False)
    assert not tally.is_lost
    tally.record(3, False)
    assert tally.is_lost
    tally = VoteTally(VOTERS, ME)
    tally.record(3, True)
    tally.record(3, False)
    assert tally.is_won
    assert tally.granting_voter_ids == (1, 3)


@pytest.mark.parametrize(("position", "count", "backoff_ms"), [(0, 3, 0), (1, 3, 250), (2, 3, 500), (3, 3, 1000)])
def test_successors_stand_one_after_the_other(position: int, count: int, backoff_ms: int) -> None:
    assert successor_backoff_ms(position, count, 1000) == backoff_ms
