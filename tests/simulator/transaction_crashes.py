"""Lives of a simulated broker whose clients run transactions: killed, cut from power, out of room, with lost responses.

The whole broker runs, over a disk and a network in memory. Clients of both kinds outlive it (transaction_clients.py);
two share a transactional id, one begins shortly before its last epoch, transactional ids expire while their clients
pause. Offsets are committed by members of classic groups, by members of KIP-848 groups, and for groups without any.
When all is over, no partition has an open transaction that its coordinator does not know, every client ends a
transaction, and the checker finds nothing wrong in the history.
"""

import asyncio
import errno
from collections.abc import Awaitable, Callable, Sequence
from random import Random
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkapy.protocol.messages.describe_producers_response import ProducerState
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.write_txn_markers_request import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from kafkapy.runtime.coordinators.transaction_coordinator import TransactionCoordinator
from kafkapy.transaction.decision import TransactionDecision
from kafkapy.transaction.records import VALUE_VERSION, TransactionRecord
from kafkapy.types import TopicPartition
from tests.simulator import transaction_members
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.crash_enumeration import Moment, Recorder
from tests.simulator.disk import CHANGES, Keep, SimCrash, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop, run
from tests.simulator.network import LinkRules
from tests.simulator.transaction_clients import (
    PARTITION_COUNT,
    PARTITIONS,
    TIMEOUT_MS,
    TOPICS,
    Membership,
    Stage,
    TransactionClient,
    TransactionReader,
    group_of,
    values_of,
)
from tests.support.client_requests import READ_COMMITTED, batches_in, fetch_request
from tests.support.history import Event, Finish, Limit, Observe
from tests.support.transaction_world import changed

LIFE_SECONDS = 8.0
LATE_EPOCH = 32_760
PROPERTIES = {
    **transaction_members.PROPERTIES,
    "transaction_state_log_num_partitions": "2",
    "offsets_topic_num_partitions": "2",
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
    "transactional_id_expiration_ms": "4000",
    "transaction_remove_expired_transaction_cleanup_interval_ms": "1000",
    "log_flush_offset_checkpoint_interval_ms": "300",
    "replica_high_watermark_checkpoint_interval_ms": "300",
}
FLUSHED = {"log_flush_interval_messages": "1"}
TRANSACTIONAL_IDS = ("new", "old", "both", "late")
INTERNAL = ("__consumer_offsets", "__transaction_state")


class Trouble:
    """The disk's hook: the machine is dead from a change on, and partitions of a topic find no room for some time."""

    def __init__(self, loop: SimLoop, dies_at: int | None) -> None:
        self.died: asyncio.Future[None] = loop.create_future()
        self.is_mortal = dies_at is not None
        self._left = dies_at
        self._is_dead = False
        self._full = ""

    def __call__(self, operation: str, path: str) -> None:
        if operation in CHANGES and self._left is not None:
            self._left -= 1
            self._is_dead |= self._left < 0
        if self._is_dead:
            if not self.died.done():
                self.died.set_result(None)
            raise SimCrash(f"{operation} {path}")
        if operation == "write" and self._full and path.startswith(f"/data/{self._full}-") and path.endswith(".log"):
            raise OSError(errno.ENOSPC, "no space left", path)

    def die(self) -> None:
        self._is_dead = True

    async def fill_disks(self, random: Random, topics: Sequence[str], max_apart_s: float) -> None:
        """Let the disk be full for one of the topics at a time."""
        while True:
            await asyncio.sleep(random.uniform(0.5, max_apart_s))
            self._full = random.choice(topics)
            await asyncio.sleep(random.uniform(0.05, 1))
            self._full = ""


def run_life(
    live: Callable[[SimLoop, Trouble], Awaitable[None]], disk: SimDisk, dies_at: int | None, *, seed: int
) -> None:
    """Run one life of a computer, in `live`. Fails if an exception went unhandled before its death."""
    problems: list[str] = []

    async def main(loop: SimLoop) -> None:
        trouble = Trouble(loop, dies_at)

        def on_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
            if not isinstance(context.get("exception"), SimCrash) and not trouble.died.done():
                problems.append(f"{context.get('message')}: {context.get('exception')!r}")

        loop.set_exception_handler(on_exception)
        await live(loop, trouble)

    run(main, seed=seed)
    disk.hook = None
    assert not problems, problems


async def boot_and(machine: Machine, main: Callable[[], Awaitable[None]]) -> None:
    await machine.boot()
    await main()


async def live_until_death(machine: Machine, trouble: Trouble, main: Callable[[], Awaitable[None]]) -> None:
    """Boot a machine and await `main`, or its death. Raises what they raise unless it died."""
    living = machine.loop.create_task(boot_and(machine, main))
    await asyncio.wait([living, trouble.died], return_when=asyncio.FIRST_COMPLETED)
    if not trouble.died.done():
        living.result()
    elif not machine.is_running:
        await asyncio.wait([living], timeout=60)  # a start that failed, which undoes its steps
    trouble.die()


class TransactionComputer:
    """A disk, its lives, and the clients of all of them."""

    def __init__(
        self,
        seed: int,
        properties: dict[str, str] | None = None,
        *,
        disk: SimDisk | None = None,
        first_number: int = 1,
        may_hang: bool = False,
    ) -> None:
        """disk: of a computer that had other clients, whose transactions had numbers below `first_number`.

        may_hang: whether transactions may be left that their coordinator does not know; they are then aborted as
        `kafkapy transactions abort` does.
        """
        self.seed = seed
        self.disk = disk if disk is not None else SimDisk(seed)
        self.stage = Stage()
        self.random = Random(seed)
        self._properties = {**PROPERTIES, **(properties or {})}
        self._wall_ms = START_WALL_MS
        self._life_count = 0
        self._is_raised = False
        self._may_hang = may_hang
        self._first_number = first_number
        kinds = dict(zip(TRANSACTIONAL_IDS, ((True,), (False,), (True, False), (True,)), strict=True))
        self.clients = [
            client
            for transactional_id, are_v2 in kinds.items()
            for client in self._clients_of(transactional_id, are_v2)
        ]
        self._readers = [
            TransactionReader(self.stage, "committed", READ_COMMITTED, self.random, tuple(kinds)),
            TransactionReader(self.stage, "uncommitted", 0, self.random),
        ]

    def _clients_of(self, transactional_id: str, are_v2: tuple[bool, ...]) -> list[TransactionClient]:
        numbers = [self._first_number]
        clients = [
            TransactionClient(
                self.stage,
                transactional_id,
                instance=instance,
                is_v2=is_v2,
                numbers=numbers,
                random=Random(f"{self.seed} {transactional_id} {instance}"),
                membership=self._membership_of(transactional_id, instance),
            )
            for instance, is_v2 in enumerate(are_v2)
        ]
        if transactional_id == "late":
            clients[0].on_new_producer = self._raise_epoch
        return clients

    def _membership_of(self, transactional_id: str, instance: int) -> Membership | None:
        """Return a member of the id's group, which is of another kind for each seed and each id."""
        kind = transaction_members.KINDS[
            (self.seed + TRANSACTIONAL_IDS.index(transactional_id)) % len(transaction_members.KINDS)
        ]
        if kind is None:
            return None
        name = f"{transactional_id}-{instance}"
        return kind(self.stage, group_of(transactional_id), name, Random(f"{self.seed} member {name}"))

    # -- lives --------------------------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Create the topics; all of it is durable."""

        async def create() -> None:
            client = self.stage.machine.connect()
            for topic in (*TOPICS, "afterwards"):
                await client.create_topic(topic, PARTITION_COUNT)
            await find_coordinators(client, *(each.transactional_id for each in self.clients))
            await self.stage.machine.stop()

        self._run(create, None)
        self.disk.sync_all()
        self.disk.crash("all")

    def live(self, *, keep: Keep = "all", dies_at: int | None = None, seconds: float = LIFE_SECONDS) -> None:
        """Let everybody work until the machine dies at a change of its disk, or for so long; `keep`: what is left."""
        self._run(lambda: self._work(seconds), dies_at)
        self.disk.crash(keep)

    def recorded_life(self, seconds: float) -> list[Moment]:
        """As `live`, without an end: return what stood on the disk before each change, and what clients knew."""
        recorder = Recorder(self.disk, self._known)
        recorder.doing = "working"
        self._run(lambda: self._work(seconds), None)
        return recorder.finish()

    def _known(self) -> list[Event]:
        return [*self.stage.history, *(event for client in self.clients for event in client.untold())]

    def end(self) -> list[Event]:
        """Live once more without trouble, until all is over; return the history."""
        self._run(self._finish, None)
        return self.stage.history

    def _run(self, main: Callable[[], Awaitable[None]], dies_at: int | None) -> None:
        self._life_count += 1
        seed = self.seed * 100 + self._life_count
        run_life(lambda loop, trouble: self._live(loop, trouble, main), self.disk, dies_at, seed=seed)

    async def _live(self, loop: SimLoop, trouble: Trouble, main: Callable[[], Awaitable[None]]) -> None:
        self.stage.machine = Machine(
            loop,
            disk=self.disk,
            seed=self.seed * 100 + self._life_count,
            start_wall_ms=self._wall_ms,
            rules=LinkRules(min_delay_ms=0.05, max_delay_ms=8),
            **self._properties,
        )
        self.stage.machine.format()
        self.disk.hook = trouble if self.disk.hook is None else both(trouble, self.disk.hook)
        tasks = [loop.create_task(boot_and(self.stage.machine, main))]
        if trouble.is_mortal:
            tasks.append(loop.create_task(trouble.fill_disks(self.random, (*TOPICS, *INTERNAL), 5)))
        await asyncio.wait([tasks[0], trouble.died], return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done() and not isinstance(tasks[0].exception(), SimCrash):
            tasks[0].result()
        trouble.die()
        self._wall_ms = self.stage.machine.clock.wall_ms() + 1000

    async def _work(self, seconds: float) -> None:
        works = [self._break_connections(), *(each.work() for each in (*self.clients, *self._readers))]
        tasks = [asyncio.ensure_future(work) for work in works]
        done, _ = await asyncio.wait(tasks, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for task in done:
            task.result()

    async def _break_connections(self) -> None:
        while True:
            await asyncio.sleep(self.random.uniform(0.2, 3))
            self.stage.machine.network.reset_connections(lambda _one, _other: True)

    async def _raise_epoch(self, client: TransactionClient) -> None:
        """Begin shortly before the last epoch, as an old transactional id would."""
        if self._is_raised:
            return

        def decide(shard: Any, now_ms: int) -> TransactionDecision:
            metadata = changed(shard.transactions[client.transactional_id], producer_epoch=LATE_EPOCH)
            record = TransactionRecord(client.transactional_id, metadata, VALUE_VERSION)
            return TransactionDecision("raised", [record])

        try:
            coordinator: TransactionCoordinator = self.stage.machine.server._coordinators.transactions
            await coordinator.decide(client.transactional_id, decide)
        except ApiError:
            return
        self._is_raised = True
        client.epoch = LATE_EPOCH

    # -- the end ------------------------------------------------------------------------------------------------------

    async def _finish(self) -> None:
        client = self.stage.machine.connect()
        transactional_ids = sorted({each.transactional_id for each in self.clients})
        await find_coordinators(client, *transactional_ids)
        await self._see_to_open_transactions(client)
        for each in self.clients:
            await asyncio.wait_for(each.finish_one(), 60)
        for each in self.clients:
            self.stage.history += each.untold()
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)  # what is open still belongs to a client that was fenced
        await self._see_to_open_transactions(client)
        self.stage.history += await look_at_all(client, self.stage, transactional_ids)

    async def _see_to_open_transactions(self, client: KafkaClient) -> None:
        """Assert that the coordinator knows of each transaction that is open in a partition, or abort it there."""
        coordinator: TransactionCoordinator = self.stage.machine.server._coordinators.transactions
        for partition, producer in await open_transactions(client):
            if not coordinator.takes_part(producer.producer_id, partition):
                assert self._may_hang, f"{partition} has a transaction that its coordinator does not know: {producer}"
                await abort(client, partition, producer)


def both(first: Callable[[str, str], None], second: Callable[[str, str], None]) -> Callable[[str, str], None]:
    """Return a hook of a disk that calls two."""

    def hook(operation: str, path: str) -> None:
        first(operation, path)
        second(operation, path)

    return hook


async def find_coordinators(client: KafkaClient, *transactional_ids: str) -> None:
    """Wait until groups and transactional ids have coordinators that have loaded."""
    for key_type, keys in ((0, [group_of(each) for each in transactional_ids]), (1, list(transactional_ids))):
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=keys)
        while any(found.error_code for found in (await client.call(request, 6)).coordinators):
            await asyncio.sleep(0.05)


async def open_transactions(client: KafkaClient) -> list[tuple[TopicPartition, ProducerState]]:
    """Return the partitions that have an open transaction, and whose it is."""
    topics = [TopicRequest(topic, partition_indexes=list(range(PARTITION_COUNT))) for topic in (*TOPICS, INTERNAL[0])]
    response = await client.call(DescribeProducersRequest(topics), 0)
    return [
        (TopicPartition(topic.name, partition.partition_index), producer)
        for topic in response.topics
        for partition in topic.partitions
        for producer in partition.active_producers
        if producer.current_txn_start_offset >= 0
    ]


async def abort(client: KafkaClient, partition: TopicPartition, producer: ProducerState) -> None:
    """Write the marker of a transaction that hangs."""
    marker = WritableTxnMarker(
        producer.producer_id,
        producer_epoch=producer.producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(partition.topic, partition_indexes=[partition.partition])],
        coordinator_epoch=max(producer.coordinator_epoch, 0),
    )
    (result,) = (await client.call(WriteTxnMarkersRequest([marker]), 1)).markers
    assert result.topics[0].partitions[0].error_code == 0, result


async def look_at_all(client: KafkaClient, stage: Stage, transactional_ids: list[str]) -> list[Event]:
    """Return what is there when all is over: the committed records, what is open still, the groups' offsets."""
    events: list[Event] = []
    for transactional_id in transactional_ids:
        group = group_of(transactional_id)
        topics = [OffsetFetchRequestTopics(TOPICS[0], partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group, topics=topics)], require_stable=True)
        invoked = stage.now()
        (partition,) = (await client.call(request, 9)).groups[0].topics[0].partitions
        assert partition.error_code == 0, f"{group} has a pending offset: {partition}"
        events.append(Observe(Limit.COMMITTED_OFFSET, group, partition.committed_offset, invoked, stage.now()))
    for topic, number in PARTITIONS:
        records: list[tuple[int, str]] = []
        offset, end_offset, stable = 0, 1, 1
        while offset < stable:
            request = fetch_request(topic, offset, partition=number, isolation_level=READ_COMMITTED, max_wait_ms=0)
            response = (await client.call(request, 12)).responses[0].partitions[0]
            assert response.error_code == 0, response
            end_offset, stable = response.high_watermark, response.last_stable_offset
            records += values_of(response, is_read_committed=True)
            found = batches_in(response)
            offset = found[-1].next_offset if found else stable
        events.append(Finish(f"{topic}-{number}", tuple(records), stable, end_offset))
    return events
