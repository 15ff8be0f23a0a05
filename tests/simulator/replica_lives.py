"""A leader and its followers under faults, with a checker of what clients were told.

One partition on three nodes, min.insync.replicas 2. Links are cut in one or both directions, or slow; nodes are fenced,
requests to the controller or its responses are lost, and nodes crash and forget what was not synced: one at a time,
while another in-sync replica runs, as nothing else could keep what was acknowledged. Then all is mended, and everybody
has to agree. A seed decides everything.

The checker (names of the invariants: reliability, 1.4):

    I1  an acknowledged record is at its offset in the end
    I2  an offset below a high watermark never holds two values
    I3  high watermarks do not go back within a leader epoch
    I7  what is acknowledged is in min.insync.replicas logs
    I8  logs are the same bytes in the end
    I12 everybody makes progress once all is mended
    the controller's ISR is within the leader's maximal ISR; who is in it has all that is committed
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.disk import Keep
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import CONTROLLER, Node, ReplicaWorld, content, stored

NODES: Final = (1, 2, 3)
MIN_ISR: Final = 2
FAULTS_MS: Final = 8_000
CHECK_MS: Final = 40
KEEP: Final[tuple[Keep, ...]] = ("none", "all", "torn")
PROPERTIES: Final = {
    "replica_lag_time_max_ms": "400",
    "replica_fetch_wait_max_ms": "50",
    "replica_fetch_backoff_ms": "50",
    "replica_socket_timeout_ms": "300",
}


class ViolationError(AssertionError):
    """An invariant does not hold."""


class Checker:
    """What clients and a look at all nodes tell."""

    def __init__(self, world: ReplicaWorld) -> None:
        self._world = world
        self.acknowledged: dict[int, bytes] = {}
        self._committed: dict[int, bytes] = {}
        self._read_to: dict[tuple[int, int, int], int] = {}
        self._high_watermarks: dict[tuple[int, int, int], int] = {}
        self.has_crash = False
        """Whether a node is down, or was a moment ago: what it had may be gone."""

    def acknowledge(self, offset: int, value: bytes) -> None:
        """A producer was told that a record is committed at an offset."""
        if self.acknowledged.setdefault(offset, value) != value:
            raise ViolationError(
                f"I2: offset {offset} was acknowledged for {self.acknowledged[offset]!r} and {value!r}"
            )
        copies = sum(node.log().log_end_offset > offset for node in self._up())
        if not self.has_crash and copies < MIN_ISR:
            raise ViolationError(f"I7: offset {offset} was acknowledged with {copies} copies")

    def look(self) -> None:
        """Check what must hold at any time."""
        registration = self._world.registration()
        committed_to = max((node.log().high_watermark for node in self._up()), default=0)
        for node in self._up():
            partition, log = node.partition(), node.log()
            if node.node_id in registration.isr and log.log_end_offset < committed_to:
                raise ViolationError(f"node {node.node_id} is in the ISR with {log.log_end_offset} of {committed_to}")
            if not partition.is_leader:
                continue
            life = (node.node_id, node.broker_epoch, partition.leader_epoch)
            if log.high_watermark < self._high_watermarks.get(life, 0):
                raise ViolationError(f"I3: the high watermark of {life} went back to {log.high_watermark}")
            self._high_watermarks[life] = log.high_watermark
            if partition.leader_epoch == registration.leader_epoch:
                pending = partition.pending_isr.isr if partition.pending_isr is not None else ()
                if not set(registration.isr) <= {*partition.isr, *pending}:
                    raise ViolationError(f"the controller's ISR is {registration.isr}, the leader's {partition.isr}")
            self._read(node, life)

    def finish(self) -> None:
        """Check the end, when all is mended and everybody agrees."""
        logs = [node.log() for node in self._up()]
        final = {offset: value for offset, _, value in stored(logs[0])}
        for offset, value in self.acknowledged.items():
            if final.get(offset) != value:
                raise ViolationError(f"I1: {value!r} was acknowledged at {offset}, where {final.get(offset)!r} is")
        for offset, value in self._committed.items():
            if final.get(offset) != value:
                raise ViolationError(f"I2: {value!r} was read at {offset}, where {final.get(offset)!r} is")

    def _read(self, node: Node, life: tuple[int, int, int]) -> None:
        """Read as a consumer does."""
        log = node.log()
        position = self._read_to.get(life, 0)
        if position >= log.high_watermark:
            return
        self._read_to[life] = log.high_watermark
        for offset, _, value in stored(log, position, isolation=FetchIsolation.HIGH_WATERMARK):
            if self._committed.setdefault(offset, value) != value:
                raise ViolationError(f"I2: offset {offset} holds {self._committed[offset]!r} and {value!r}")

    def _up(self) -> list[Node]:
        return [node for node in self._world.nodes.values() if node.is_up]


class Lives:
    """One run of a seed."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._random = loop.rng
        self.world = ReplicaWorld(loop, len(NODES), **PROPERTIES)
        self.world.delays_ms = (1, 10)
        self.world.controller_timeout_ms = 300
        self.world.create_topic(replicas=NODES, configs={"min.insync.replicas": str(MIN_ISR)})
        self.checker = Checker(self.world)
        self.world.on_commit = self.checker.look
        self._is_over = False
        self._number = 0
        self._end_ms = 0
        self._quiet_until_ms = 0

    async def run(self) -> None:
        tasks = [self._loop.create_task(self._produce()) for _ in range(2)]
        tasks.append(self._loop.create_task(self._look()))
        faults = self._loop.create_task(self._break())
        done, _ = await asyncio.wait([faults, *tasks], return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()
        await self._mend()
        self._is_over = True
        for task in tasks:
            await task
        await self._agree()
        self.checker.finish()
        await self.world.stop()

    async def _produce(self) -> None:
        while not self._is_over:
            leaders = [node for node in self.world.nodes.values() if node.is_up and node.partition().is_leader]
            if leaders:
                self._number += 1
                value = b"%d" % self._number
                try:
                    code, offset = await self.world.produce(self._random.choice(leaders).node_id, value, timeout_ms=700)
                except asyncio.CancelledError:
                    continue  # the node crashed
                if code == ErrorCode.NONE:
                    self.checker.acknowledge(offset, value)
            await self.world.pass_ms(max(self._random.randrange(1, 60), self._quiet_until_ms - self._loop.now_ms()))

    async def _look(self) -> None:
        while not self._is_over:
            self.checker.look()
            await self.world.pass_ms(CHECK_MS)

    # -- faults

    async def _break(self) -> None:
        await self.world.until(lambda: self.world.registration().isr == NODES)
        self._end_ms = self._loop.now_ms() + FAULTS_MS
        links = self._loop.create_task(
            self._repeat(self._cut, self._isolate, self._lose_controller, self._slow, self._starve)
        )
        try:
            await self._repeat(self._crash, self._crash, self._bounce)
        finally:
            await links

    async def _repeat(self, *faults: Callable[[], Awaitable[None]]) -> None:
        while self._loop.now_ms() < self._end_ms:
            await self._random.choice(faults)()
            await self.world.pass_ms(self._random.randrange(10, 400))

    async def _cut(self) -> None:
        """Cut a link, in one direction or both."""
        first, second = self._random.sample(NODES, 2)
        links = {(first, second)} if self._random.random() < 0.5 else {(first, second), (second, first)}
        self.world.cut |= links
        await self.world.pass_ms(self._random.randrange(50, 1200))
        self.world.cut -= links

    async def _isolate(self) -> None:
        """Cut a node off, perhaps until its session ends."""
        node_id = self._random.choice(NODES)
        self.world.isolate(node_id)
        await self.world.pass_ms(self._random.randrange(50, 900))
        if self._random.random() < 0.6:
            self.world.fence(node_id)
            await self.world.pass_ms(self._random.randrange(50, 900))
            self.world.heal()
            await self.world.pass_ms(self._random.randrange(1, 100))
            self.world.unfence(node_id)
        self.world.heal()

    async def _lose_controller(self) -> None:
        """Let the leader's requests to the controller be lost, or the responses, and metadata come later than these."""
        node_id = max(self.world.registration().leader, 1)
        others = [each for each in NODES if each != node_id]
        follower = self._random.choice(others)
        self.world.cut |= {(node_id, follower), (follower, node_id)}
        await self.world.pass_ms(self._random.randrange(500, 1000))  # long enough to leave the ISR, as a rule
        self.world.deaf.add(node_id)
        self.world.cut.add(self._random.choice(((CONTROLLER, node_id), (CONTROLLER, node_id), (node_id, CONTROLLER))))
        self.world.cut -= {(node_id, follower), (follower, node_id)}
        await self.world.pass_ms(self._random.randrange(100, 450))
        if self._random.random() < 0.6:  # it has joined, perhaps, and the leader may not know
            self.world.cut |= {(node_id, follower), (follower, node_id)}
        await self.world.pass_ms(self._random.randrange(10, 300))
        self.world.cut -= {(CONTROLLER, node_id), (node_id, CONTROLLER)}
        await self.world.pass_ms(self._random.randrange(50, 700))
        self.world.heal()

    async def _starve(self) -> None:
        """Cut the leader off from its followers, until its ISR is too small, and perhaps until it leads no more."""
        node_id = max(self.world.registration().leader, 1)
        links = {link for other in NODES for link in ((node_id, other), (other, node_id))}
        self.world.cut |= links
        await self.world.pass_ms(self._random.randrange(600, 1200))
        if self._random.random() < 0.7:
            self.world.fence(node_id)
            await self.world.pass_ms(self._random.randrange(1, 300))
            self.world.unfence(node_id)
        self.world.cut -= links

    async def _slow(self) -> None:
        self.world.delays_ms = (1, self._random.choice((50, 200, 600)))
        await self.world.pass_ms(self._random.randrange(200, 1500))
        self.world.delays_ms = (1, 10)

    async def _bounce(self) -> None:
        """End a node's session, though it runs, and begin another one."""
        node_id = self._random.choice(NODES)
        self.world.fence(node_id)
        await self.world.pass_ms(self._random.randrange(1, 400))
        self.world.unfence(node_id)

    async def _crash(self) -> None:
        """End a node's life while another in-sync replica runs, begin the next one, and wait until it is in sync."""
        registration = self.world.registration()
        is_late = self._random.random() < 0.4
        if is_late:  # a follower, whose last fetches arrive after it has begun anew, while nothing else moves
            node_id = self._random.choice([each for each in NODES if each != registration.leader])
            self._quiet_until_ms = self._loop.now_ms() + 1500
        else:
            node_id = registration.leader if self._random.random() < 0.7 else self._random.choice(NODES)
        if len(registration.isr) < MIN_ISR or node_id not in NODES:
            return
        self.checker.has_crash = True
        if is_late:
            self.world.slow = {(node_id, other): self._random.randrange(300, 1200) for other in NODES}
            await self.world.pass_ms(60)
            self.world.slow = {}
        await self.world.nodes[node_id].crash(self._random.choice(KEEP))
        await self.world.pass_ms(self._random.randrange(0, 200))
        if self._random.random() < 0.5:
            self.world.fence(node_id)
            await self.world.pass_ms(self._random.randrange(0, 400))
        await self.world.restart(node_id)
        in_sync = self.world.registration
        await self.world.until(lambda: node_id in in_sync().isr and len(in_sync().isr) >= MIN_ISR, 20_000)
        await self.world.pass_ms(self._random.randrange(1, 700))
        self.checker.has_crash = False

    # -- the end

    async def _mend(self) -> None:
        self.world.delays_ms = (1, 10)
        self.world.heal()
        await self.world.until(lambda: set(self.world.registration().isr) == set(NODES), 10_000)
        acknowledged = len(self.checker.acknowledged)
        await self.world.until(lambda: len(self.checker.acknowledged) > acknowledged + 3, 10_000)

    async def _agree(self) -> None:
        def is_same() -> bool:
            logs = [node.log() for node in self.world.nodes.values()]
            return len({content(log) for log in logs}) == 1 and len({log.high_watermark for log in logs}) == 1

        await self.world.until(is_same, 10_000)


async def live(loop: SimLoop) -> None:
    """Run one seed; AssertionError where something does not hold."""
    await Lives(loop).run()
