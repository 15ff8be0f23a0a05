"""Cores of the metadata quorum in each role, driven message by message without a driver."""

from typing import Any, TypeVar

from kafkapy.machine import Effect
from kafkapy.raft import messages as m
from kafkapy.raft.core import RaftConfig, RaftCore
from kafkapy.raft.effects import ElectionState, SendRequest, SendResponse
from kafkapy.raft.events import LogFlushed, RequestReceived, ResponseReceived, Started, TimePassed
from kafkapy.raft.log_view import LogView
from kafkapy.raft.roles import Candidate, Follower, Prospective
from kafkapy.raft.voters import VoterHistory, VoterSet, static_voter
from kafkapy.types import OffsetAndEpoch
from tests.support.quorums import local_voter

E = TypeVar("E", bound=Effect)
ENDPOINTS = local_voter(2).endpoints


def a_core(
    voter_count: int,
    election: ElectionState | None = None,
    *,
    log: LogView | None = None,
    node_id: int = 1,
    is_dynamic: bool = False,
    **config: Any,
) -> RaftCore:
    """Return a core that is not started. is_dynamic: its voters are in a bootstrap snapshot, with kraft.version 1."""
    if is_dynamic:
        voters = VoterSet(map(local_voter, range(1, voter_count + 1)))
        history = VoterHistory(VoterSet())
        history.reset(0, voters, 1)
    else:
        voters = VoterSet(static_voter(each, *local_voter(each).endpoints) for each in range(1, voter_count + 1))
        history = VoterHistory(voters)
    options = {"local": local_voter(node_id), "bootstrap_ids": voters.ids} | config
    return RaftCore(RaftConfig(**options), log or LogView(), history, election or ElectionState(), seed=7)


def a_log(*, end_offset: int, leader_epoch: int) -> LogView:
    view = LogView()
    view.append(0, end_offset - 1, leader_epoch)
    view.durable_end_offset = end_offset
    return view


def of(effects: list[Effect], kind: type[E]) -> list[E]:
    return [effect for effect in effects if isinstance(effect, kind)]


def vote_request(core: RaftCore, *, leader_epoch: int, end: tuple[int, int] = (0, 0), node_id: int = 2) -> Any:
    """Send a Vote, return the response."""
    request = m.VoteRequest(
        candidate=local_voter(node_id).key, leader_epoch=leader_epoch, end=OffsetAndEpoch(*end), is_pre_vote=False
    )
    effects = core.step(RequestReceived("vote", request), 10)
    return of(effects, SendResponse)[0].response


def a_follower(end_offset: int = 10, leader_epoch: int = 3) -> RaftCore:
    core = a_core(3, log=a_log(end_offset=end_offset, leader_epoch=leader_epoch))
    core.step(Started(), 0)
    request = m.BeginEpochRequest(leader_id=2, leader_epoch=leader_epoch, leader_endpoints=ENDPOINTS)
    core.step(RequestReceived("begin", request), 1)
    assert isinstance(core.role, Follower)
    return core


def respond_to_fetch(core: RaftCore, now_ms: int = 5, **fields: Any) -> list[Effect]:
    """Answer the fetch that is under way."""
    request_id = core.connections[2].request_id
    response = m.FetchResponse(leader_epoch=core.leader_epoch, leader_id=2, **fields)
    return core.step(ResponseReceived(2, request_id, response), now_ms)


def a_leader(voter_count: int = 3, *, is_dynamic: bool = False, **config: Any) -> RaftCore:
    """Node 1, elected in epoch 1 by 2 at some time before 3000; its LeaderChange is durable here."""
    core = a_core(voter_count, is_dynamic=is_dynamic, **config)
    core.step(Started(), 0)
    now_ms = core.deadline_ms() or 0
    core.step(TimePassed(), now_ms)
    while not core.is_leader:
        node_id, request_id = next(
            (node_id, each.request_id)
            for node_id, each in core.connections.items()
            if isinstance(each.request, m.VoteRequest)
        )
        response = m.VoteResponse(leader_epoch=core.leader_epoch, leader_id=-1, is_granted=True)
        core.step(ResponseReceived(node_id, request_id, response), now_ms)
    core.step(LogFlushed(core.log.end_offset, 0), 3000)
    return core


def a_prospective() -> RaftCore:
    """Node 1 of 3 in epoch 3, whose leader 2 has been silent until 5000."""
    core = a_follower()
    core.step(TimePassed(), 5000)
    assert isinstance(core.role, Prospective)
    return core


def a_candidate() -> RaftCore:
    """Node 1 of 3, which stands for epoch 4 at 5000 and has requested 2 and 3."""
    core = a_prospective()
    for node_id in (2, 3):
        if isinstance(core.role, Prospective):
            respond_to_vote(core, node_id, is_granted=True)
    assert isinstance(core.role, Candidate)
    return core


def respond_to_vote(core: RaftCore, node_id: int, now_ms: int = 5001, **fields: Any) -> list[Effect]:
    """Answer the vote that is requested for, or was."""
    fields = {"leader_epoch": core.leader_epoch, "leader_id": -1} | fields
    return core.step(ResponseReceived(node_id, core.connections[node_id].request_id, m.VoteResponse(**fields)), now_ms)


def sent(effects: list[Effect]) -> list[tuple[int, m.Request]]:
    """Return which nodes are requested what."""
    return [(effect.node_id, effect.request) for effect in of(effects, SendRequest)]


def response_to(core: RaftCore, request: m.Request, now_ms: int) -> Any:
    """Send a request; return the only response."""
    (respond,) = of(core.step(RequestReceived("requested", request), now_ms), SendResponse)
    return respond.response


def fetch(
    core: RaftCore, offset: int, leader_epoch: int = 1, node_id: int = 2, now_ms: int = 3001, **fields: Any
) -> list[Effect]:
    options: dict[str, Any] = {"high_watermark": -1, "max_wait_ms": 500, "max_bytes": 1000} | fields
    request = m.FetchRequest(
        replica=local_voter(node_id).key,
        leader_epoch=1,
        fetch_offset=offset,
        last_fetched_epoch=leader_epoch,
        **options,
    )
    return core.step(RequestReceived("fetch", request), now_ms)


def a_dynamic_leader() -> RaftCore:
    """Node 1, leader of epoch 1 over itself alone, kraft.version 1; all its records are committed."""
    history = VoterHistory(VoterSet())
    history.reset(0, VoterSet([local_voter(1)]), 1)
    core = RaftCore(RaftConfig(local=local_voter(1)), LogView(), history, ElectionState(), seed=7)
    core.step(Started(), 0)
    core.step(LogFlushed(3, 0), 1)
    assert core.high_watermark == 3
    return core


def send_request(core: RaftCore, request: Any, now_ms: int = 3010) -> list[int]:
    """Return the errors answered at once."""
    return [respond.response.error for respond in of(core.step(RequestReceived("ask", request), now_ms), SendResponse)]


def add(node_id: int) -> m.AddVoterRequest:
    return m.AddVoterRequest(voter=local_voter(node_id), timeout_ms=100)
