"""Acknowledgements and ends of writes in steps: as at once, and right whatever comes in between."""

from collections.abc import Iterator
from random import Random

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share import acknowledgement, partition
from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.fetched import AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.partition import SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.pending_write import PendingWrite, Refusal
from kafkapy.share.persister import SharePartitionKey, StateReadResult
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.support.steps import counted

FAILED = Refusal(ErrorCode.COORDINATOR_NOT_AVAILABLE, None)
MOST = 4_000
SETTINGS = PartitionSettings(5, MOST, 30_000)
MEMBERS = ("m1", "m2", "m3")


def loaded(settings: PartitionSettings = SETTINGS) -> SharePartition:
    found = SharePartition(SharePartitionKey("g", bytes(16), 0), 0, settings)
    found.begin_load()
    assert found.load(StateReadResult(bytes(16), 0, start_offset=0), 0) is None
    return found


def acquire(share: SharePartition, member: str, last_offset: int, limits: AcquireLimits, now_ms: int = 0) -> object:
    fetch_offset = share.next_fetch_offset()
    batches = [FetchedBatch(at, min(at + 9, last_offset)) for at in range(0, last_offset + 1, 10)]
    read = [each for each in batches if each.last_offset >= fetch_offset]
    return share.acquire(member, FetchedRecords(fetch_offset, read), limits, now_ms)


TYPES = [(ACK_ACCEPT, ACK_RELEASE, ACK_REJECT)[offset % 3] for offset in range(MOST)]


@pytest.mark.parametrize(
    "batches",
    [
        [AcknowledgementBatch(0, MOST - 1, TYPES)],
        [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in enumerate(TYPES)],
        [AcknowledgementBatch(offset, offset + 9, TYPES[offset : offset + 10]) for offset in range(0, MOST, 10)],
    ],
)
def test_the_most_that_can_be_in_flight_is_acknowledged_in_steps_with_the_outcome_of_one(
    batches: list[AcknowledgementBatch], monkeypatch: pytest.MonkeyPatch
) -> None:
    def outcome() -> tuple[int, int, list[tuple[object, ...]]]:
        share = loaded()
        acquire(share, "m1", MOST - 1, AcquireLimits(MOST, MOST))
        steps, acknowledged = counted(share.acknowledge_steps("m1", batches, 1))
        assert acknowledged.refusal is None  # type: ignore[attr-defined]
        steps_of_end, _ = counted(share.finish_write_steps(acknowledged.write, None, 2))  # type: ignore[attr-defined]
        runs = [(run.first_offset, run.last_offset, run.state) for batch in share.records for run in batch.runs]
        return steps, steps_of_end, runs

    steps, steps_of_end, runs = outcome()
    assert steps >= len(batches) // 100 - 1
    assert steps + len(batches) // 100 >= 3
    assert steps_of_end >= MOST // 200 - 1
    monkeypatch.setattr(acknowledgement, "BATCHES_PER_STEP", 1_000_000)
    monkeypatch.setattr(acknowledgement, "OFFSETS_PER_STEP", 1_000_000)
    monkeypatch.setattr(partition, "WRITTEN_PER_STEP", 1_000_000)
    assert outcome() == (0, 0, runs)


class Interleaved:
    """Work of members on one share partition whose steps are run by chance, and what each outcome has promised."""

    def __init__(self, seed: int) -> None:
        self.dice = Random(seed)
        self.share = loaded(PartitionSettings(4, 200, 1_000))
        self.now_ms = 0
        self.works: list[Iterator[None]] = []
        self.accepted: set[int] = set()
        self.held: dict[int, tuple[str, int]] = {}
        self.answering: list[tuple[str, int]] = []
        """Members and offsets of acknowledgements that have begun: they may meet what the member acquires meanwhile."""
        self.log_start_offset = 0

    def run(self) -> None:
        for _ in range(300):
            act = self.dice.choice([self.acquire, self.begin, self.step, self.step, self.step, self.wait, self.move])
            act()
            self.check()
        while self.works:
            self.step()
        self.check()
        assert not any(run.transition for batch in self.share.records for run in batch.runs)

    def check(self) -> None:
        records = self.share.records
        runs = [run for batch in records for run in batch.runs]
        done = sum(records.count_from_start(run.first_offset, run.last_offset) for run in runs if run.state.is_done)
        assert records.delivery_complete_count == done

    def acquire(self) -> None:
        member = self.dice.choice(MEMBERS)
        limits = AcquireLimits(self.dice.choice((1, 15, 100)), 100)
        for part in acquire(self.share, member, 399, limits, self.now_ms):  # type: ignore[attr-defined]
            for offset in range(part.first_offset, part.last_offset + 1):
                assert offset not in self.accepted
                holder, until_ms = self.held.get(offset, ("", 0))
                assert holder == "" or until_ms <= self.now_ms, f"{offset} is {holder}'s"
                if (member, offset) not in self.answering:
                    self.held[offset] = (member, self.now_ms + 1_000)

    def begin(self) -> None:
        """Begin an acknowledgement of some of what a member has had, not all of it rightly."""
        member = self.dice.choice(MEMBERS)
        his = sorted(offset for offset, (holder, _) in self.held.items() if holder == member)
        if self.dice.random() < 0.1 and his:
            self.held = {each: held for each, held in self.held.items() if held[0] != member}
            write = self.share.release(member, self.now_ms)
            if write is not None:
                self.works.append(self.ended(write, {}))
        elif his:
            at = self.dice.randrange(len(his))
            wanted = his[at : at + self.dice.choice((1, 10, 40))]
            kinds = {each: self.dice.choice((ACK_ACCEPT, ACK_ACCEPT, ACK_RELEASE, ACK_RENEW)) for each in wanted}
            self.works.append(self.acknowledged(member, kinds))

    def acknowledged(self, member: str, kinds: dict[int, int]) -> Iterator[None]:
        batches = [AcknowledgementBatch(offset, offset, [kind]) for offset, kind in kinds.items()]
        if list(kinds) == list(range(min(kinds), max(kinds) + 1)):
            batches = [AcknowledgementBatch(min(kinds), max(kinds), list(kinds.values()))]
        before = {offset: self.held.pop(offset) for offset in kinds if offset in self.held}
        answering = [(member, offset) for offset in kinds]
        self.answering += answering
        outcome = yield from self.share.acknowledge_steps(member, batches, self.now_ms)
        for each in answering:
            self.answering.remove(each)
        if outcome.refusal is not None or outcome.write is None:
            return  # nobody is promised anything
        assert all(holder == member for holder, _ in before.values())
        yield from self.ended(outcome.write, kinds)

    def ended(self, write: PendingWrite, kinds: dict[int, int]) -> Iterator[None]:
        yield
        refusal = self.dice.choice((None, None, FAILED))
        yield from self.share.finish_write_steps(write, refusal, self.now_ms)
        if refusal is None:
            self.accepted |= {offset for offset, kind in kinds.items() if kind == ACK_ACCEPT}

    def step(self) -> None:
        if self.works:
            work = self.dice.choice(self.works)
            if next(work, self) is self:
                self.works.remove(work)

    def wait(self) -> None:
        self.now_ms += self.dice.choice((1, 100, 600))
        write = self.share.expire(self.now_ms)
        if write is not None:
            self.works.append(self.ended(write, {}))

    def move(self) -> None:
        if self.dice.random() < 0.1:
            self.log_start_offset = max(self.log_start_offset, self.share.records.start_offset + self.dice.randrange(9))
            self.share.move_log_start(min(self.log_start_offset, self.share.records.end_offset))


@pytest.mark.parametrize("seed", range(150))
def test_whatever_comes_between_the_steps_nothing_is_counted_twice_or_given_to_two(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acknowledgement, "BATCHES_PER_STEP", 2)
    monkeypatch.setattr(acknowledgement, "OFFSETS_PER_STEP", 1)
    monkeypatch.setattr(partition, "WRITTEN_PER_STEP", 1)
    Interleaved(seed).run()
