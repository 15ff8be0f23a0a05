"""controller.quorum.append.linger.ms: which appends of a leader wait, what ends the wait, and what followers see."""

from kafkapy.raft.core import RaftCore
from kafkapy.raft.effects import FlushLog, SendResponseWithRecords
from kafkapy.raft.events import AppendRequested, LogFlushed, RequestReceived, TimePassed
from kafkapy.raft.messages import BeginEpochRequest, RemoveVoterRequest
from tests.support.quorums import local_voter
from tests.support.raft_steps import a_dynamic_leader, a_leader, fetch, of


def append(core: RaftCore, now_ms: int, size_bytes: int = 100) -> list[FlushLog]:
    """Append one record; return the flushes that follow at once."""
    return of(core.step(AppendRequested(core.leader_epoch, 1, "x", size_bytes), now_ms), FlushLog)


def under_load(core: RaftCore, now_ms: int) -> RaftCore:
    """Append two records, which do not wait and are not committed."""
    assert len(append(core, now_ms) + append(core, now_ms)) == 2
    return core


def test_an_append_does_not_wait_while_all_before_it_is_committed() -> None:
    core = a_dynamic_leader()
    assert append(core, 10) == [FlushLog(4, 0)]
    core.step(LogFlushed(4, 0), 11)
    assert append(core, 12) == [FlushLog(5, 0)]
    assert core.deadline_ms() is None


def test_an_append_does_not_wait_for_the_record_that_opened_the_epoch() -> None:
    core = a_leader()
    assert core.high_watermark == -1
    assert append(core, 3000) == [FlushLog(2, 0)]


def test_the_second_of_two_appends_goes_with_the_next_flush() -> None:
    core = a_dynamic_leader()
    assert append(core, 10) == [FlushLog(4, 0)]
    assert append(core, 11) == [FlushLog(5, 0)]


def test_appends_wait_from_the_first_one_on_while_two_others_are_uncommitted() -> None:
    core = under_load(a_dynamic_leader(), 10)
    assert append(core, 11) == []
    assert append(core, 30) == []
    assert core.deadline_ms() == 36
    assert of(core.step(LogFlushed(4, 0), 31), FlushLog) == []
    assert of(core.step(TimePassed(), 36), FlushLog) == [FlushLog(7, 0)]
    assert core.deadline_ms() is None


def test_a_linger_of_zero_lets_no_append_wait() -> None:
    core = under_load(a_leader(append_linger_ms=0), 3000)
    assert append(core, 3000) == [FlushLog(4, 0)]


def test_the_wait_ends_when_a_batch_is_full() -> None:
    core = under_load(a_leader(max_batch_bytes=1000), 3000)
    assert append(core, 3000, 600) == []
    assert append(core, 3000, 400) == [FlushLog(5, 0)]
    assert append(core, 3000, 600) == [], "the next wait counts from nothing"


def test_a_control_record_ends_the_wait() -> None:
    core = a_leader(is_dynamic=True)
    fetch(core, core.log.end_offset)
    under_load(core, 3001)
    assert append(core, 3002) == []
    remove = RemoveVoterRequest(voter=local_voter(3).key)
    effects = core.step(RequestReceived("remove", remove), 3003)
    assert of(effects, FlushLog) == [FlushLog(core.log.end_offset, 0)]
    assert of(core.step(TimePassed(), 3027), FlushLog) == []


def test_followers_fetch_waiting_appends_when_the_wait_ends() -> None:
    core = under_load(a_leader(), 3000)
    append(core, 3001)
    assert of(fetch(core, 3, now_ms=3002, high_watermark=1), SendResponseWithRecords) == []
    (response,) = of(core.step(TimePassed(), 3026), SendResponseWithRecords)
    assert response.fetch_offset == 3


def test_a_leader_that_loses_its_office_flushes_what_waits() -> None:
    core = under_load(a_leader(), 3000)
    append(core, 3001)
    begin = BeginEpochRequest(leader_id=2, leader_epoch=2, leader_endpoints=local_voter(2).endpoints)
    effects = core.step(RequestReceived("begin", begin), 3002)
    assert of(effects, FlushLog) == [FlushLog(4, 0)]
