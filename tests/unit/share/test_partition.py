"""A share partition, event by event: the cases of Apache Kafka's SharePartitionTest, and what they leave out."""

import tracemalloc

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.fetched import AbortedTransaction, AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.partition import AcknowledgeOutcome, PartitionState, SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import DeadLetter, DeadLetterCause, PendingWrite, Refusal, persister_refusal
from kafkapy.share.persister import SharePartitionKey, StateBatch, StateReadResult
from kafkapy.share.record_state import (
    ACK_ACCEPT,
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACK_RENEW,
    NEXT_STATES,
    RecordState,
)

KEY = SharePartitionKey("g", bytes(16), 0)
AVAILABLE, ACKNOWLEDGED, ARCHIVING, ARCHIVED = 0, 2, 3, 4
UNLIMITED = AcquireLimits(max_records=1000, batch_size=1000)
FAILED = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)


def loaded(
    *batches: tuple[int, int, int, int], start_offset: int = 0, settings: PartitionSettings | None = None
) -> SharePartition:
    partition = SharePartition(KEY, 4, settings or PartitionSettings())
    partition.begin_load()
    state = [StateBatch(*batch) for batch in batches]
    read = StateReadResult(bytes(16), 0, state_epoch=7, start_offset=start_offset, state_batches=state)
    assert partition.load(read, 0) is None
    return partition


def acquire(
    partition: SharePartition,
    *batches: tuple[int, int],
    member: str = "m1",
    limits: AcquireLimits = UNLIMITED,
    now_ms: int = 0,
) -> list[tuple[int, int, int]]:
    """Acquire from what was read at the next fetch offset."""
    fetched = FetchedRecords(partition.next_fetch_offset(), [FetchedBatch(*batch) for batch in batches])
    return [tuple(part) for part in partition.acquire(member, fetched, limits, now_ms)]


def acknowledge(
    partition: SharePartition, first: int, last: int, *types: int, member: str = "m1", now_ms: int = 0
) -> AcknowledgeOutcome:
    return partition.acknowledge(member, [AcknowledgementBatch(first, last, types)], now_ms)


def acknowledged(partition: SharePartition, first: int, last: int, *types: int, member: str = "m1") -> None:
    """Acknowledge, and let the write succeed."""
    outcome = acknowledge(partition, first, last, *types, member=member)
    assert outcome.refusal is None
    assert outcome.write is not None
    partition.finish_write(outcome.write, None, 0)


def code(outcome: AcknowledgeOutcome) -> ErrorCode:
    return ErrorCode.NONE if outcome.refusal is None else outcome.refusal.error_code


def batches_of(write: PendingWrite | None) -> list[tuple[int, int, int, int]]:
    return [] if write is None else [tuple(batch) for batch in write.state_batches]


def states(partition: SharePartition) -> list[tuple[int, int, RecordState, int]]:
    return [
        (run.first_offset, run.last_offset, run.state, run.delivery_count)
        for batch in partition.records
        for run in batch.runs
    ]


class TestLoad:
    def test_begins_where_the_reset_says_without_a_start_offset(self) -> None:
        partition = SharePartition(KEY, 4, PartitionSettings())
        partition.begin_load()
        assert partition.load(StateReadResult(bytes(16), 0, start_offset=-1), 50) is None
        assert (partition.next_fetch_offset(), partition.records.start_offset) == (50, 50)

    def test_persisted_batches_are_in_flight_again(self) -> None:
        partition = loaded((5, 10, AVAILABLE, 2), (11, 15, ARCHIVED, 3), start_offset=5)
        assert partition.state_epoch == 7
        assert (partition.records.start_offset, partition.records.end_offset) == (5, 15)
        assert partition.next_fetch_offset() == 5
        assert partition.records.delivery_complete_count == 5

    def test_the_start_moves_over_what_is_done(self) -> None:
        partition = loaded((0, 4, ACKNOWLEDGED, 1), (5, 9, AVAILABLE, 1), start_offset=0)
        assert partition.records.start_offset == 5
        assert partition.records.delivery_complete_count == 0

    @pytest.mark.parametrize("batches", [[(3, 4, 0, 1)], [(6, 5, 0, 1)], [(5, 8, 0, 1), (8, 9, 0, 1)]])
    def test_fails_on_batches_that_cannot_be(self, batches: list[tuple[int, int, int, int]]) -> None:
        partition = SharePartition(KEY, 4, PartitionSettings())
        partition.begin_load()
        state = [StateBatch(*batch) for batch in batches]
        refusal = partition.load(StateReadResult(bytes(16), 0, start_offset=5, state_batches=state), 0)
        assert refusal is not None
        assert refusal.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert partition.state is PartitionState.FAILED

    @pytest.mark.parametrize(
        ("error_code", "answered"),
        [
            (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.UNKNOWN_SERVER_ERROR),
            (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
        ],
    )
    def test_errors_of_the_persister(self, error_code: ErrorCode, answered: ErrorCode) -> None:
        assert persister_refusal(error_code, "why").error_code == answered

    def test_is_refused_while_it_lasts_and_once_fenced(self) -> None:
        partition = SharePartition(KEY, 4, PartitionSettings())
        assert partition.refusal is None
        partition.begin_load()
        assert partition.refusal is not None
        assert partition.refusal.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        partition.fence()
        refusal = partition.load(StateReadResult(bytes(16), 0, start_offset=5), 0)
        assert refusal is not None
        assert refusal.error_code == ErrorCode.LEADER_NOT_AVAILABLE
        assert acquire(partition, (0, 9)) == []


class TestGaps:
    def test_what_the_state_left_out_is_acquired(self) -> None:
        partition = loaded((15, 18, ACKNOWLEDGED, 2), (21, 30, ARCHIVED, 3), start_offset=10)
        assert partition.next_fetch_offset() == 10
        assert acquire(partition, (10, 12), (13, 25)) == [(10, 14, 1), (19, 20, 1)]
        assert partition.next_fetch_offset() == 31

    def test_the_start_stays_before_a_gap(self) -> None:
        partition = loaded((5, 9, ACKNOWLEDGED, 1), start_offset=0)
        assert partition.records.start_offset == 0
        assert acquire(partition, (0, 9)) == [(0, 4, 1)]
        acknowledged(partition, 0, 4, ACK_ACCEPT)
        assert partition.records.start_offset == 5, "the gap window lasts until something after the end is acquired"
        acquire(partition, (10, 14))
        acknowledged(partition, 10, 14, ACK_ACCEPT)
        assert partition.records.start_offset == 15


class TestAcquire:
    def test_whole_batches_up_to_the_end_of_the_last(self) -> None:
        partition = loaded()
        limits = AcquireLimits(max_records=7, batch_size=100)
        assert acquire(partition, (0, 4), (5, 9), (10, 14), limits=limits) == [(0, 9, 1)]
        assert partition.next_fetch_offset() == 10

    def test_batch_size_divides_at_bounds_of_batches(self) -> None:
        limits = AcquireLimits(max_records=100, batch_size=5)
        assert acquire(loaded(), (0, 1), (2, 5), (6, 15), (16, 16), limits=limits) == [
            (0, 5, 1),
            (6, 15, 1),
            (16, 16, 1),
        ]

    def test_record_limit_divides_a_batch(self) -> None:
        partition = loaded()
        limits = AcquireLimits(max_records=3, batch_size=100, is_record_limit=True)
        assert acquire(partition, (0, 9), limits=limits) == [(0, 2, 1)]
        assert partition.next_fetch_offset() == 3
        assert acquire(partition, (0, 9), member="m2", limits=limits) == [(3, 5, 1)]

    def test_not_more_than_the_record_locks(self) -> None:
        partition = loaded(settings=PartitionSettings(max_record_locks=10))
        acquire(partition, (0, 9), (10, 19))
        assert states(partition) == [(0, 9, RecordState.ACQUIRED, 1)]
        assert not partition.can_acquire()
        assert acquire(partition, (10, 19)) == []
        acknowledged(partition, 4, 5, ACK_RELEASE)
        assert partition.can_acquire()
        assert acquire(partition, (0, 9), (10, 19), member="m2") == [(4, 5, 2)]

    def test_what_compaction_removed_is_archived(self) -> None:
        partition = loaded((0, 9, AVAILABLE, 1), (10, 14, AVAILABLE, 1))
        assert acquire(partition, (10, 14)) == [(10, 14, 2)]
        assert partition.records.delivery_complete_count == 10

    def test_records_of_aborted_transactions_are_archived(self) -> None:
        partition = loaded()
        batches = [
            FetchedBatch(0, 4, 7, is_transactional=True),
            FetchedBatch(5, 6, 8, is_transactional=True),
            FetchedBatch(7, 7, 7, is_transactional=True, is_abort_marker=True),
            FetchedBatch(8, 9, 7, is_transactional=True),
        ]
        fetched = FetchedRecords(0, batches, [AbortedTransaction(7, 0)])
        assert partition.acquire("m1", fetched, UNLIMITED, 0) == [(5, 9, 1)]
        assert states(partition)[0] == (0, 4, RecordState.ARCHIVED, 1)
        assert partition.records.delivery_complete_count == 5

    def test_an_aborted_transaction_that_fills_the_limit_is_passed_over(self) -> None:
        partition = loaded(settings=PartitionSettings(max_record_locks=10))
        aborted = [AbortedTransaction(7, 0)]
        fetched = FetchedRecords(0, [FetchedBatch(0, 19, 7, is_transactional=True)], aborted)
        assert partition.acquire("m1", fetched, UNLIMITED, 0) == []
        assert partition.can_acquire()
        assert acquire(partition, (20, 24)) == [(20, 24, 1)]

    def test_compacted_batches_that_fill_the_limit_are_passed_over(self) -> None:
        partition = loaded((0, 9, AVAILABLE, 1), settings=PartitionSettings(max_record_locks=10))
        assert acquire(partition, (15, 19)) == []
        assert partition.can_acquire()
        assert acquire(partition, (15, 19)) == [(15, 19, 1)]

    def test_an_aborted_batch_that_begins_before_the_start(self) -> None:
        partition = loaded(start_offset=3)
        fetched = FetchedRecords(3, [FetchedBatch(0, 4, 7, is_transactional=True)], [AbortedTransaction(7, 0)])
        assert partition.acquire("m1", fetched, UNLIMITED, 0) == []
        assert states(partition) == [(3, 4, RecordState.ARCHIVED, 1)]

    def test_one_fetch_at_a_time(self) -> None:
        partition = loaded()
        mine, other = object(), object()
        assert partition.maybe_hold_fetch(mine)
        assert not partition.maybe_hold_fetch(other)
        partition.release_fetch(other)
        assert not partition.maybe_hold_fetch(other)
        partition.release_fetch(mine)
        assert partition.maybe_hold_fetch(other)


class TestLateDeliveries:
    def test_halved_and_at_last_alone(self) -> None:
        """With a limit of 5: whole up to the third delivery, then a half, then one at a time."""
        partition = loaded()
        sizes = []
        for _ in range(5):
            first, last, _ = acquire(partition, (0, 7))[0]
            sizes.append(last - first + 1)
            acknowledged(partition, first, last, ACK_RELEASE)
        assert sizes == [8, 8, 8, 4, 1]
        assert states(partition)[:2] == [(0, 0, RecordState.ARCHIVED, 5), (1, 3, RecordState.AVAILABLE, 4)]
        assert partition.records.start_offset == 1

    def test_come_apart_from_others(self) -> None:
        partition = loaded((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 3))
        assert acquire(partition, (0, 9), (10, 19)) == [(0, 4, 2)]
        assert acquire(partition, (0, 9), (10, 19)) == [(5, 6, 4)]

    def test_of_two_attempts_are_whole(self) -> None:
        partition = loaded((0, 4, AVAILABLE, 1), settings=PartitionSettings(delivery_count_limit=2))
        assert acquire(partition, (0, 4)) == [(0, 4, 2)]


class TestAcknowledge:
    def test_accepted_records_are_left_behind(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        outcome = acknowledge(partition, 0, 9, ACK_ACCEPT)
        assert outcome.write is not None
        written = partition.state_write(outcome.write)
        assert (written.state_epoch, written.leader_epoch, written.start_offset) == (7, 4, 0)
        assert written.delivery_complete_count == 10
        assert list(written.state_batches) == [(0, 9, ACKNOWLEDGED, 1)]
        assert partition.finish_write(outcome.write, None, 0).has_moved
        assert (partition.records.start_offset, partition.next_fetch_offset()) == (10, 10)
        assert states(partition) == []

    def test_each_offset_by_its_own_type(self) -> None:
        partition = loaded()
        acquire(partition, (0, 4))
        write = acknowledge(partition, 0, 4, ACK_ACCEPT, ACK_GAP, ACK_GAP, ACK_RELEASE, ACK_RENEW, now_ms=10).write
        assert batches_of(write) == [(0, 0, ACKNOWLEDGED, 1), (1, 2, ARCHIVED, 1), (3, 3, AVAILABLE, 1)]
        assert partition.records.batches[0].runs[-1].deadline_ms == 30_010

    @pytest.mark.parametrize(
        ("first", "last", "types", "member", "expected"),
        [
            (0, 9, (5,), "m1", ErrorCode.INVALID_REQUEST),
            (0, 9, (ACK_ACCEPT,), "m2", ErrorCode.INVALID_RECORD_STATE),
            (5, 12, (ACK_ACCEPT,), "m1", ErrorCode.INVALID_REQUEST),
            (20, 25, (ACK_ACCEPT,), "m1", ErrorCode.INVALID_REQUEST),
        ],
    )
    def test_refused(self, first: int, last: int, types: tuple[int, ...], member: str, expected: ErrorCode) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        before = states(partition)
        assert code(acknowledge(partition, first, last, *types, member=member)) == expected
        assert states(partition) == before

    def test_below_the_start_nothing_happens(self) -> None:
        outcome = acknowledge(loaded(start_offset=10), 0, 4, ACK_ACCEPT)
        assert outcome == AcknowledgeOutcome()

    def test_before_all_that_is_in_flight(self) -> None:
        partition = loaded((5, 9, AVAILABLE, 1), start_offset=0)
        assert code(acknowledge(partition, 2, 3, ACK_ACCEPT)) == ErrorCode.INVALID_RECORD_STATE

    def test_not_while_a_write_is_under_way(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        acknowledge(partition, 0, 9, ACK_ACCEPT)
        assert code(acknowledge(partition, 0, 9, ACK_ACCEPT)) == ErrorCode.INVALID_RECORD_STATE

    def test_a_refused_batch_undoes_those_before(self) -> None:
        partition = loaded()
        acquire(partition, (0, 4))
        acquire(partition, (5, 9), member="m2")
        batches = [AcknowledgementBatch(0, 4, [ACK_ACCEPT]), AcknowledgementBatch(5, 9, [ACK_ACCEPT])]
        assert code(partition.acknowledge("m1", batches, 0)) == ErrorCode.INVALID_RECORD_STATE
        assert states(partition) == [(0, 4, RecordState.ACQUIRED, 1), (5, 9, RecordState.ACQUIRED, 1)]
        assert partition.records.delivery_complete_count == 0

    def test_a_failed_write_is_undone(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        outcome = acknowledge(partition, 3, 5, ACK_ACCEPT)
        assert outcome.write is not None
        partition.finish_write(outcome.write, FAILED, 0)
        assert states(partition) == [(0, 9, RecordState.ACQUIRED, 1)]
        assert code(acknowledge(partition, 0, 9, ACK_ACCEPT)) == ErrorCode.NONE

    def test_a_failed_write_after_the_lock_timed_out_releases(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9), now_ms=0)
        outcome = acknowledge(partition, 0, 9, ACK_ACCEPT, now_ms=1)
        assert partition.expire(30_000) is None
        assert outcome.write is not None
        partition.finish_write(outcome.write, FAILED, 30_001)
        assert states(partition) == [(0, 9, RecordState.AVAILABLE, 1)]
        assert partition.next_fetch_offset() == 0

    def test_a_failed_write_of_the_last_attempt_leaves_nothing_behind(self) -> None:
        """At the limit of record locks nothing else would ever move the start offset."""
        partition = loaded((0, 0, AVAILABLE, 4), settings=PartitionSettings(max_record_locks=2))
        acquire(partition, (0, 0), now_ms=0)
        acquire(partition, (1, 1), now_ms=0)
        acknowledged(partition, 1, 1, ACK_ACCEPT)
        outcome = acknowledge(partition, 0, 0, ACK_ACCEPT, now_ms=1)
        partition.expire(30_000)
        assert outcome.write is not None
        partition.finish_write(outcome.write, FAILED, 30_001)
        assert partition.can_acquire()
        assert partition.next_fetch_offset() == 2

    def test_renewal_refused_by_the_group(self) -> None:
        partition = loaded(settings=PartitionSettings(is_renew_enabled=False))
        acquire(partition, (0, 9))
        assert code(acknowledge(partition, 0, 9, ACK_RENEW)) == ErrorCode.INVALID_RECORD_STATE

    def test_out_of_attempts_is_archived(self) -> None:
        partition = loaded((0, 0, AVAILABLE, 4))
        acquire(partition, (0, 0))
        assert batches_of(acknowledge(partition, 0, 0, ACK_RELEASE).write) == [(0, 0, ARCHIVED, 5)]

    def test_a_release_is_available_once_written(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        outcome = acknowledge(partition, 0, 9, ACK_RELEASE)
        assert partition.next_fetch_offset() == 10
        assert outcome.write is not None
        partition.finish_write(outcome.write, None, 0)
        assert partition.next_fetch_offset() == 0


class TestMembersGone:
    def test_their_records_are_released(self) -> None:
        partition = loaded()
        acquire(partition, (0, 4))
        acquire(partition, (5, 9), member="m2")
        acknowledged(partition, 2, 2, ACK_ACCEPT)
        write = partition.release("m1", 0)
        assert batches_of(write) == [(0, 1, AVAILABLE, 1), (3, 4, AVAILABLE, 1)]

    def test_nothing_to_release(self) -> None:
        assert loaded((0, 9, AVAILABLE, 1)).release("m1", 0) is None


class TestTimeOuts:
    def test_of_locks(self) -> None:
        partition = loaded()
        assert partition.deadline_ms is None
        acquire(partition, (0, 4), now_ms=100)
        acquire(partition, (5, 9), now_ms=200)
        assert partition.deadline_ms == 30_100
        assert partition.expire(30_099) is None
        assert batches_of(partition.expire(30_100)) == [(0, 4, AVAILABLE, 1)]
        assert partition.deadline_ms == 30_200
        assert partition.next_fetch_offset() == 0
        assert code(acknowledge(partition, 0, 4, ACK_ACCEPT)) == ErrorCode.INVALID_RECORD_STATE

    def test_a_renewal_puts_it_off(self) -> None:
        partition = loaded()
        acquire(partition, (0, 4), now_ms=100)
        assert acknowledge(partition, 0, 4, ACK_RENEW, now_ms=20_000) == AcknowledgeOutcome()
        assert partition.expire(30_100) is None
        assert partition.deadline_ms == 50_000

    def test_at_the_limit_archives(self) -> None:
        partition = loaded((0, 0, AVAILABLE, 4))
        acquire(partition, (0, 0))
        write = partition.expire(30_000)
        assert batches_of(write) == [(0, 0, ARCHIVED, 5)]
        assert write is not None
        assert partition.finish_write(write, FAILED, 30_000).has_moved, "the write failed: a time-out stands"


class TestMovedLogStart:
    def test_archives_what_is_available_below(self) -> None:
        partition = loaded((0, 4, AVAILABLE, 1), (5, 9, AVAILABLE, 1))
        assert partition.move_log_start(7)
        assert not partition.move_log_start(7)
        assert partition.records.start_offset == 7
        assert partition.next_fetch_offset() == 7

    def test_acquired_records_below_are_acknowledged_without_effect(self) -> None:
        partition = loaded()
        acquire(partition, (0, 4), (5, 9))
        partition.move_log_start(5)
        assert acknowledge(partition, 0, 4, ACK_ACCEPT) == AcknowledgeOutcome()
        assert batches_of(partition.expire(30_000)) == [(0, 4, ARCHIVED, 1), (5, 9, AVAILABLE, 1)]

    def test_beyond_the_end(self) -> None:
        partition = loaded()
        partition.move_log_start(20)
        assert (partition.next_fetch_offset(), partition.records.end_offset) == (20, 20)

    def test_keeps_a_write_under_way(self) -> None:
        partition = loaded()
        acquire(partition, (0, 9))
        write = acknowledge(partition, 0, 9, ACK_RELEASE).write
        partition.move_log_start(5)
        assert partition.next_fetch_offset() == 10
        assert write is not None
        partition.finish_write(write, FAILED, 0)
        assert states(partition) == [(0, 4, RecordState.ARCHIVED, 1), (5, 9, RecordState.ACQUIRED, 1)]


class TestDeadLetters:
    SETTINGS = PartitionSettings(has_dead_letters=True)

    def test_a_rejected_record_waits_for_its_copy(self) -> None:
        partition = loaded(settings=self.SETTINGS)
        acquire(partition, (0, 9))
        write = acknowledge(partition, 0, 9, ACK_REJECT).write
        assert write is not None
        assert batches_of(write) == [(0, 9, ARCHIVING, 1)]
        finished = partition.finish_write(write, None, 0)
        assert finished.dead_letters == [DeadLetter(0, 9, 1, DeadLetterCause.CLIENT_REJECT)]
        assert not finished.has_moved
        archived = partition.archive_copied(finished.dead_letters[0])
        assert archived is not None
        assert batches_of(archived) == [(0, 9, ARCHIVED, 1)]
        assert partition.finish_write(archived, None, 0).has_moved

    def test_out_of_attempts(self) -> None:
        partition = loaded((0, 0, AVAILABLE, 4), settings=self.SETTINGS)
        acquire(partition, (0, 0))
        write = partition.expire(30_000)
        assert write is not None
        letters = partition.finish_write(write, None, 0).dead_letters
        assert letters == [DeadLetter(0, 0, 5, DeadLetterCause.DELIVERY_COUNT_EXCEEDED)]

    def test_are_copied_again_after_a_load(self) -> None:
        partition = loaded((0, 4, ARCHIVING, 1), (5, 9, ARCHIVING, 5), settings=self.SETTINGS)
        assert partition.unfinished_dead_letters() == [
            DeadLetter(0, 4, 1, DeadLetterCause.CLIENT_REJECT),
            DeadLetter(5, 9, 5, DeadLetterCause.DELIVERY_COUNT_EXCEEDED),
        ]


def test_states_follow_their_table() -> None:
    for state in RecordState:
        assert not (state.is_done and NEXT_STATES[state])
        assert state not in NEXT_STATES[state]


def test_settings_counted_from_the_next_delivery_on() -> None:
    partition = loaded()
    acquire(partition, (0, 4))
    partition.configure(PartitionSettings(delivery_count_limit=1, record_lock_duration_ms=5))
    assert batches_of(acknowledge(partition, 0, 4, ACK_RELEASE).write) == [(0, 4, ARCHIVED, 1)]


def test_an_idle_partition_takes_less_than_a_kibibyte() -> None:
    settings, count = PartitionSettings(), 500
    key = SharePartitionKey("g", bytes(16), 0)  # the driver has it anyway
    tracemalloc.start()
    try:
        partitions = [SharePartition(key, 4, settings) for _ in range(count)]
        for partition in partitions:
            partition.begin_load()
            partition.load(StateReadResult(bytes(16), 0, start_offset=10_000_000), 0)
        assert tracemalloc.get_traced_memory()[0] / count < 1024
    finally:
        tracemalloc.stop()
