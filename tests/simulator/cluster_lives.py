"""A whole cluster under faults, with clients and a checker; a seed decides everything.

Links are cut in one or both directions, lossy or slow; processes are killed (kill -9, several at once too), paused
beyond their session, stopped; computers lose their power and what was not synced; clocks jump; disks are full, or fail.
Meanwhile partitions are reassigned, and leaders elected. Then all is healed, and everyone has to make progress. In the
end requests of earlier epochs arrive, and have to be refused (stale_requests.py).

Power is lost by one broker at a time, and until it is in sync again no other broker's process ends: Kafka answers
acks=all before it has synced, and takes any process that was killed for one that has forgotten, so nothing else could
keep what was acknowledged. (Metadata is synced: controllers may lose their power at any time.)
"""

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final

from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from kafkapy.types import METADATA_PARTITION
from tests.simulator import cluster_groups, cluster_memory, cluster_transactions
from tests.simulator.cluster_admin import Administrator, create_topics
from tests.simulator.cluster_checker import MIN_ISR, ClusterChecker
from tests.simulator.cluster_clients import (
    Client,
    Committer,
    Connections,
    Consumer,
    IdempotentProducer,
    LostError,
    PlainProducer,
)
from tests.simulator.cluster_flood import Flooder
from tests.simulator.cluster_groups import GROUP, GROUPS_PARTITION, GroupMember
from tests.simulator.cluster_plan import Plan, plan_of
from tests.simulator.cluster_transactions import TransactionClients
from tests.simulator.cluster_world import ClusterWorld, Computer
from tests.simulator.disk import Keep
from tests.simulator.process_lives import ProcessLoop, run_processes
from tests.simulator.stale_requests import StaleRequests

TOPIC: Final = "orders"
LOOK_S: Final = 0.05
HEAL_S: Final = 60.0
MEMBER_COUNT: Final = 3
"""Of the classic group: more than there are partitions, so that one is without."""
COORDINATOR_S: Final = 5.0
"""How long a coordinator may be isolated, and a group be waited for before, until the other faults begin."""
LATE_S: Final = 2.2
"""How long a fault may last when no other begins any more: longer than a broker's session."""
MET_S: Final = 3.0
"""How long a fault of a disk waits for an operation that meets it."""
AIMED_SHARE: Final = 0.8
"""How many of the losses of power are aimed at a broker that has unsynced records."""
FAILING: Final = (
    ("write", f"/{TOPIC}-"),
    ("write", f"/{METADATA_PARTITION}/"),
    ("write", ""),
    ("sync", f"/{METADATA_PARTITION}/"),
    ("sync", ""),
    ("read", f"/{TOPIC}-"),
    ("read", ""),
    ("rename", ""),
)
"""Operations that fail, and of which paths."""
FAILING_WITH_FLUSHES: Final = (*FAILING, *3 * (("sync", f"/{TOPIC}-"),))
ONE_BATCH_A_FETCH: Final = {"replica_fetch_max_bytes": "1", "replica_fetch_response_max_bytes": "1"}
MOVED: Final = "moved"
MOVED_WITH_TRANSACTIONS: Final = ("right", "__transaction_state", "__consumer_offsets")
"""What moves where clients are transactional: coordinators and a partition of theirs."""


class ClusterLives:
    """One run of a seed."""

    def __init__(self, loop: ProcessLoop, seed: int, plan: Plan | None = None, **properties: str) -> None:
        """plan: without, that of the seed. properties: more of each node."""
        self._loop = loop
        self._chance = loop.rng
        self._plan = plan = plan or plan_of(seed)
        self._has_transactions = plan.has_transactions
        properties = {
            **properties,
            **cluster_groups.PROPERTIES,
            **cluster_memory.PROPERTIES,
            **(cluster_transactions.PROPERTIES if self._has_transactions else {}),
            **(ONE_BATCH_A_FETCH if plan.fetches_little else {}),
        }
        self.world = ClusterWorld(loop, seed, plan.roles, **properties)
        self._moved = MOVED_WITH_TRANSACTIONS if self._has_transactions else (MOVED,)
        self.checker = self._new_checker()
        self._transactions = (
            TransactionClients(self.world, self.checker, plan.transactor_count) if self._has_transactions else None
        )
        self._late = StaleRequests(self.world, TOPIC)
        self.clients: list[Client] = []
        self._brokers = [computer.node_id for computer in self.world.brokers]
        self._admin = Connections(self.world, "admin", "10.1.0.99")
        self._is_risky = False
        """Whether a broker that has lost its power is not in sync again."""
        self._ending_count = 0
        """Faults under way that may end a broker's process."""
        self._end = 0.0
        self._watches: list[asyncio.Task[None]] = []

    def _new_checker(self) -> ClusterChecker:
        return ClusterChecker(self.world, self._moved)

    async def run(self) -> None:
        self.world.start()
        await self.world.until(self.world.is_whole, HEAL_S, "the cluster starts")
        await create_topics(self._admin, self._plan, TOPIC, MOVED)
        await self.world.until(self.world.is_whole, HEAL_S, "topics are created")
        self._late.remember()
        self._add_clients()
        tasks = [self._loop.create_task(client.run()) for client in self.clients]
        tasks.append(self._loop.create_task(self._look()))
        faults = self._loop.create_task(self._break())
        await asyncio.wait([faults, *tasks], return_when=asyncio.FIRST_COMPLETED)
        self._raise_of(faults, *tasks)
        await self._heal(tasks)
        for client in self.clients:
            client.is_over = True
        await asyncio.wait(tasks[:-1])
        self._raise_of(*tasks[:-1])
        await self._late.begin_producer_epoch()
        await self.world.until(self._is_at_rest, HEAL_S, "the replicas agree")
        if self._transactions is not None:
            await self._transactions.finish()
            await self.world.until(self._is_at_rest, HEAL_S, "the replicas agree again")
        await self._late.send_all()
        tasks[-1].cancel()
        await self.world.until(self.checker.has_settled, HEAL_S, "all have the metadata's last record")
        self.checker.finish()

    def _is_at_rest(self) -> bool:
        """Whether the cluster changes nothing by itself: a replica that agrees may not be in sync again yet."""
        return self.checker.has_settled() and self.world.is_whole()

    def _raise_of(self, *tasks: "asyncio.Task[None]") -> None:
        for task in tasks:
            if task.done():
                task.result()
        self.world.check()

    def _add_clients(self) -> None:
        world, checker, add = self.world, self.checker, self.clients.append
        add(IdempotentProducer(world, checker, "idempotent-0", 1, TOPIC, 0))
        if self._transactions is not None:
            self.clients += [*self._transactions.transactors, self._transactions.reader]
            add(Consumer(world, checker, "consumer-0", 5, TOPIC, 0))
            return
        add(Consumer(world, checker, "consumer-0", 5, TOPIC, 0))
        more: dict[str, Callable[[], list[Client]]] = {
            "idempotent-1": lambda: [IdempotentProducer(world, checker, "idempotent-1", 2, TOPIC, 1)],
            "plain-0": lambda: [PlainProducer(world, checker, "plain-0", 3, TOPIC, 0)],
            "moved": lambda: [
                IdempotentProducer(world, checker, "idempotent-2", 4, MOVED, 0),
                Consumer(world, checker, "consumer-1", 6, MOVED, 0),
            ],
            "group-0": lambda: [Committer(world, checker, "group-0", 7, TOPIC)],
            "flood": lambda: [Flooder(world, checker, "flood", 20)],
            "members": lambda: [
                GroupMember(world, checker, f"member-{number}", 8 + number, TOPIC) for number in range(MEMBER_COUNT)
            ],
        }
        for name in self._plan.clients:
            self.clients += more[name]()

    async def _look(self) -> None:
        while True:
            self.checker.look()
            await asyncio.sleep(LOOK_S)

    # -- faults -----------------------------------------------------------------------------------------------------

    async def _break(self) -> None:
        if self._plan.loses_coordinator:
            self._end = self._loop.now + COORDINATOR_S
            await self._lose_coordinator()
        self._end = self._loop.now + self._plan.faults_s
        lines = [[getattr(self, f"_{name}") for name in line] for line in self._plan.faults]
        await asyncio.gather(*(self._repeat(*line) for line in lines))

    async def _repeat(self, *faults: Callable[[], Awaitable[None]]) -> None:
        """Let the faults of a line happen, each as often as the others, until the end."""
        deck: list[Callable[[], Awaitable[None]]] = []
        while self._loop.now < self._end:
            deck = deck or self._chance.sample(faults, len(faults))
            fault = deck.pop()
            self.world.note(fault.__name__)
            await fault()
            await asyncio.sleep(self._chance.uniform(0.01, self._plan.pause_s))

    async def _for(self, low_s: float, high_s: float) -> None:
        duration_s = self._chance.uniform(low_s, high_s)
        await asyncio.sleep(max(low_s, min(duration_s, self._end + LATE_S - self._loop.now)))

    def _any(self) -> Computer:
        """Return a computer; more often one that leads something."""
        registrations = self.world.registrations()
        if registrations and self._chance.random() < 0.5:
            leader_id = self._chance.choice(list(registrations.values())).leader
            if leader_id in self.world.computers:
                return self.world.computers[leader_id]
        return self.world.computers[self._chance.choice(list(self.world.computers))]

    async def _cut(self) -> None:
        """Cut a link in one direction or both."""
        cut = self.world.network.packets.cut
        first, second = (self.world.computers[each].host for each in self._chance.sample(list(self.world.computers), 2))
        links = {(first, second)} if self._chance.random() < 0.5 else {(first, second), (second, first)}
        cut |= links
        await self._for(0.1, 4)
        cut -= links

    async def _isolate(self) -> None:
        """Cut a node off from all other nodes, in one direction or both; clients may reach it."""
        computer, cut = self._any(), self.world.network.packets.cut
        is_out, is_in = self._chance.choice(((True, True), (True, True), (True, False), (False, True)))
        links = self.world.links_of(computer, is_out=is_out, is_in=is_in)
        cut |= links
        await self._for(0.1, 5)
        cut -= links
        if self._chance.random() < 0.3:
            self.world.network.reset_connections(lambda a, b: computer.host in (a, b))

    async def _lose_coordinator(self) -> None:
        """Isolate the coordinator of a group, as a member goes, until another broker has taken over.

        Members reach all nodes, so they rebalance at the one that is isolated.
        """
        await self._soon(lambda: self.checker.newest_generation(GROUP) >= 0 and self._coordinator_id() >= 0)
        await self._for(0, 0.5)
        leader_id = self._coordinator_id()
        if leader_id < 0:
            return
        self.world.note(f"coordinator {leader_id} is isolated")
        links = self.world.links_of(self.world.computers[leader_id])
        self.world.network.packets.cut |= links
        self._chance.choice([client for client in self.clients if isinstance(client, GroupMember)]).is_to_go = True
        await self._soon(lambda: self._coordinator_id() != leader_id, 4)
        self.world.network.packets.cut -= links

    def _coordinator_id(self) -> int:
        registration = self.world.registrations().get(GROUPS_PARTITION)
        return registration.leader if registration is not None else -1

    async def _lose(self) -> None:
        self.world.network.packets.loss = self._chance.choice((0.02, 0.1, 0.3))
        await self._for(0.5, 3)
        self.world.network.packets.loss = 0.0

    async def _slow(self) -> None:
        computer = self._any()
        self.world.network.packets.slow_ms[computer.host] = self._chance.choice((50, 300, 1200))
        await self._for(0.5, 4)
        self.world.network.packets.slow_ms.pop(computer.host, None)

    async def _skew(self) -> None:
        self._any().clock.skew_ms = self._chance.randrange(-60_000, 60_000)

    def _may_end(self, *computers: Computer) -> bool:
        """Whether these processes may end."""
        return not (self._is_risky and any(computer.is_broker for computer in computers))

    async def _kill(self) -> None:
        computer = self._any()
        if self._may_end(computer):
            self.world.note(f"kill node {computer.node_id}")
            computer.kill()

    async def _kill_some(self) -> None:
        """Kill several at once, perhaps all."""
        computers = list(self.world.computers.values())
        killed = self._chance.sample(computers, self._chance.randrange(2, len(computers) + 1))
        if self._may_end(*killed):
            self.world.note(f"kill nodes {[computer.node_id for computer in killed]}")
            for computer in killed:
                computer.kill()

    async def _power(self) -> None:
        """Cut the power of a computer: more often of a broker, once it has something to forget and may do so."""
        computer = self._any()
        if self._chance.random() < AIMED_SHARE:
            await self._soon(
                lambda: self._may_forget() and any(each.has_unsynced_records for each in self.world.brokers)
            )
            await self._for(0, 0.4)
            computer = self._chance.choice(
                [each for each in self.world.brokers if each.has_unsynced_records] or [computer]
            )
        if computer.is_broker:
            if not self._may_forget():
                return
            self._is_risky = True
        keep: Keep = self._chance.choice(("none", "none", "torn", "reordered"))
        self.world.note(f"power of node {computer.node_id} ({keep})")
        computer.is_held = True
        computer.cut_power(keep)
        await self._for(0, 4)
        computer.is_held = False
        if computer.is_broker:
            self._watches.append(self._loop.create_task(self._watch(computer)))

    async def _soon(self, holds: Callable[[], bool], limit_s: float = 2.5) -> bool:
        """Wait until something holds, not for long; return whether it does."""
        end = min(self._loop.now + limit_s, self._end + LATE_S)
        while not holds() and self._loop.now < end:
            await asyncio.sleep(0.02)
        return holds()

    def _may_forget(self) -> bool:
        """Whether each partition has replicas in sync that will keep what a broker forgets."""
        return (
            not self._is_risky
            and not self._ending_count
            and all(computer.is_serving for computer in self.world.brokers)
            and all(len(each.isr) >= MIN_ISR for each in self.world.registrations().values())
        )

    async def _watch(self, computer: Computer) -> None:
        """Wait until what a computer has forgotten is there again."""

        def is_in_sync() -> bool:
            registrations = self.world.registrations().values()
            return computer.is_serving and all(
                computer.node_id in each.isr for each in registrations if computer.node_id in each.replicas
            )

        while not is_in_sync():
            await asyncio.sleep(0.05)
        await asyncio.sleep(1.0)
        self._is_risky = not is_in_sync()
        if self._is_risky:
            await self._watch(computer)

    async def _pause(self) -> None:
        computer = self._any()
        if computer.life is None:
            return
        life = computer.life
        self.world.note(f"pause of node {computer.node_id}")
        life.pause()
        await self._for(0.2, 5)
        life.resume()

    async def _stop(self) -> None:
        computer = self._any()
        if self._may_end(computer):
            with self._ending():
                self.world.note(f"stop node {computer.node_id}")
                await computer.stop()

    async def _fill(self) -> None:
        """Let a disk be full, until a write has found it so and a while longer."""
        computer = self._any()
        if self._may_end(computer):
            with self._ending():
                room_bytes = self._chance.choice((0, 0, 100, 300))
                self.world.note(f"disk of node {computer.node_id} is full after {room_bytes} bytes")
                computer.has_disk_fault = True
                computer.disk.capacity_bytes = computer.disk.used_bytes() + room_bytes
                await self._met(computer, "full")
                computer.disk.capacity_bytes = None

    async def _fail_disk(self) -> None:
        """Let a write, a read or an fsync fail: of something that is done soon."""
        computer = self._any()
        if not self._may_end(computer):
            return
        computer.has_disk_fault = computer.has_failed_disk = True
        operation, path = self._chance.choice(FAILING if not self._plan.flushes_often else FAILING_WITH_FLUSHES)
        self.world.note(f"{operation} of {path or 'anything'} of node {computer.node_id} fails")
        with self._ending():
            if operation == "read":
                computer.disk.chill()
            computer.disk.fail(operation, errno.EIO, path=path)
            await self._met(computer, operation)
            computer.disk.heal()

    async def _met(self, computer: Computer, effect: str) -> None:
        """Wait until a fault of a disk has had an effect, and for a while; not for long in all."""
        count = computer.disk.effects[effect]
        if await self._soon(lambda: computer.disk.effects[effect] > count, MET_S):
            self.world.note(f"node {computer.node_id} met its disk's fault: {effect}")
            await self._for(0, 1)

    @contextmanager
    def _ending(self) -> Iterator[None]:
        """While a fault is under way that may end a broker's process."""
        self._ending_count += 1
        try:
            yield
        finally:
            self._ending_count -= 1

    async def _reassign(self) -> None:
        """Move a partition to other brokers."""
        await self._request_replicas(self._chance.sample(self._brokers, 2))

    async def _administer(self) -> None:
        """Change a partition's replicas and their number, cancel such a change, or elect the preferred leaders."""
        kind = self._chance.choice(("replicas", "replicas", "cancel", "elect"))
        if kind == "elect":
            with suppress(LostError):
                response = await self._admin.send_to_any(ElectLeadersRequest(topic_partitions=None, timeout_ms=2000))
                self.world.note(f"elected: {response.error_code}")
            return
        count = self._chance.choice((2, 3))
        await self._request_replicas(None if kind == "cancel" else self._chance.sample(self._brokers, count))

    async def _request_replicas(self, replicas: list[int] | None) -> None:
        """Ask for a reassignment of a partition; None cancels one."""
        name = self._chance.choice(self._moved) if self._has_transactions else MOVED
        topic = ReassignableTopic(name, partitions=[ReassignablePartition(0, replicas=replicas)])
        request = AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[topic])
        with suppress(LostError):
            response = await self._admin.send_to_any(request)
            code = response.error_code or response.responses[0].partitions[0].error_code
            self.world.note(f"replicas {replicas} of {name}: {code}")

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _heal(self, tasks: "Sequence[asyncio.Task[None]]") -> None:
        """Mend everything; all nodes serve, all replicas are in sync, every client makes progress."""
        world = self.world
        world.note("heal")
        world.network.packets.cut.clear()
        world.network.packets.loss = 0.0
        world.network.packets.slow_ms.clear()
        for computer in world.computers.values():
            computer.disk.heal()
            computer.is_held = False
            if computer.life is not None and computer.life.is_paused:
                computer.life.resume()
            if computer.has_failed_disk and computer.life is not None:
                computer.kill()
        before = [client.progress for client in self.clients]
        administrator = Administrator(world, self.checker)
        administration = self._loop.create_task(administrator.run())

        def is_well() -> bool:
            self._raise_of(*tasks, administration)
            is_enough_done = True
            for client, count in zip(self.clients, before, strict=True):
                has_done_enough = client.progress >= count + client.enough_progress
                client.is_calm = has_done_enough and self._plan.has_calm_clients
                is_enough_done = is_enough_done and has_done_enough
            return is_enough_done and administration.done() and world.is_whole()

        try:
            await world.until(is_well, HEAL_S, "all is well again")
        except AssertionError as error:
            administered = "done" if administration.done() else f"{administrator.doing}, {administrator.last_codes}"
            raise AssertionError(f"{error}: {self._state(before)}; administration: {administered}") from error

    def _state(self, before: Sequence[int]) -> str:
        nodes = {
            computer.node_id: (computer.is_serving, computer.life is not None)
            for computer in self.world.computers.values()
        }
        progress = {client.name: client.progress - count for client, count in zip(self.clients, before, strict=True)}
        image = self.world.image()
        fenced = [broker.id for broker in image.cluster.brokers.values() if broker.fenced] if image else None
        registrations = {f"{key}": value for key, value in self.world.registrations().items()}
        return f"serving, running: {nodes}; fenced: {fenced}; progress: {progress}; {registrations}"


def live(seed: int, kind: Callable[[ProcessLoop, int], ClusterLives] = ClusterLives) -> list[str]:
    """Run one seed; return what happened, in order. AssertionError where something does not hold.

    A seed decides all of it: the last line, which depends on each draw of the run, is the same in any process.
    """
    return live_and_count(seed, kind)[0]


def live_and_count(
    seed: int, kind: Callable[[ProcessLoop, int], ClusterLives] = ClusterLives
) -> tuple[list[str], Counter[str]]:
    """Run one seed as `live` does; return what happened, and how often each kind of disk fault took effect."""
    world: list[ClusterWorld] = []

    async def main(loop: ProcessLoop) -> None:
        lives = kind(loop, seed)
        world.append(lives.world)
        await lives.run()
        lives.world.note(f"over; chance goes on with {loop.rng.getrandbits(64):x}")

    try:
        run_processes(main, seed=seed, limit_seconds=600)
    except BaseException as error:
        history = "\n".join(world[0].history) if world else ""
        module = kind.__module__ if kind is not ClusterLives else "tests.simulator.cluster_lives"
        command = f"python -m {module} {seed}"
        error.add_note(f"{history}\nAgain: {command}")
        raise
    return world[0].history, world[0].effects()


if __name__ == "__main__":
    import sys

    if len(sys.argv) > 2:
        import logging

        logging.basicConfig(level=logging.INFO, stream=sys.stdout)
    print("\n".join(live(int(sys.argv[1]))))
