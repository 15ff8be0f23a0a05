"""Fetch and FetchSnapshot at the leader and at a follower: cases of Apache Kafka's KafkaRaftClient tests.

tests/kafka_cases.tsv says which case is held by which test.
"""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.machine import Effect
from kafkapy.raft import messages as m
from kafkapy.raft.core import RaftCore
from kafkapy.raft.effects import (
    AppendBatch,
    ElectionState,
    HighWatermarkAdvanced,
    InstallSnapshot,
    ResetLogToSnapshot,
    SendResponse,
    SendResponseWithRecords,
    SendResponseWithSnapshot,
    WriteSnapshotPart,
)
from kafkapy.raft.events import (
    AppendRequested,
    LogFlushed,
    LogPrefixDeleted,
    RequestFailed,
    RequestReceived,
    ResponseReceived,
    SnapshotInstalled,
    SnapshotRefused,
    SnapshotTaken,
    Started,
    TimePassed,
)
from kafkapy.raft.roles import Follower, Leader, Prospective, Resigned, Unattached
from kafkapy.types import OffsetAndEpoch
from tests.support.quorums import local_voter
from tests.support.raft_steps import (
    ENDPOINTS,
    a_core,
    a_follower,
    a_leader,
    fetch,
    of,
    respond_to_fetch,
    response_to,
    sent,
)

SNAPSHOT = OffsetAndEpoch(100, 3)


def in_flight(core: RaftCore) -> dict[int, m.Request]:
    return {node_id: each.request for node_id, each in core.connections.items() if each.request is not None}


def respond(core: RaftCore, response: m.Response, now_ms: int = 6, node_id: int = 2) -> list[Effect]:
    return core.step(ResponseReceived(node_id, core.connections[node_id].request_id, response), now_ms)


# The leader: the log


@pytest.mark.parametrize(
    ("requested", "is_answered"),
    [(-1, True), (0, True), (1, False), ((1 << 63) - 1, False)],  # the last one: from before version 18
)
def test_a_fetch_waits_unless_it_knows_less_of_the_high_watermark(requested: int, is_answered: bool) -> None:
    core = a_leader()
    fetch(core, 1, node_id=3, max_wait_ms=0)
    assert core.high_watermark == 1
    effects = fetch(core, 1, high_watermark=requested)
    assert bool(of(effects, SendResponse)) == is_answered


@pytest.mark.parametrize("requested", [-1, (1 << 63) - 1])
def test_a_fetch_waits_while_nobody_knows_the_high_watermark(requested: int) -> None:
    core = a_leader(5)
    assert not of(fetch(core, 1, high_watermark=requested), SendResponse)
    assert core.high_watermark == -1


def test_a_fetch_that_waits_is_answered_when_the_high_watermark_rises() -> None:
    core = a_leader()
    fetch(core, 1, high_watermark=-1)
    core.step(AppendRequested(1, 1, "x"), 3001)
    assert not of(fetch(core, 2, high_watermark=1), SendResponse)
    (effect,) = of(core.step(LogFlushed(2, 0), 3002), SendResponse)
    assert isinstance(effect.response, m.FetchResponse)
    assert effect.response.high_watermark == 2


@pytest.mark.parametrize(
    "fields", [{"offset": -1}, {"offset": 1, "leader_epoch": 2}, {"offset": 1, "leader_epoch": -1}, {"max_wait_ms": -1}]
)
def test_fetches_that_cannot_be_are_refused(fields: dict[str, Any]) -> None:
    (respond,) = of(fetch(a_leader(), **({"offset": 1} | fields)), SendResponse)
    assert (respond.response.error, respond.response.leader_id) == (m.INVALID_REQUEST, 1)


def test_a_fetch_under_the_leaders_own_id_fails_where_it_would_count() -> None:
    """Apache Kafka's leader reads its log for it, and fails only when it notes the progress."""
    core = a_leader()
    (respond,) = of(fetch(core, 1, node_id=1), SendResponse)
    assert (respond.response.error, respond.response.leader_id) == (m.UNKNOWN_SERVER_ERROR, 1)
    assert isinstance(core.role, Leader)
    assert core.role.progress.voters[1].last_fetch_ms < 0
    (respond,) = of(fetch(core, 50, node_id=1), SendResponse)
    assert isinstance(respond.response, m.FetchResponse)
    assert (respond.response.error, respond.response.diverging) == (m.NONE, (1, 1))
    (respond,) = of(fetch(a_leader_with_a_snapshot(is_trimmed=True), 0, 0, node_id=1), SendResponse)
    assert isinstance(respond.response, m.FetchResponse)
    assert respond.response.snapshot_id == (5, 1)


def test_a_fetch_under_the_id_of_a_node_that_does_not_lead_names_the_leader() -> None:
    request = m.FetchRequest(
        replica=local_voter(1).key,
        leader_epoch=3,
        fetch_offset=0,
        last_fetched_epoch=0,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=1000,
    )
    response = response_to(a_follower(), request, 5)
    assert (response.error, response.leader_id) == (m.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_leader_that_asks_itself_for_a_snapshot_has_no_follower() -> None:
    core = a_leader_with_a_snapshot(is_trimmed=True)
    assert isinstance(core.role, Leader)
    deadline_ms = core.role.check_quorum_deadline_ms
    (respond,) = of(fetch_snapshot(core, 3100, node_id=1), SendResponse)
    assert (respond.response.error, core.role.check_quorum_deadline_ms) == (m.UNKNOWN_SERVER_ERROR, deadline_ms)


def test_a_diverging_epoch_is_answered_at_once() -> None:
    core = a_leader()
    core.step(AppendRequested(1, 5, "x"), 3001)
    (respond,) = of(fetch(core, 50, max_wait_ms=60_000), SendResponse)
    assert isinstance(respond.response, m.FetchResponse)
    assert respond.response.diverging == (6, 1)
    assert isinstance(core.role, Leader)
    assert core.role.progress.voters[2].durable_end_offset < 6, "a diverging position is no progress"


def test_who_fetches_needs_no_id_and_without_one_it_does_not_count() -> None:
    core = a_leader()
    (effect,) = of(fetch_as(core, -1), SendResponseWithRecords)
    assert effect.fetch_offset == 0
    assert isinstance(core.role, Leader)
    assert not core.role.progress.observers
    assert of(fetch_as(core, 9), SendResponseWithRecords)
    assert [key.node_id for key in core.role.progress.observers] == [9]


def fetch_as(core: RaftCore, node_id: int) -> list[Effect]:
    request = m.FetchRequest(
        replica=local_voter(9).key._replace(node_id=node_id),
        leader_epoch=1,
        fetch_offset=0,
        last_fetched_epoch=0,
        high_watermark=-1,
        max_wait_ms=0,
        max_bytes=1000,
    )
    return core.step(RequestReceived("fetch", request), 3001)


def test_a_fetch_is_the_acknowledgement_of_a_leader() -> None:
    """As a voter fetches, its response to the BeginQuorumEpoch no longer matters."""
    core = a_leader()
    fetch(core, 1)
    assert isinstance(core.role, Leader)
    assert list(core.role.progress.silent_voter_ids(3002, 1000)) == [3]


# The leader: snapshots


def a_leader_with_a_snapshot(*, is_trimmed: bool) -> RaftCore:
    """Its log ends at 9, a snapshot stands for what is before 5."""
    core = a_leader()
    core.step(AppendRequested(1, 8, "x"), 3001)
    core.step(LogFlushed(9, 0), 3001)
    fetch(core, 9)
    assert core.high_watermark == 9
    core.step(SnapshotTaken(OffsetAndEpoch(5, 1)), 3002)
    if is_trimmed:
        core.step(LogPrefixDeleted(5), 3002)
    return core


@pytest.mark.parametrize(
    ("offset", "leader_epoch", "is_trimmed", "snapshot_id"),
    [
        (0, 0, False, (5, 1)),  # a snapshot is cheaper than the log from its begin
        (0, 0, True, (5, 1)),
        (4, 1, True, (5, 1)),
        (5, 0, True, (5, 1)),
        (7, 0, True, (5, 1)),
        (5, 1, True, None),
        (4, 1, False, None),
        (8, 1, True, None),
    ],
)
def test_a_snapshot_is_named_where_the_log_cannot_help(
    offset: int, leader_epoch: int, is_trimmed: bool, snapshot_id: tuple[int, int] | None
) -> None:
    effects = fetch(a_leader_with_a_snapshot(is_trimmed=is_trimmed), offset, leader_epoch)
    if snapshot_id is None:
        assert [effect.fetch_offset for effect in of(effects, SendResponseWithRecords)] == [offset]
    else:
        (respond,) = of(effects, SendResponse)
        assert isinstance(respond.response, m.FetchResponse)
        assert respond.response.snapshot_id == snapshot_id


def fetch_snapshot(core: RaftCore, now_ms: int = 3003, node_id: int = 2, **fields: Any) -> list[Effect]:
    options: dict[str, Any] = {"leader_epoch": 1, "snapshot_id": OffsetAndEpoch(5, 1), "position": 0, "max_bytes": 10}
    request = m.FetchSnapshotRequest(replica=local_voter(node_id).key, **(options | fields))
    return core.step(RequestReceived("snapshot", request), now_ms)


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ({"leader_epoch": 0}, m.FENCED_LEADER_EPOCH),
        ({"leader_epoch": 2}, m.UNKNOWN_LEADER_EPOCH),
        ({"snapshot_id": OffsetAndEpoch(6, 1)}, m.SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": OffsetAndEpoch(5, 0)}, m.SNAPSHOT_NOT_FOUND),
        ({"snapshot_id": OffsetAndEpoch(0, 0)}, m.SNAPSHOT_NOT_FOUND),
    ],
)
def test_a_snapshot_that_cannot_be_given_is_refused(fields: dict[str, Any], error: int) -> None:
    (respond,) = of(fetch_snapshot(a_leader_with_a_snapshot(is_trimmed=True), **fields), SendResponse)
    assert (respond.response.error, respond.response.leader_id, respond.response.leader_epoch) == (error, 1, 1)


def test_a_bootstrap_snapshot_is_not_given_away() -> None:
    core = a_leader(is_dynamic=True)
    core.log.add_snapshot(OffsetAndEpoch(0, 0))
    assert of(fetch(core, 0, 0), SendResponseWithRecords), "it is no reason not to read the log"
    (respond,) = of(fetch_snapshot(core, snapshot_id=OffsetAndEpoch(0, 0)), SendResponse)
    assert respond.response.error == m.SNAPSHOT_NOT_FOUND


def test_a_follower_gives_no_snapshot() -> None:
    (respond,) = of(fetch_snapshot(a_follower(), 5, leader_epoch=3), SendResponse)
    assert (respond.response.error, respond.response.leader_id) == (m.NOT_LEADER_OR_FOLLOWER, 2)


def test_a_part_of_a_snapshot_is_given() -> None:
    (effect,) = of(fetch_snapshot(a_leader_with_a_snapshot(is_trimmed=True), position=7), SendResponseWithSnapshot)
    assert (effect.snapshot_id, effect.position, effect.max_bytes) == ((5, 1), 7, 10)


def test_a_leader_stays_while_voters_take_its_snapshot_and_observers_do_not_count() -> None:
    core = a_leader_with_a_snapshot(is_trimmed=True)
    for now_ms, node_id in ((4500, 2), (6500, 3), (8500, 2)):
        fetch_snapshot(core, now_ms, node_id)
        assert core.is_leader
    fetch_snapshot(core, 11_000, 9)
    assert core.is_leader
    core.step(TimePassed(), 11_500)
    assert isinstance(core.role, Resigned)


# A follower: the log


def test_a_follower_names_what_it_has_and_the_bounds_of_its_configuration() -> None:
    core = a_core(3, ElectionState(3, 2), fetch_max_bytes=4321, fetch_max_wait_ms=321)
    core.step(Started(), 0)
    respond_to_fetch(core, batches=(m.LogBatch(0, 9, 3),), high_watermark=4)
    core.step(LogFlushed(10, 0), 6)
    (request,) = in_flight(core).values()
    assert isinstance(request, m.FetchRequest)
    assert (request.leader_epoch, request.fetch_offset, request.last_fetched_epoch) == (3, 10, 3)
    assert (request.high_watermark, request.max_bytes, request.max_wait_ms) == (4, 4321, 321)


def test_an_empty_response_is_a_response() -> None:
    core = a_follower()
    effects = respond_to_fetch(core, 1500, high_watermark=5)
    assert not of(effects, AppendBatch)
    assert of(effects, HighWatermarkAdvanced) == [HighWatermarkAdvanced(5)]
    core.step(TimePassed(), 3499)
    assert isinstance(core.role, Follower)
    core.step(TimePassed(), 3500)
    assert isinstance(core.role, Prospective)


@pytest.mark.parametrize("node_id", [1, 9])
@pytest.mark.parametrize("fails", ["connection", "time", "answer"])
def test_who_does_not_reach_its_leader_asks_another_node_for_it(node_id: int, fails: str) -> None:
    core = a_core(3, ElectionState(3, 2), node_id=node_id, fetch_timeout_ms=20_000)
    ((requested, _),) = sent(core.step(Started(), 0))
    assert requested == 2
    if fails == "connection":
        effects = core.step(RequestFailed(2, core.connections[2].request_id), 5)
    elif fails == "time":
        effects = core.step(TimePassed(), 2000)
    else:
        effects = respond(core, m.FetchResponse(error=8, leader_epoch=3, leader_id=2))
    ((requested, request),) = sent(effects)
    assert requested == 3
    assert isinstance(request, m.FetchRequest)
    reported = m.FetchResponse(error=m.NOT_LEADER_OR_FOLLOWER, leader_epoch=3, leader_id=2, leader_endpoints=ENDPOINTS)
    effects = respond(core, reported, 2100, 3)
    assert [requested for requested, _ in sent(effects)] == [2], "to the leader again"


def test_an_observer_without_a_leader_asks_its_bootstrap_servers_again_and_again() -> None:
    core = a_core(3, node_id=9, bootstrap_ids=(-1, -2), retry_backoff_ms=10)
    effects, requested = core.step(Started(), 0), []
    for now_ms in range(0, 200, 10):
        for node_id, _ in sent(effects):
            requested.append(node_id)
            effects = core.step(RequestFailed(node_id, core.connections[node_id].request_id), now_ms)
            break
        else:
            effects = core.step(TimePassed(), now_ms)
    assert {-1, -2} <= set(requested)
    assert requested.count(-1) > 2
    assert isinstance(core.role, Unattached)


NO_LEADER = m.FetchResponse(error=m.NOT_LEADER_OR_FOLLOWER, leader_epoch=3, leader_id=-1)


def times_asked(core: RaftCore, until_ms: int, answered: m.FetchResponse) -> list[int]:
    """Return when a replica asks other nodes, each of which answers at once."""
    effects, times = core.step(TimePassed(), 0), []
    for now_ms in range(until_ms):
        effects += core.step(TimePassed(), now_ms)
        while requests := sent(effects):
            times.append(now_ms)
            effects = respond(core, answered, now_ms, requests[0][0])
    return times


@pytest.mark.parametrize("node_id", [1, 9])
def test_while_nobody_knows_a_leader_each_node_is_asked_once_and_then_one_after_pauses_that_grow(node_id: int) -> None:
    core = a_core(3, ElectionState(3), node_id=node_id, election_timeout_ms=5_000)
    first, *times = times_asked(core, 1_000, NO_LEADER)
    others = 2 if node_id == 1 else 3
    assert [first, *times[: others - 1]] == [0] * others
    pauses = [later - former for former, later in zip(times[others - 2 :], times[others - 1 :], strict=False)]
    assert pauses[0] == 20
    assert pauses == sorted(pauses)
    assert set(pauses[-5:]) == {100}


def test_a_new_leader_is_followed_at_once_after_a_long_search() -> None:
    core = a_core(3, ElectionState(3), node_id=9)
    times_asked(core, 1_000, NO_LEADER)
    led = m.FetchResponse(error=m.NOT_LEADER_OR_FOLLOWER, leader_epoch=4, leader_id=2, leader_endpoints=ENDPOINTS)
    effects: list[Effect] = []
    while not (requests := sent(effects)):
        effects = core.step(TimePassed(), core.deadline_ms() or 0)
    assert [node_id for node_id, _ in sent(respond(core, led, 1_200, requests[0][0]))] == [2]


def test_a_late_response_of_the_leader_and_one_of_a_bootstrap_server_do_no_harm() -> None:
    core = a_core(3, ElectionState(5, 2), node_id=9, bootstrap_ids=(-1,))
    core.step(Started(), 0)
    late_id = core.connections[2].request_id
    ((requested, _),) = sent(core.step(TimePassed(), 2005))
    assert requested != 2
    records = m.FetchResponse(leader_epoch=5, leader_id=2, high_watermark=0, batches=(m.LogBatch(0, 1, 3),))
    core.step(ResponseReceived(2, late_id, records), 2006)
    assert not of(respond(core, records, 2007, requested), AppendBatch), "only the leader's records are taken"
    assert (core.log.end_offset, core.leader_epoch, core.leader_id) == (0, 5, 2)


# A follower: snapshots


def a_downloader() -> RaftCore:
    """A follower of 2 in epoch 3 that was reported to take SNAPSHOT, and has requested for its first part."""
    core = a_follower()
    respond_to_fetch(core, snapshot_id=SNAPSHOT)
    (request,) = in_flight(core).values()
    assert isinstance(request, m.FetchSnapshotRequest)
    assert (request.snapshot_id, request.position, request.leader_epoch) == (SNAPSHOT, 0, 3)
    return core


def part(position: int, data: bytes, **fields: Any) -> m.FetchSnapshotResponse:
    options: dict[str, Any] = {"leader_epoch": 3, "leader_id": 2, "snapshot_id": SNAPSHOT, "size_bytes": 10} | fields
    return m.FetchSnapshotResponse(position=position, data=data, **options)


def test_a_snapshot_comes_in_parts_and_the_log_starts_at_its_end() -> None:
    core = a_downloader()
    effects = respond(core, part(0, b"123456"))
    assert of(effects, WriteSnapshotPart) == [WriteSnapshotPart(SNAPSHOT, 0, b"123456")]
    ((_, request),) = sent(effects)
    assert isinstance(request, m.FetchSnapshotRequest)
    assert request.position == 6
    effects = respond(core, part(6, b"7890"))
    assert of(effects, InstallSnapshot) == [InstallSnapshot(SNAPSHOT)]
    effects = core.step(SnapshotInstalled(SNAPSHOT, None, 0), 8)
    assert of(effects, ResetLogToSnapshot) == [ResetLogToSnapshot(SNAPSHOT)]
    ((_, request),) = sent(effects)
    assert isinstance(request, m.FetchRequest)
    assert (request.fetch_offset, request.last_fetched_epoch, core.high_watermark) == (100, 3, 100)


@pytest.mark.parametrize(
    "snapshot_id",
    [
        OffsetAndEpoch(10, 2),  # the log ends where the snapshot does, in epoch 3: of a leader that was cut off
        OffsetAndEpoch(8, 4),  # a longer log, of earlier epochs only
        OffsetAndEpoch(8, 2),
    ],
)
def test_a_log_that_diverges_from_a_snapshot_restarts_at_its_end(snapshot_id: OffsetAndEpoch) -> None:
    core = a_follower(end_offset=10, leader_epoch=3)
    respond_to_fetch(core, snapshot_id=snapshot_id)
    respond(core, part(0, b"1234567890", snapshot_id=snapshot_id))
    effects = core.step(SnapshotInstalled(snapshot_id, None, 0), 8)
    assert of(effects, ResetLogToSnapshot) == [ResetLogToSnapshot(snapshot_id)]
    ((_, request),) = sent(effects)
    assert isinstance(request, m.FetchRequest), "no other download"
    assert (request.fetch_offset, request.last_fetched_epoch) == snapshot_id


@pytest.mark.parametrize("snapshot_id", [OffsetAndEpoch(10, 3), OffsetAndEpoch(8, 3)])
def test_a_log_that_holds_a_snapshot_stays(snapshot_id: OffsetAndEpoch) -> None:
    core = a_follower(end_offset=10, leader_epoch=3)
    assert not of(core.step(SnapshotInstalled(snapshot_id, None, 0), 8), ResetLogToSnapshot)
    assert (core.log.start_offset, core.log.end_offset) == (0, 10)


@pytest.mark.parametrize(
    "response",
    [
        m.FetchSnapshotResponse(error=m.SNAPSHOT_NOT_FOUND, leader_epoch=3, leader_id=2),
        part(0, b"x", snapshot_id=OffsetAndEpoch(-1, 3)),
        part(0, b"x", snapshot_id=OffsetAndEpoch(100, -1)),
    ],
)
def test_a_snapshot_that_is_gone_is_not_requested_again(response: m.FetchSnapshotResponse) -> None:
    ((_, request),) = sent(respond(a_downloader(), response))
    assert isinstance(request, m.FetchRequest)
    assert request.fetch_offset == 10


def test_a_corrupt_snapshot_is_downloaded_again_after_a_pause_only() -> None:
    core = a_downloader()
    assert of(respond(core, part(0, b"1234567890"), 500), InstallSnapshot) == [InstallSnapshot(SNAPSHOT)]
    assert 2 not in dict(sent(core.step(SnapshotRefused(SNAPSHOT), 501)))
    elsewhere = m.FetchResponse(error=m.NOT_LEADER_OR_FOLLOWER, leader_epoch=3, leader_id=2)
    assert 2 not in dict(sent(respond(core, elsewhere, 1499, node_id=3)))
    ((node_id, request),) = sent(core.step(TimePassed(), 1501))
    assert (node_id, type(request), type(core.role)) == (2, m.FetchRequest, Follower)


@pytest.mark.parametrize("response", [part(1, b"x"), part(0, b""), part(0, b"x", snapshot_id=OffsetAndEpoch(101, 3))])
def test_a_part_that_was_not_requested_is_no_response_of_a_leader(response: m.FetchSnapshotResponse) -> None:
    core = a_downloader()
    effects = respond(core, response, 1000)
    assert 2 not in dict(sent(effects)), "it is not requested again before the back-off has passed"
    assert of(effects, WriteSnapshotPart) == []
    core.step(TimePassed(), 2100)
    assert isinstance(core.role, Prospective), "its time-out goes on"


@pytest.mark.parametrize("snapshot_id", [OffsetAndEpoch(200, -1), OffsetAndEpoch(-1, 3)])
def test_a_snapshot_id_that_cannot_be_is_no_response_of_a_leader(snapshot_id: OffsetAndEpoch) -> None:
    core = a_follower()
    effects = respond_to_fetch(core, 1000, snapshot_id=snapshot_id)
    assert 2 not in dict(sent(effects)), "it is not requested again before the back-off has passed"
    core.step(TimePassed(), 2001)
    assert isinstance(core.role, Prospective), "its time-out goes on"


@pytest.mark.parametrize(
    ("response", "leader_epoch", "leader_id"),
    [
        (m.FetchSnapshotResponse(error=m.FENCED_LEADER_EPOCH, leader_epoch=4, leader_id=-1), 4, -1),
        (
            m.FetchSnapshotResponse(
                error=m.FENCED_LEADER_EPOCH, leader_epoch=4, leader_id=2, leader_endpoints=ENDPOINTS
            ),
            4,
            2,
        ),
    ],
)
def test_a_later_epoch_ends_the_download(response: m.Response, leader_epoch: int, leader_id: int) -> None:
    core = a_downloader()
    effects = respond(core, response)
    assert (core.leader_epoch, core.leader_id) == (leader_epoch, leader_id)
    assert not of(effects, WriteSnapshotPart)
    assert all(isinstance(request, m.FetchRequest) for _, request in sent(effects))


def later(core: RaftCore) -> None:
    begin = m.BeginEpochRequest(leader_id=3, leader_epoch=4, leader_endpoints=local_voter(3).endpoints)
    response_to(core, begin, 6)


def silence(core: RaftCore) -> None:
    core.step(TimePassed(), 2100)


@pytest.mark.parametrize("change", [later, silence])
def test_a_part_of_an_earlier_epoch_is_not_taken(change: Callable[[RaftCore], None]) -> None:
    core = a_downloader()
    request_id = core.connections[2].request_id
    change(core)
    effects = core.step(ResponseReceived(2, request_id, part(0, b"123456")), 2101)
    assert not of(effects, WriteSnapshotPart)
