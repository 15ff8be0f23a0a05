"""A share partition against a model that keeps an entry for each offset, and knows nothing of batches.

The model says what may happen, not how much: an acquired record was available, and is delivered once more; only its
member can end the delivery, and only once; nothing that is done comes again; the start passes over nothing that is not.
"""

from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.fetched import AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.partition import SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import PendingWrite, Refusal
from kafkapy.share.persister import SharePartitionKey, StateReadResult
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW, RecordState

LIMIT, LOCKS, LOCK_MS = 3, 40, 100
SETTINGS = PartitionSettings(LIMIT, LOCKS, LOCK_MS)
FAILED = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
MEMBERS = st.sampled_from(["m1", "m2", "m3"])
AVAILABLE, ACQUIRED, WRITING, DONE = "available", "acquired", "writing", "done"


@dataclass
class Record:
    """What the model knows of one offset."""

    state: str = AVAILABLE
    delivery_count: int = 0
    member: str = ""
    deadline_ms: int = 0
    after: str = AVAILABLE
    """The state once the write has succeeded."""


class Deliveries(RuleBasedStateMachine):
    writes = Bundle("writes")

    def __init__(self) -> None:
        super().__init__()
        self.partition = SharePartition(SharePartitionKey("g", bytes(16), 0), 0, SETTINGS)
        self.partition.begin_load()
        assert self.partition.load(StateReadResult(bytes(16), 0, start_offset=0), 0) is None
        self.now_ms = 0
        self.batches: list[FetchedBatch] = []
        self.records: dict[int, Record] = {}
        self.log_start_offset = 0

    @property
    def log_end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else 0

    @rule(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4))
    def produce(self, sizes: list[int]) -> None:
        for size in sizes:
            first = self.log_end_offset
            self.batches.append(FetchedBatch(first, first + size - 1))

    @rule(
        member=MEMBERS,
        most=st.integers(1, 30),
        size=st.integers(1, 30),
        is_limit=st.booleans(),
        count=st.integers(1, 5),
    )
    def acquire(self, member: str, most: int, size: int, is_limit: bool, count: int) -> None:
        fetch_offset = self.partition.next_fetch_offset()
        read = [batch for batch in self.batches if batch.last_offset >= max(fetch_offset, self.log_start_offset)][
            :count
        ]
        limits = AcquireLimits(most, size, is_limit)
        acquired = self.partition.acquire(member, FetchedRecords(fetch_offset, read), limits, self.now_ms)
        assert not is_limit or sum(part.record_count for part in acquired) <= most
        for part in acquired:
            for offset in range(part.first_offset, part.last_offset + 1):
                record = self.records.setdefault(offset, Record())
                assert record.state == AVAILABLE
                assert part.delivery_count == record.delivery_count + 1 <= LIMIT
                self.records[offset] = Record(ACQUIRED, part.delivery_count, member, self.now_ms + LOCK_MS)

    @rule(
        target=writes,
        member=MEMBERS,
        first=st.integers(0, 60),
        types=st.lists(st.sampled_from([ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW]), min_size=1, max_size=6),
    )
    def acknowledge(self, member: str, first: int, types: list[int]) -> object:
        first += self.partition.records.start_offset - 2
        if first < 0:
            return multiple()
        last = first + len(types) - 1
        start_offset = self.partition.records.start_offset
        named = [
            (offset, self.records.get(offset, Record())) for offset in range(first, last + 1) if offset >= start_offset
        ]
        outcome = self.partition.acknowledge(member, [AcknowledgementBatch(first, last, types)], self.now_ms)
        is_allowed = all(record.state == ACQUIRED and record.member == member for _, record in named)
        assert (outcome.refusal is None) == is_allowed
        if outcome.refusal is not None:
            self.renewed_before_a_refusal(member)
            return multiple()
        for offset, record in named:
            self.acknowledged(record, types[offset - first])
        return outcome.write if outcome.write is not None else multiple()

    def acknowledged(self, record: Record, kind: int) -> None:
        if kind == ACK_RENEW:
            record.deadline_ms = self.now_ms + LOCK_MS
            return
        record.state = WRITING
        is_released = kind == ACK_RELEASE and record.delivery_count < LIMIT
        record.after = AVAILABLE if is_released else DONE

    def renewed_before_a_refusal(self, member: str) -> None:
        """Take over the deadlines: renewals are not undone."""
        for batch in self.partition.records:
            for run in batch.runs:
                if run.state is RecordState.ACQUIRED and run.member_id == member and run.deadline_ms is not None:
                    for offset in range(run.first_offset, run.last_offset + 1):
                        assert run.deadline_ms in (self.records[offset].deadline_ms, self.now_ms + LOCK_MS)
                        self.records[offset].deadline_ms = run.deadline_ms

    @rule(target=writes, member=MEMBERS)
    def leave(self, member: str) -> object:
        write = self.partition.release(member, self.now_ms)
        for offset, record in self.records.items():
            if record.state == ACQUIRED and record.member == member:
                self.acknowledged(record, ACK_RELEASE)
                if offset < self.log_start_offset:
                    record.after = DONE
        return write if write is not None else multiple()

    @rule(write=consumes(writes), refusal=st.sampled_from([None, None, FAILED]))
    def end_write(self, write: PendingWrite, refusal: Refusal | None) -> None:
        self.partition.finish_write(write, refusal, self.now_ms)
        if not write.is_undoable:
            return
        for batch in write.state_batches:
            for offset in range(batch.first_offset, batch.last_offset + 1):
                record = self.records[offset]
                if record.state != WRITING:
                    continue  # archived meanwhile
                record.state = record.after if refusal is None else ACQUIRED
                if refusal is not None and record.deadline_ms <= self.now_ms:
                    record.state = AVAILABLE if record.delivery_count < LIMIT else DONE

    @rule(target=writes, passed_ms=st.sampled_from([1, 10, 50, LOCK_MS]))
    def wait(self, passed_ms: int) -> object:
        self.now_ms += passed_ms
        write = self.partition.expire(self.now_ms)
        for offset, record in self.records.items():
            if record.state == ACQUIRED and record.deadline_ms <= self.now_ms:
                is_done = offset < self.log_start_offset or record.delivery_count >= LIMIT
                record.state = DONE if is_done else AVAILABLE
        return write if write is not None else multiple()

    @rule(distance=st.integers(1, 5))
    def move_log_start(self, distance: int) -> None:
        offset = self.partition.records.start_offset + distance
        if offset > self.log_end_offset:
            return
        self.partition.move_log_start(offset)
        self.log_start_offset = offset
        for each, record in self.records.items():
            if each < offset and (record.state == AVAILABLE or (record.state == WRITING and record.after == AVAILABLE)):
                record.state = DONE

    @invariant()
    def in_flight_records_are_as_in_the_model(self) -> None:
        start_offset, previous = self.partition.records.start_offset, -1
        shown = {RecordState.AVAILABLE: AVAILABLE, RecordState.ACQUIRED: ACQUIRED}
        for batch in self.partition.records:
            assert batch.first_offset > previous
            assert batch.runs[0].first_offset == batch.first_offset
            assert batch.runs[-1].last_offset == batch.last_offset
            previous = batch.first_offset - 1
            for run in batch.runs:
                assert run.first_offset == previous + 1 <= run.last_offset
                previous = run.last_offset
                for offset in range(max(run.first_offset, start_offset), run.last_offset + 1):
                    record = self.records.get(offset, Record())
                    expected = WRITING if run.transition is not None and record.state != DONE else record.state
                    assert expected == (WRITING if record.state == WRITING else shown.get(run.state, DONE)), (
                        offset,
                        run,
                    )

    @invariant()
    def the_start_passes_over_nothing_that_is_not_done(self) -> None:
        start_offset = self.partition.records.start_offset
        below = [record for offset, record in self.records.items() if self.log_start_offset <= offset < start_offset]
        assert all(record.state == DONE for record in below)

    @invariant()
    def what_is_available_is_offered(self) -> None:
        start_offset = self.partition.records.start_offset
        free = [
            offset for offset, record in self.records.items() if record.state == AVAILABLE and offset >= start_offset
        ]
        assert self.partition.next_fetch_offset() <= min(free, default=self.partition.next_fetch_offset())

    @invariant()
    def a_lock_is_awaited(self) -> None:
        deadlines = [record.deadline_ms for record in self.records.values() if record.state == ACQUIRED]
        if deadlines:
            assert self.partition.deadline_ms is not None
            assert self.partition.deadline_ms <= min(deadlines)


TestDeliveries = Deliveries.TestCase
TestDeliveries.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
