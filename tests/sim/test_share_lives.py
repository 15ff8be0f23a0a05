"""Members of all kinds on one share partition, while writes fail and connections close.

No record is lost, in two hands, or delivered again once it is done.

Each life is drawn from a seed: members that accept, release, reject, renew, sleep through their locks and leave without
a word. The checker keeps what each response promised. A life ends when all records are done.
"""

import asyncio
from random import Random

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE, ACK_RENEW
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.loop import SimLoop
from tests.support.share_partition_hosting import Member, Shares, acquired_of, parts_of

RECORDS, MEMBERS, LOCK_MS = 120, 4, 15_000
TRANSIENT = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.UNKNOWN_SERVER_ERROR)
SEEDS = range(60 * SOAK_FACTOR)


class Checker:
    """What is known of each record by the responses."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.holder: dict[int, tuple[str, float]] = {}
        """Member, and the time until which nobody else may have the record; until it sends an acknowledgement."""
        self.accepted: set[int] = set()
        self.rejected: set[int] = set()
        self.counts: dict[int, int] = {}

    def acquired(self, member: str, acquired: list[tuple[int, int, int]], now: float) -> None:
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                holder, until = self.holder.get(offset, ("", 0.0))
                assert until <= now + 0.001 or holder == "", f"{offset} is {holder}'s, and {member} has it, too"
                assert offset not in self.accepted | self.rejected, f"{offset} came again"
                assert self.counts.get(offset, 0) < count <= self.limit
                self.counts[offset] = count
                self.holder[offset] = (member, now + LOCK_MS / 1000)

    def freed(self, offsets: list[int]) -> None:
        for offset in offsets:
            self.holder.pop(offset, None)

    def gone(self, member: str) -> None:
        self.freed([offset for offset, (holder, _) in self.holder.items() if holder == member])


class Life:
    def __init__(self, loop: SimLoop, seed: int) -> None:
        self.dice = Random(seed)
        self.loop = loop
        limit = self.dice.choice((2, 3, 5, 10))
        self.shares = self.new_shares(share_delivery_count_limit=str(limit), share_record_lock_duration_ms=str(LOCK_MS))
        self.checker = Checker(limit)
        self.connections = 0
        self.consumers: list[asyncio.Task[None]] = []

    def new_shares(self, **own: str) -> Shares:
        return Shares(self.loop, **own)

    def start_consumers(self) -> None:
        self.consumers = [self.loop.create_task(self.consume(f"m{number}")) for number in range(MEMBERS)]

    async def run(self) -> None:
        self.start_consumers()
        others = [self.loop.create_task(writer) for writer in (self.produce(), self.disturb())]
        deadline = self.loop.time() + 4_000
        while not self.is_done():
            assert self.loop.time() < deadline, f"records hang: {self.describe()}"
            for task in (*others, *self.consumers):
                if task.done():
                    task.result()
            await asyncio.sleep(1)
        for task in (*others, *self.consumers):
            task.cancel()
        await asyncio.gather(*others, *self.consumers, return_exceptions=True)
        assert self.checker.accepted <= set(range(RECORDS))
        await self.shares.partitions.close()

    def is_done(self) -> bool:
        """Whether all that is in flight is done: the start offset may stay behind until the next write."""
        found = [each.partition.records for each in self.shares.partitions]
        if not found or found[0].next_fetch_offset() < RECORDS:
            return False
        return all(run.state.is_done and run.transition is None for batch in found[0] for run in batch.runs)

    def describe(self) -> str:
        return str(
            [
                [vars_of(run) for run in batch.runs]
                for each in self.shares.partitions
                for batch in each.partition.records
            ]
        )

    async def produce(self) -> None:
        sent = 0
        while sent < RECORDS:
            count = min(self.dice.choice((1, 3, 10)), RECORDS - sent)
            self.shares.produce(*[b"x" * 10] * count)
            sent += count
            await asyncio.sleep(self.dice.choice((0, 0.1, 2)))

    async def disturb(self) -> None:
        """Let writes fail, and be slow, for a while."""
        persister = self.shares.persister
        for _ in range(30):
            await asyncio.sleep(self.dice.uniform(0, 10))
            persister.errors = [self.dice.choice(TRANSIENT) for _ in range(self.dice.randrange(3))]
            persister.gate.clear()
            await asyncio.sleep(self.dice.choice((0, 0, 1, 20)))
            persister.gate.set()
        persister.errors = []

    async def consume(self, name: str) -> None:
        """Live some lives of a member, the last one well-behaved."""
        for life in range(4):
            self.connections += 1
            connection = f"c{self.connections}"
            member = self.shares.member(f"{name}-{life}", connection=connection)
            is_last = life == 3
            for _ in range(1_000_000 if is_last else self.dice.randrange(1, 12)):
                try:
                    await self.turn(member, is_good=is_last)
                except ApiError:
                    member.epoch = 0
                    self.leave(member, connection)
            self.leave(member, connection)

    def leave(self, member: Member, connection: str) -> None:
        self.checker.gone(member.name)
        self.shares.partitions.connection_closed(connection)

    async def turn(self, member: Member, *, is_good: bool) -> None:
        dice = self.dice
        response = await member.fetch(
            max_wait_ms=dice.choice((0, 100, 5_000)),
            max_records=dice.choice((1, 5, 50)),
            batch_size=dice.choice((1, 10)),
            share_acquire_mode=dice.randrange(2),
        )
        acquired = acquired_of(response)
        self.checker.acquired(member.name, acquired, self.loop.time())
        if not acquired:
            await asyncio.sleep(0.1)
            return
        await asyncio.sleep(dice.choice((0, 0.1, 1, 0 if is_good else 2 * LOCK_MS / 1000)))
        for first, last, _ in acquired:
            await self.settle(member, list(range(first, last + 1)), is_good=is_good)

    async def settle(self, member: Member, offsets: list[int], *, is_good: bool) -> None:
        if not is_good and self.dice.random() < 0.2:
            return  # it forgets to answer
        kinds = (ACK_ACCEPT,) if is_good else (ACK_ACCEPT, ACK_RELEASE, ACK_REJECT, ACK_RENEW)
        types = [self.dice.choice(kinds) for _ in offsets]
        is_renewing = ACK_RENEW in types
        acks = {0: [(offsets[0], offsets[-1], types)]}
        before = self.loop.time()
        self.checker.freed([offset for offset, each in zip(offsets, types, strict=True) if each != ACK_RENEW])
        (part,) = parts_of(await member.acknowledge(acks, is_renew_ack=is_renewing))
        by_type = {
            kind: [offset for offset, each in zip(offsets, types, strict=True) if each == kind] for kind in kinds
        }
        if part.error_code == ErrorCode.NONE:
            self.checker.accepted.update(by_type[ACK_ACCEPT])
            self.checker.rejected.update(by_type.get(ACK_REJECT, ()))
            renewed = by_type.get(ACK_RENEW, [])
            self.checker.holder |= dict.fromkeys(renewed, (member.name, before + LOCK_MS / 1000))


def vars_of(run: object) -> dict[str, object]:
    return {
        name: getattr(run, name) for name in ("first_offset", "last_offset", "state", "delivery_count", "member_id")
    }


@pytest.mark.parametrize("seed", SEEDS)
async def test_every_record_is_done_once(loop: SimLoop, seed: int) -> None:
    await Life(loop, seed).run()


class TestChecker:
    """A history for each fault that the checker is to find."""

    def test_a_record_in_two_hands(self) -> None:
        checker = Checker(5)
        checker.acquired("m1", [(0, 4, 1)], 0)
        with pytest.raises(AssertionError, match="has it, too"):
            checker.acquired("m2", [(4, 5, 2)], 1)

    def test_a_record_that_was_accepted_comes_again(self) -> None:
        checker = Checker(5)
        checker.acquired("m1", [(0, 0, 1)], 0)
        checker.freed([0])
        checker.accepted.add(0)
        with pytest.raises(AssertionError, match="came again"):
            checker.acquired("m2", [(0, 0, 2)], 1)

    @pytest.mark.parametrize("count", [1, 3])
    def test_a_delivery_count_that_does_not_rise_or_is_above_the_limit(self, count: int) -> None:
        checker = Checker(2)
        checker.acquired("m1", [(0, 0, 1)], 0)
        checker.gone("m1")
        with pytest.raises(AssertionError):
            checker.acquired("m2", [(0, 0, count)], 1)
