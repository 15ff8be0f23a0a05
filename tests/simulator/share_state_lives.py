"""Lives of a simulated broker that keeps states of share partitions: killed, cut from power, out of room.

Writers outlive the broker, one for each share partition. Each numbers its writes, so that the state after a number of
them is known: after the last write that was answered, or after one that was not. Beside them the log is pruned, and
what is not written is snapshotted.
"""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.share_persister import RoutedPersister
from kafkapy.share.persister import InitialState, StateBatch, StateRead, StateReadResult, StateWrite
from kafkapy.share.state_batches import combine
from tests.simulator.broker_world import Machine
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop
from tests.simulator.transaction_crashes import Trouble, live_until_death, run_life

TOPIC, GROUPS, PARTITION_COUNT = "orders", ("g", "h"), 3
WRITE_COUNT = 1_000
PROPERTIES = {
    "share_coordinator_state_topic_num_partitions": "2",
    "share_coordinator_snapshot_update_records_per_snapshot": "5",
    "share_coordinator_cold_partition_snapshot_interval_ms": "700",
    "log_flush_offset_checkpoint_interval_ms": "300",
    "replica_high_watermark_checkpoint_interval_ms": "300",
}
FLUSHED = {"log_flush_interval_messages": "1"}


def write_of(number: int, random: Random) -> StateWrite:
    """Return a write that moves the start, and changes what is behind it; topic and partition are yet to be set."""
    first = number + random.randrange(20)
    batch = StateBatch(first, first + random.randrange(9), random.choice((0, 2, 4)), random.randrange(1, 4))
    return StateWrite(bytes(16), 0, 0, 0, number, random.randrange(50), [batch])


class Writer:
    """Writes the state of one share partition; `answered`: how many writes are known to stand."""

    def __init__(self, group_id: str, partition: int, seed: int) -> None:
        self.group_id = group_id
        self.partition = partition
        self.topic_id = bytes(16)
        self.is_initialized = False
        random = Random(f"{seed} {group_id} {partition}")
        self._writes = [write_of(number, random) for number in range(WRITE_COUNT)]
        self.answered = self.tried = 0

    def expected(self, count: int) -> list[StateBatch]:
        """Return the state after so many writes."""
        batches: list[StateBatch] = []
        for write in self._writes[:count]:
            batches = combine([*batches, *write.state_batches], write.start_offset)
        return batches

    async def work(self, persister: RoutedPersister, random: Random) -> None:
        if not self.is_initialized:
            await self._initialize(persister)
        self.resume(await self._read(persister))
        while True:
            await asyncio.sleep(random.choice((0, 0, 0.003, 0.05, 0.9)))
            await self.write(persister)

    async def write(self, persister: RoutedPersister) -> None:
        write = self._writes[self.answered]
        write.topic_id, write.partition = self.topic_id, self.partition
        self.tried = max(self.tried, self.answered + 1)
        (result,) = await persister.write(self.group_id, [write])
        assert result.error_code in (0, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE), result
        if result.error_code == 0:
            self.answered += 1

    async def _initialize(self, persister: RoutedPersister) -> None:
        state = InitialState(self.topic_id, self.partition, 0)
        (result,) = await persister.initialize(self.group_id, [state])
        self.is_initialized = result.error_code == 0

    async def _read(self, persister: RoutedPersister) -> StateReadResult:
        (result,) = await persister.read(self.group_id, [StateRead(self.topic_id, self.partition, 0)])
        return result

    def resume(self, result: StateReadResult) -> None:
        """Hold a state to what was answered, and go on from it."""
        assert result.error_code == 0, result
        for count in range(self.answered, self.tried + 1):
            start_offset = count - 1
            if (result.start_offset, list(result.state_batches)) == (start_offset, self.expected(count)):
                self.answered = count
                return
        raise AssertionError(f"{result} after {self.answered} to {self.tried} writes")

    async def look(self, persister: RoutedPersister) -> None:
        if self.is_initialized:
            self.resume(await self._read(persister))
            await self.write(persister)


class ShareComputer:
    """A disk, its lives, and the writers of all of them."""

    def __init__(self, seed: int, properties: dict[str, str] | None = None) -> None:
        self.disk = SimDisk(seed)
        self.writers = [Writer(group, partition, seed) for group in GROUPS for partition in range(PARTITION_COUNT)]
        self.pruned_count = 0
        self._seed = seed
        self._random = Random(seed)
        self._properties = {**PROPERTIES, **(properties or {})}
        self._wall_ms = START_WALL_MS
        self._life_count = 0
        self._machine: Machine

    def begin(self) -> None:
        """Create the topic, and initialise all states; that is durable."""

        async def create() -> None:
            topic = await self._machine.connect().create_topic(TOPIC, PARTITION_COUNT)
            for writer in self.writers:
                writer.topic_id = topic.topic_id
                await writer._initialize(self._persister)
                assert writer.is_initialized
            await self._machine.stop()

        self._run(create, None)
        self.disk.sync_all()
        self.disk.crash("all")

    def live(self, *, keep: Keep = "all", dies_at: int | None = None, seconds: float = 8.0) -> None:
        """Let everybody work until the machine dies at a change of its disk, or for so long; `keep`: what is left."""
        self._run(lambda: self._work(seconds), dies_at)
        self.disk.crash(keep)

    def end(self) -> None:
        """Live once more, without trouble: each writer finds its state, and goes on."""

        async def look() -> None:
            for writer in self.writers:
                await asyncio.wait_for(writer.look(self._persister), 60)
            await self._machine.stop()

        self._run(look, None)

    @property
    def _persister(self) -> RoutedPersister:
        return self._machine.server._coordinators.share.persister

    async def _work(self, seconds: float) -> None:
        tasks = [asyncio.ensure_future(each.work(self._persister, self._random)) for each in self.writers]
        tasks.append(asyncio.ensure_future(self._maintain()))
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            task.cancel()
        for task in done:
            task.result()

    async def _maintain(self) -> None:
        coordinator = self._machine.server._coordinators.share.coordinator
        while True:
            await asyncio.sleep(self._random.uniform(0.1, 1))
            await self._random.choice((coordinator.prune, coordinator.snapshot_cold))()
            self.pruned_count += any(host.log.log_start_offset > 0 for host in coordinator._hosts.values())

    def _run(self, main: Callable[[], Awaitable[None]], dies_at: int | None) -> None:
        self._life_count += 1
        seed = self._seed * 100 + self._life_count
        run_life(lambda loop, trouble: self._live(loop, trouble, main), self.disk, dies_at, seed=seed)

    async def _live(self, loop: SimLoop, trouble: Trouble, main: Callable[[], Awaitable[None]]) -> None:
        seed = self._seed * 100 + self._life_count
        self._machine = Machine(loop, disk=self.disk, seed=seed, start_wall_ms=self._wall_ms, **self._properties)
        self._machine.format()
        self.disk.hook = trouble
        await live_until_death(self._machine, trouble, main)
        self._wall_ms = self._machine.clock.wall_ms() + 1000
