"""ShareFetch and ShareAcknowledge on a simulated disk: sessions, acquisition, waiting, locks, acknowledgements."""

import asyncio
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.in_flight_batch import Transition
from kafkapy.share.pending_write import PendingWrite
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, run_scheduled
from tests.support.metadata_services import Deny
from tests.support.share_partition_hosting import Shares, acquired_of, parts_of, spans

LOCK_MS = 30_000


async def code_of(work: Any) -> ErrorCode:
    with pytest.raises(ApiError) as raised:
        await work
    return ErrorCode(raised.value.code)


class TestFetching:
    async def test_records_are_acquired_and_sent(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b")
        shares.produce(b"c")
        response = await shares.member().fetch(max_wait_ms=1000)
        assert response.acquisition_lock_timeout_ms == LOCK_MS
        assert acquired_of(response) == [(0, 2, 1)]
        assert spans(parts_of(response)[0]) == [(0, 1), (2, 2)]

    async def test_only_batches_with_acquired_records_are_sent(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        for value in (b"a", b"b", b"c", b"d"):
            shares.produce(value)
        member = shares.member()
        first = await member.fetch(max_wait_ms=1000, max_records=2)
        assert spans(parts_of(first)[0]) == [(0, 0), (1, 1)]
        second = await member.fetch(max_records=1)
        assert (acquired_of(second), spans(parts_of(second)[0])) == ([(2, 2, 1)], [(2, 2)])

    async def test_record_limit_divides_a_batch(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b", b"c")
        response = await shares.member().fetch(max_wait_ms=1000, max_records=2, share_acquire_mode=1)
        assert acquired_of(response) == [(0, 1, 1)]
        assert spans(parts_of(response)[0]) == [(0, 2)]

    async def test_partitions_take_turns(self, loop: SimLoop) -> None:
        shares = Shares(loop, partition_count=3)
        member = shares.member()
        await member.fetch(0, 1, 2)
        await run_scheduled()
        for partition in range(3):
            shares.produce(b"a", partition=partition)
        served = [parts_of(await member.fetch(max_records=1))[0].partition_index for _ in range(3)]
        assert sorted(served) == [0, 1, 2]

    async def test_aborted_records_are_not_seen_by_read_committed(self, loop: SimLoop) -> None:
        shares = Shares(loop, share_isolation_level="read_committed")
        transaction = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 0, "is_transactional": True}
        hosted = shares.hosted()
        assert hosted.log is not None
        hosted.log.producer_state.is_verification_enabled = False
        shares.produce(b"a", b"b", **transaction)
        aborted = EndTxnMarker(is_commit=False, coordinator_epoch=0)
        marker = build_end_txn_marker(aborted, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS)
        hosted.log.append_as_leader(
            memoryview(bytearray(marker)),
            leader_epoch=hosted.leader_epoch,
            now_ms=NOW_MS,
            origin=AppendOrigin.COORDINATOR,
        )
        shares.produce(b"c")
        assert await shares.member().acquire() == [(2, 3, 1)]

    @pytest.mark.parametrize("limit", ["max_records", "max_bytes"])
    async def test_without_room_nothing_is_fetched(self, loop: SimLoop, limit: str) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        assert parts_of(await shares.member().fetch(**{limit: 0})) == []

    async def test_an_unknown_mode_is_refused(self, loop: SimLoop) -> None:
        assert await code_of(Shares(loop).member().fetch(share_acquire_mode=2)) == ErrorCode.UNKNOWN_SERVER_ERROR

    async def test_records_that_the_log_has_lost_are_passed_over(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        shares.produce(b"b")
        member = shares.member()
        await member.acquire(max_records=1)
        await member.acknowledge({0: [(0, 0, [ACK_RELEASE])]})
        log = shares.hosted().log
        assert log is not None
        log.maybe_increment_log_start_offset(1)
        assert acquired_of(await member.fetch()) == [(1, 1, 1)]


class TestWaiting:
    async def test_ends_with_new_data(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        waiting = shares.hosting.start(shares.member().fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        shares.produce(b"a")
        assert acquired_of(await waiting) == [(0, 0, 1)]
        assert loop.time() < 2

    async def test_ends_after_max_wait_ms(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        member = shares.member()
        (part,) = parts_of(await member.fetch(max_wait_ms=500))
        assert (part.error_code, part.acquired_records) == (0, []), "it is told once that it may fetch from there"
        assert 0.5 <= loop.time() < 0.6
        assert parts_of(await member.fetch(max_wait_ms=500)) == []
        assert 1 <= loop.time() < 1.2

    async def test_for_no_bytes_ends_when_a_share_partition_is_loaded(self, loop: SimLoop) -> None:
        member = Shares(loop).member()
        assert [part.partition_index for part in parts_of(await member.fetch(max_wait_ms=500, min_bytes=0))] == [0]
        assert parts_of(await member.fetch(max_wait_ms=500, min_bytes=0)) == []
        assert loop.time() < 0.5

    async def test_ends_with_a_release(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        one, other = shares.member(), shares.member("m2", connection="c2")
        await one.acquire()
        waiting = shares.hosting.start(other.fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        await one.acknowledge({0: [(0, 0, [ACK_RELEASE])]})
        assert acquired_of(await waiting) == [(0, 0, 2)]

    async def test_ends_when_a_lock_times_out(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        await shares.member().acquire()
        waiting = shares.hosting.start(shares.member("m2", connection="c2").fetch(max_wait_ms=60_000))
        assert acquired_of(await waiting) == [(0, 0, 2)]
        assert LOCK_MS / 1000 <= loop.time() < LOCK_MS / 1000 + 1

    async def test_ends_when_the_holder_s_connection_closes(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        await shares.member().acquire()
        waiting = shares.hosting.start(shares.member("m2", connection="c2").fetch(max_wait_ms=60_000))
        await asyncio.sleep(1)
        shares.partitions.connection_closed("c1")
        assert acquired_of(await waiting) == [(0, 0, 2)]
        assert loop.time() < 2

    async def test_whose_connection_closed_meanwhile_takes_nothing_from_others(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        one, other = shares.member(), shares.member("m2", connection="c2")
        gone = shares.hosting.start(one.fetch(max_wait_ms=10_000))
        await run_scheduled()
        waiting = shares.hosting.start(other.fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        shares.partitions.connection_closed("c1")
        shares.produce(b"a")
        assert acquired_of(await waiting) == [(0, 0, 1)]
        assert parts_of(await gone) == []

    async def test_ends_when_share_groups_are_taken_away(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        assert await member.acquire() == [(0, 0, 1)]
        waiting = shares.hosting.start(shares.member("m2", connection="c2").fetch(max_wait_ms=60_000))
        await asyncio.sleep(1)
        shares.partitions.end_all()
        assert acquired_of(await waiting) == []
        assert loop.time() < 2
        assert (len(shares.partitions.sessions), list(shares.partitions)) == (0, [])
        shares.partitions.connection_closed("c1")
        member.epoch = 0
        assert await member.acquire() == [(0, 0, 1)], "what was acquired was never written"

    async def test_of_many_for_one_record_one_gets_it(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        members = [shares.member(f"m{number}", connection=f"c{number}") for number in range(9)]
        waiting = [shares.hosting.start(member.fetch(max_wait_ms=5_000)) for member in members]
        await asyncio.sleep(1)
        shares.produce(b"a")
        await run_scheduled()
        assert [task.done() for task in waiting].count(True) == 1
        got = [acquired_of(await task) for task in waiting]
        assert [acquired for acquired in got if acquired] == [[(0, 0, 1)]]

    async def test_the_next_one_is_woken_for_what_is_left(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        members = [shares.member(f"m{number}", connection=f"c{number}") for number in range(3)]
        waiting = [
            shares.hosting.start(member.fetch(max_wait_ms=5_000, max_records=1, share_acquire_mode=1))
            for member in members
        ]
        await asyncio.sleep(1)
        shares.produce(b"a", b"b", b"c")
        got = [acquired_of(await task) for task in waiting]
        assert sorted(got) == [[(0, 0, 1)], [(1, 1, 1)], [(2, 2, 1)]]
        assert loop.time() < 2

    async def test_for_min_bytes(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"x" * 100)
        waiting = shares.hosting.start(shares.member().fetch(max_wait_ms=10_000, min_bytes=400))
        await asyncio.sleep(1)
        assert not waiting.done()
        shares.produce(b"x" * 300)
        assert acquired_of(await waiting) == [(0, 1, 1)]
        assert loop.time() < 2

    async def test_less_than_min_bytes_is_taken_in_the_end(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        assert await shares.member().acquire(max_wait_ms=500, min_bytes=1000) == [(0, 0, 1)]
        assert loop.time() >= 0.5

    async def test_of_who_is_gone_nothing_is_held(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        waiting = shares.hosting.start(shares.member().fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        waiting.cancel()
        await run_scheduled()
        shares.produce(b"a")
        assert await shares.member("m2", connection="c2").acquire() == [(0, 0, 1)]
        assert [len(in_use.waiters) for in_use in shares.partitions] == [0]


class TestAcknowledging:
    async def test_accepted_records_do_not_come_again(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b")
        member = shares.member()
        await member.acquire()
        (part,) = parts_of(await member.acknowledge({0: [(0, 1, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.NONE
        (write,) = shares.persister.writes
        assert list(write.state_batches) == [(0, 1, 2, 1)]
        assert parts_of(await member.fetch()) == []

    async def test_with_a_fetch_come_first(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b")
        member = shares.member()
        await member.acquire()
        acks = {0: [(0, 0, [ACK_RELEASE]), (1, 1, [ACK_ACCEPT])]}
        response = await member.fetch(acks=acks, max_wait_ms=1000)  # a release counts once it is written
        assert acquired_of(response) == [(0, 0, 2)]
        assert parts_of(response)[0].acknowledge_error_code == ErrorCode.NONE

    async def test_a_fetch_does_not_wait_for_the_write(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        shares.produce(b"b")
        shares.persister.gate.clear()
        response = shares.hosting.start(member.fetch(acks={0: [(0, 0, [ACK_ACCEPT])]}, max_wait_ms=1000))
        await asyncio.sleep(0.1)
        (in_use,) = shares.partitions
        assert in_use.partition.next_fetch_offset() == 2, "it has acquired the next record"
        assert not response.done()
        shares.persister.gate.set()
        assert acquired_of(await response) == [(1, 1, 1)]

    async def test_responses_wait_for_the_write(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        shares.persister.gate.clear()
        response = shares.hosting.start(member.acknowledge({0: [(0, 0, [ACK_ACCEPT])]}))
        await asyncio.sleep(1)
        assert not response.done()
        shares.persister.gate.set()
        assert parts_of(await response)[0].error_code == ErrorCode.NONE

    async def test_a_failed_write_is_told_and_undone(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        shares.persister.errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
        (part,) = parts_of(await member.acknowledge({0: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        (part,) = parts_of(await member.acknowledge({0: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.NONE

    async def test_fenced_by_another_leader_the_state_is_read_again(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        shares.persister.errors = [ErrorCode.FENCED_STATE_EPOCH]
        (part,) = parts_of(await member.acknowledge({0: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert await member.acquire() == [(0, 0, 1)]
        assert shares.persister.read_count == 2

    @pytest.mark.parametrize(
        "batches",
        [
            [(1, 0, [1])],
            [(2, 3, [1]), (0, 1, [1])],
            [(0, 1, [])],
            [(0, 1, [1, 1, 1])],
            [(0, 1, [5])],
            [(0, 1, [-1])],
            [(0, 1, [ACK_RENEW])],
        ],
    )
    async def test_malformed(self, loop: SimLoop, batches: list[tuple[int, int, list[int]]]) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b")
        member = shares.member()
        await member.acquire()
        (part,) = parts_of(await member.acknowledge({0: batches}))
        assert part.error_code == ErrorCode.INVALID_REQUEST

    async def test_what_is_not_in_use(self, loop: SimLoop) -> None:
        shares = Shares(loop, partition_count=2)
        member = shares.member()
        await member.fetch(0)
        (part,) = parts_of(await member.acknowledge({1: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        (part,) = parts_of(await member.acknowledge({7: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestRenewing:
    async def test_puts_the_time_out_off(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        await asyncio.sleep(20)
        zeros = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
        response = await member.fetch(acks={0: [(0, 0, [ACK_RENEW])]}, is_renew_ack=True, **zeros)
        (part,) = parts_of(response)
        assert (part.acknowledge_error_code, part.acquired_records) == (ErrorCode.NONE, [])
        await asyncio.sleep(20)
        (part,) = parts_of(await member.acknowledge({0: [(0, 0, [ACK_ACCEPT])]}))
        assert part.error_code == ErrorCode.NONE

    @pytest.mark.parametrize("limit", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
    async def test_has_no_limits(self, loop: SimLoop, limit: str) -> None:
        zeros = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0) | {limit: 1}
        member = Shares(loop).member()
        assert await code_of(member.fetch(is_renew_ack=True, **zeros)) == ErrorCode.INVALID_REQUEST

    async def test_is_unknown_to_version_1(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire(version=1)
        (part,) = parts_of(await member.acknowledge({0: [(0, 0, [ACK_RENEW])]}, version=1))
        assert part.error_code == ErrorCode.INVALID_REQUEST


class TestSessions:
    async def test_epochs(self, loop: SimLoop) -> None:
        member = Shares(loop).member()
        assert await code_of(member.fetch(epoch=1)) == ErrorCode.SHARE_SESSION_NOT_FOUND
        assert await code_of(member.acknowledge({}, epoch=0)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        await member.fetch(0, epoch=0)
        assert await code_of(member.fetch(epoch=5)) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
        acks = {0: [(0, 0, [ACK_ACCEPT])]}
        assert await code_of(member.fetch(epoch=0, acks=acks)) == ErrorCode.INVALID_REQUEST

    async def test_the_limit_is_told_after_max_wait_ms(self, loop: SimLoop) -> None:
        shares = Shares(loop, max_sessions=1)
        await shares.member().fetch()
        late = shares.member("m2", connection="c2").fetch(max_wait_ms=700)
        assert await code_of(late) == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert loop.time() >= 0.7

    async def test_the_last_request_acknowledges_and_releases(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a", b"b")
        one, other = shares.member(), shares.member("m2", connection="c2")
        await one.acquire()
        await other.fetch()
        response = await one.fetch(epoch=-1, acks={0: [(0, 0, [ACK_ACCEPT])]})
        assert (acquired_of(response), parts_of(response)[0].acknowledge_error_code) == ([], ErrorCode.NONE)
        assert await other.acquire() == [(1, 1, 2)]

    async def test_after_the_last_session_the_state_is_read_again(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        member = shares.member()
        await member.acquire()
        await member.acknowledge({}, epoch=-1)
        await run_scheduled()
        assert list(shares.partitions) == []
        assert await shares.member("m2", connection="c2").acquire() == [(0, 0, 2)]

    async def test_forgotten_partitions_are_not_read(self, loop: SimLoop) -> None:
        shares = Shares(loop, partition_count=2)
        member = shares.member()
        await member.fetch(0, 1)
        await run_scheduled()
        shares.produce(b"a")
        shares.produce(b"b", partition=1)
        response = await member.fetch(forgotten=[0])
        assert [part.partition_index for part in parts_of(response)] == [1]


class TestRefusals:
    async def test_before_share_groups_are_finalised(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.hosting.commit(FeatureLevelRecord(name=SHARE_VERSION, feature_level=0))
        assert await code_of(shares.member().fetch()) == ErrorCode.UNSUPPORTED_VERSION
        assert await code_of(shares.member().acknowledge({})) == ErrorCode.UNSUPPORTED_VERSION

    @pytest.mark.parametrize("name", ["", "x" * 37])
    async def test_member_ids(self, loop: SimLoop, name: str) -> None:
        assert await code_of(Shares(loop).member(name).fetch()) == ErrorCode.INVALID_REQUEST

    async def test_without_the_right_to_the_group(self, loop: SimLoop) -> None:
        shares = Shares(loop, authorizer=Deny((AclOperation.READ, "g")))
        assert await code_of(shares.member().fetch()) == ErrorCode.GROUP_AUTHORIZATION_FAILED

    async def test_without_the_right_to_the_topic(self, loop: SimLoop) -> None:
        shares = Shares(loop, authorizer=Deny((AclOperation.READ, "orders")))
        (part,) = parts_of(await shares.member().fetch(max_wait_ms=1000))
        assert part.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED

    async def test_of_a_partition_that_does_not_exist(self, loop: SimLoop) -> None:
        (part,) = parts_of(await Shares(loop).member().fetch(5, max_wait_ms=1000))
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    async def test_of_a_topic_that_was_deleted(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        member = shares.member()
        await member.fetch()
        waiting = shares.hosting.start(member.fetch(max_wait_ms=10_000))
        await asyncio.sleep(1)
        shares.hosting.delete_topic()
        (part,) = parts_of(await waiting)
        assert part.error_code in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        (part,) = parts_of(await member.fetch())
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "the session has known it"
        (part,) = parts_of(await shares.member("m2").fetch())
        assert part.error_code == ErrorCode.UNKNOWN_TOPIC_ID

    async def test_a_state_that_cannot_be_read_is_told_and_tried_again(self, loop: SimLoop) -> None:
        shares = Shares(loop)
        shares.produce(b"a")
        shares.persister.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        member = shares.member()
        (part,) = parts_of(await member.fetch(max_wait_ms=1000))
        assert part.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await member.acquire() == [(0, 0, 1)]


async def test_out_of_attempts(loop: SimLoop) -> None:
    shares = Shares(loop, share_delivery_count_limit="2")
    shares.produce(b"a")
    member = shares.member()
    for count in (1, 2):
        assert await member.acquire() == [(0, 0, count)]
        await member.acknowledge({0: [(0, 0, [ACK_RELEASE if count == 1 else ACK_REJECT])]})
    assert parts_of(await member.fetch()) == []
    await shares.partitions.close()


async def test_a_violated_invariant_gives_one_share_partition_up(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    shares = Shares(loop, partition_count=2)
    shares.produce(b"a")
    shares.produce(b"b", partition=1)
    member, other = shares.member(), shares.member("m2", connection="c2")
    await member.fetch(0, 1)
    await run_scheduled()
    await member.acquire()
    await other.fetch()
    broken = next(iter(shares.partitions))
    run = broken.partition.records.batches[0].whole
    run.transition = Transition(run, 5, PendingWrite(is_undoable=True))  # of what is acquired, which cannot be
    shares.partitions.connection_closed("c1")
    assert "an invariant is violated" in caplog.text
    await run_scheduled()  # what was released of the other one is written
    assert sorted(await other.acquire(1)) == [(0, 0, 1), (0, 0, 2)]
