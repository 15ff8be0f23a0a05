"""Lives of one node with transactional producers: kill -9 at any change of its disk, full disks, time-outs, fencing.

Coordinator, partitions and groups are production code over a simulated disk, on virtual time. Each transaction writes
its number to two topics and commits it as the offset of a group. What must hold when all is over: the three agree;
what was acknowledged stands; no partition has an open transaction; and every producer goes on.
"""

import asyncio
import errno
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer
from kafkapy.runtime.coordinators.writer import TransactionalWrite
from kafkapy.transaction.decision import TransactionDecision
from kafkapy.transaction.records import VALUE_VERSION, TransactionRecord
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from tests.simulator.disk import SimCrash, SimDisk
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import NOW_MS
from tests.support.transaction_hosting import SimProducer, TransactionHosting, batches_of
from tests.support.transaction_world import changed

TOPICS = ("orders", "trades")
PRODUCER_COUNT = 3
LIFE_SECONDS = 20.0
TIMEOUT_MS = 3000
LATE_EPOCH = 32_760
RETRIED = frozenset((ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))


@dataclass
class Outcomes:
    """What one producer was told, over all lives. A number in none of the sets may have ended either way."""

    next_number: int = 0
    committed: set[int] = field(default_factory=set)
    aborted: set[int] = field(default_factory=set)
    has_late_epoch: bool = False


class World:
    """A disk and its lives."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.random = Random(seed)
        self.disk = SimDisk(seed)
        self.outcomes = {f"t-{number}": Outcomes() for number in range(PRODUCER_COUNT)}
        self._now_ms = NOW_MS
        self._life_count = 0

    def live(self) -> None:
        """Run the node until it is killed at some change of its disk, or for LIFE_SECONDS."""
        self._run(self._work_until_killed)
        self.disk.hook = None
        self.disk.crash("all")

    def check(self) -> None:
        """Start once more, have every producer go on, and look at what is left of all transactions."""
        self._run(self._check)

    def _run(self, main: Any) -> None:
        self._life_count += 1
        problems: list[str] = []

        def on_exception(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not isinstance(context.get("exception"), SimCrash):
                problems.append(f"{context.get('message')}: {context.get('exception')!r}")

        async def live(loop: SimLoop) -> None:
            loop.set_exception_handler(on_exception)
            hosting = TransactionHosting(loop, disk=self.disk, now_ms=self._now_ms)
            for topic in (*TOPICS, OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC):
                hosting.create_topic(topic)
            await main(loop, hosting)
            self._now_ms = hosting.clock.wall_ms() + 1000

        run(live, seed=self.seed * 100 + self._life_count)
        assert not problems, problems

    async def _work_until_killed(self, loop: SimLoop, hosting: TransactionHosting) -> None:
        killed: asyncio.Future[None] = loop.create_future()
        trouble = Trouble(loop, self.disk.changes + self.random.randrange(10, 600), killed)
        self.disk.hook = trouble
        tasks = [
            loop.create_task(Client(hosting, name, outcomes, Random(self.random.random())).work())
            for name, outcomes in self.outcomes.items()
        ]
        tasks += [
            loop.create_task(trouble.fill_disks(self.random)),
            loop.create_task(abort_timed_out(hosting)),
        ]
        await asyncio.wait([*tasks, killed], timeout=LIFE_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        for task in tasks:
            if task.done() and not isinstance(task.exception(), SimCrash):
                task.result()
        trouble.die()

    async def _check(self, loop: SimLoop, hosting: TransactionHosting) -> None:
        await hosting.loaded()
        clients = [Client(hosting, name, each, self.random) for name, each in self.outcomes.items()]
        for client in clients:
            await client.init()
            await client.transact(is_commit=True)
        await asyncio.sleep(1)
        for topic in (*TOPICS, OFFSETS_TOPIC):
            log = hosting.log(topic)
            assert log.last_stable_offset == log.log_end_offset, f"{topic} has an open transaction"
        for client in clients:
            found = [committed_numbers(hosting, topic, client.name) for topic in TOPICS]
            assert found[0] == found[1] == sorted(set(found[0])), (client.name, found)
            assert client.outcomes.committed <= set(found[0])
            assert not client.outcomes.aborted & set(found[0])
            offset = await hosting.committed_offset(group_id=client.name, require_stable=True)
            assert offset == max(found[0])


class Trouble:
    """The disk's hook: the process dies at a change, and partitions find no room for some time."""

    def __init__(self, loop: SimLoop, dies_at: int, killed: "asyncio.Future[None]") -> None:
        self._loop = loop
        self._left = dies_at
        self._changes = 0
        self._killed = killed
        self._is_dead = False
        self._full = ""

    def __call__(self, operation: str, path: str) -> None:
        if operation != "write":
            if self._is_dead:
                raise SimCrash(path)
            return
        self._changes += 1
        if self._is_dead or self._changes >= self._left:
            self.die()
            raise SimCrash(path)
        if self._full and path.startswith(f"/data/{self._full}-") and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)

    def die(self) -> None:
        self._is_dead = True
        if not self._killed.done():
            self._killed.set_result(None)

    async def fill_disks(self, random: Random) -> None:
        while True:
            await asyncio.sleep(random.uniform(0.2, 4))
            self._full = random.choice((*TOPICS, OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC))
            await asyncio.sleep(random.uniform(0.05, 2))
            self._full = ""


async def abort_timed_out(hosting: TransactionHosting) -> None:
    while True:
        await asyncio.sleep(0.5)
        await hosting.transactions.abort_timed_out()


class GaveUp(Exception):
    """The transaction was refused, and was not asked to commit."""


class Client:
    """A producer that runs transactions one after the other, whatever happens."""

    def __init__(self, hosting: TransactionHosting, name: str, outcomes: Outcomes, random: Random) -> None:
        self.name = name
        self.outcomes = outcomes
        self._hosting = hosting
        self._random = random
        self._producer = SimProducer(hosting, name)

    async def work(self) -> None:
        await self.init()
        while True:
            await asyncio.sleep(self._random.uniform(0, 0.05))
            if self._random.random() < 0.05:
                await self.init()
            await self.transact(is_commit=self._random.random() < 0.7)

    async def init(self) -> None:
        """Become the producer of the transactional id, whoever was before."""
        while True:
            try:
                code = await self._producer.init(timeout_ms=TIMEOUT_MS)
            except ApiError:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            if code == ErrorCode.NONE:
                break
            await asyncio.sleep(0.05)
        if not self.outcomes.has_late_epoch and self.name == "t-0":
            await self._raise_epoch()

    async def _raise_epoch(self) -> None:
        """Begin shortly before the last epoch, as an old transactional id would."""

        def decide(shard: Any, now_ms: int) -> TransactionDecision:
            metadata = changed(shard.transactions[self.name], producer_epoch=LATE_EPOCH)
            return TransactionDecision("raised", [TransactionRecord(self.name, metadata, VALUE_VERSION)])

        try:
            await self._hosting.transactions.decide(self.name, decide)
        except ApiError:
            return
        self.outcomes.has_late_epoch = True
        self._producer.epoch = LATE_EPOCH

    async def transact(self, *, is_commit: bool) -> None:
        number = self.outcomes.next_number
        self.outcomes.next_number += 1
        if not is_commit:
            self.outcomes.aborted.add(number)
        try:
            await self._write(number)
        except GaveUp:
            self.outcomes.aborted.add(number)
            await self.init()
            return
        await self._end(number, is_commit=is_commit)

    async def _write(self, number: int) -> None:
        for topic in TOPICS:
            if await self._producer.send(topic, f"{self.name} {number}".encode()) != ErrorCode.NONE:
                raise GaveUp
        if self._random.random() < 0.03:
            await asyncio.sleep(TIMEOUT_MS / 1000 + 1)
        try:
            if await commit_offset(self._hosting, self._producer, number) != ErrorCode.NONE:
                raise GaveUp
        except ApiError as error:
            raise GaveUp from error

    async def _end(self, number: int, *, is_commit: bool) -> None:
        while True:
            try:
                code = await self._producer.end(commit=is_commit)
            except ApiError:
                code = ErrorCode.CONCURRENT_TRANSACTIONS  # nothing was decided: ask again
            if code not in RETRIED:
                break
            await asyncio.sleep(0.05)
        if code == ErrorCode.NONE:
            (self.outcomes.committed if is_commit else self.outcomes.aborted).add(number)
            return
        self.outcomes.aborted.add(number)  # it has run for too long
        await self.init()


async def commit_offset(hosting: TransactionHosting, producer: SimProducer, offset: int) -> int:
    """TxnOffsetCommit 5, as its handler does it."""
    partition = hosting.manager.partitions.find(OFFSETS_TOPIC, 0)
    assert partition is not None
    name = producer.transactional_id
    requester = TransactionalProducer(name, producer.producer_id, producer.epoch, True, True)
    verified = (await hosting.verification.verify(requester, {partition: -1}))[partition]
    if verified.code:
        return verified.code
    write = TransactionalWrite(producer.producer_id, producer.epoch, verified.guard)
    requested = TxnOffsetCommitRequestTopic(
        "orders", partitions=[TxnOffsetCommitRequestPartition(0, committed_offset=offset, committed_metadata="")]
    )
    request = TxnOffsetCommitRequest(
        name, group_id=name, producer_id=producer.producer_id, producer_epoch=producer.epoch, topics=[requested]
    )
    response = await hosting.groups.call(
        name, lambda shard, token, now_ms: shard.offsets.commit_in_transaction(request, 5), write
    )
    return int(response.topics[0].partitions[0].error_code)


def committed_numbers(hosting: TransactionHosting, topic: str, name: str) -> list[int]:
    """Return the numbers of one producer that a read_committed consumer reads."""
    found: list[int] = []
    pending: dict[int, list[bytes]] = {}
    for batch in batches_of(hosting, topic):
        if batch.is_control:
            (record,) = batch.records()
            values = pending.pop(batch.producer_id, [])
            if record.key is not None and record.key[3] == 1:
                found += [int(value.split()[1]) for value in values if value.split()[0].decode() == name]
        else:
            pending.setdefault(batch.producer_id, []).extend(record.value or b"" for record in batch.records())
    return found
