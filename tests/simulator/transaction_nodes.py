"""Transactional producers over three brokers of which one at a time is cut off, taken for dead, and comes back.

Coordinators, partitions, groups, fetchers and what they ask each other are production code, over simulated disks and
network on virtual time; the controller is the test's. A broker that is cut off goes on serving those clients that
still reach it: it does not know that others have taken over. Then it hears of it, or dies and starts again with what
its disk has kept. Leaders move while nothing is wrong, too. Each transaction writes its number to two topics and
commits it as the offset of a group. What must hold when all is over: the three agree, what was acknowledged stands, no
transaction is open, the replicas are equal, and every producer goes on.
"""

import asyncio
from collections.abc import Awaitable, Sequence
from random import Random
from typing import Any, TypeVar

from kafkapy.errors import ApiError
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition
from tests.simulator.disk import Keep
from tests.simulator.loop import SimLoop, run
from tests.simulator.transaction_lives import TOPICS, GaveUp, Outcomes, committed_numbers
from tests.support.hosting import batch, topic_id
from tests.support.linked_brokers import LinkedBroker, LinkedBrokers
from tests.support.transaction_hosting import SimProducer, batches_of

NODES = (1, 2, 3)
PRODUCER_COUNT = 3
TROUBLES = 4
KEEPS: tuple[Keep, ...] = ("all", "torn", "none")
"""What a broker's disk keeps that was not synced: all after kill -9, some or nothing after a power cut."""
TIMEOUT_MS = 5000
RESPONSE_S = 4.0
"""After this a client asks again, and may ask another broker."""

T = TypeVar("T")


def simulate(seed: int) -> "World":
    """Run a world to its end and check it."""

    async def main(loop: SimLoop) -> World:
        world = World(loop, Random(seed))
        await world.live()
        await world.check()
        await world.brokers.close()
        return world

    return run(main, seed=seed)


class World:
    def __init__(self, loop: SimLoop, random: Random) -> None:
        self.loop = loop
        self.random = random
        self.brokers = LinkedBrokers(loop, len(NODES))
        self.outcomes = {f"t-{number}": Outcomes() for number in range(PRODUCER_COUNT)}
        self.cut: int | None = None
        """The broker that is cut off."""
        for number, topic in enumerate((*TOPICS, TRANSACTION_STATE_TOPIC, OFFSETS_TOPIC)):
            self.brokers.create_topic(topic, NODES[number % 3], others=[NODES[(number + 1) % 3]])

    @property
    def partitions(self) -> dict[TopicPartition, PartitionRegistration]:
        return {
            TopicPartition(topic.name, number): partition
            for topic in self.brokers.cluster.image.topics.by_name.values()
            for number, partition in topic.partitions.items()
        }

    async def live(self) -> None:
        """Let producers work until there was trouble enough."""
        await self.all_join()
        clients = [Client(self, name, Random(self.random.random())) for name in self.outcomes]
        tasks = [self.loop.create_task(client.work()) for client in clients]
        tasks += [self.loop.create_task(abort_timed_out(self.brokers, node_id)) for node_id in NODES]
        for _ in range(TROUBLES):
            await asyncio.sleep(self.random.uniform(0, 3))
            await (self.cut_one_off() if self.random.random() < 0.7 else self.move_leaders())
        for task in tasks:
            if task.done():
                task.result()
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # -- the controller -------------------------------------------------------------------------------------------

    async def cut_one_off(self) -> None:
        self.cut = node_id = self.random.choice(NODES)
        self.brokers.cut_off(node_id)
        self.brokers.behind.add(node_id)
        await asyncio.sleep(self.random.uniform(0, 4))
        self.brokers.fence(node_id)
        for partition, registration in self.partitions.items():
            if node_id not in registration.isr:
                continue
            isr = [each for each in registration.isr if each != node_id]
            leader_id = self.random.choice(isr) if registration.leader == node_id else registration.leader
            self._change(partition, leader_id, isr)
        await asyncio.sleep(self.random.uniform(0, 4))
        if self.random.random() < 0.5:
            await self.brokers.restart(node_id, self.random.choice(KEEPS))
        self.brokers.unreachable.clear()
        await asyncio.sleep(self.random.choice((0, 1)))  # it may reach others before it hears of what happened
        self.brokers.behind.clear()
        self.brokers.fence(node_id, is_fenced=False)
        self.cut = None
        await self.all_join()

    async def move_leaders(self) -> None:
        for partition, registration in self.partitions.items():
            if self.random.random() < 0.5:
                self._change(partition, self.random.choice(registration.isr), registration.isr)
                await asyncio.sleep(self.random.choice((0, 0.1)))

    async def all_join(self) -> None:
        """Let replicas join the ISR as they have caught up; return once all have."""
        for _ in range(3000):
            for partition, registration in self.partitions.items():
                away = [each for each in registration.replicas if each not in registration.isr]
                joining = [each for each in away if self._is_caught_up(partition, each)]
                if joining:
                    self._change(partition, registration.leader, [*registration.isr, *joining])
            if all(len(each.isr) == len(each.replicas) for each in self.partitions.values()):
                return
            await asyncio.sleep(0.01)
        raise AssertionError({partition: each.isr for partition, each in self.partitions.items()})

    def _is_caught_up(self, partition: TopicPartition, node_id: int) -> bool:
        """Whether the leader knows that a follower has all of its log."""
        leader = self.leader_of(partition).manager.partitions.find(*partition)
        assert leader is not None
        assert leader.log is not None
        follower = leader.followers.get(node_id)
        return follower is not None and follower.log_end_offset >= leader.log.log_end_offset

    def _change(self, partition: TopicPartition, leader_id: int, isr: Sequence[int]) -> None:
        change = PartitionChangeRecord(partition_id=partition.partition, topic_id=topic_id(partition.topic))
        change.isr = list(isr)
        if leader_id != self.partitions[partition].leader:
            change.leader = leader_id
        self.brokers.commit(change)

    # -- what clients find ----------------------------------------------------------------------------------------

    def leader_of(self, partition: TopicPartition) -> LinkedBroker:
        return self.brokers.nodes[self.partitions[partition].leader]

    def found_by_client(self, topic: str, random: Random) -> LinkedBroker:
        """Return a topic's leader, or now and then a broker that may have been: the one that is cut off."""
        if self.cut is not None and random.random() < 0.3:
            return self.brokers.nodes[self.cut]
        return self.leader_of(TopicPartition(topic, 0))

    # -- the end --------------------------------------------------------------------------------------------------

    async def check(self) -> None:
        """Have every producer go on, and look at what is left of all transactions."""
        for name in self.outcomes:
            client = Client(self, name, self.random)
            await client.init()
            await client.transact(is_commit=True)
        await asyncio.sleep(10)
        for partition in self.partitions:
            self._check_replicas(partition)
        group = self.leader_of(TopicPartition(OFFSETS_TOPIC, 0))
        for name, outcomes in self.outcomes.items():
            found = [committed_numbers(self.leader_of(TopicPartition(topic, 0)), topic, name) for topic in TOPICS]
            assert found[0] == found[1] == sorted(set(found[0])), (name, found)
            assert outcomes.committed <= set(found[0])
            assert not outcomes.aborted & set(found[0])
            assert await group.committed_offset(group_id=name, require_stable=True) == max(found[0])

    def _check_replicas(self, partition: TopicPartition) -> None:
        log = self.leader_of(partition).log(partition.topic)
        assert log.last_stable_offset == log.high_watermark == log.log_end_offset, (
            f"{partition} has an open transaction"
        )
        replicas = [self.brokers.nodes[node_id] for node_id in self.partitions[partition].replicas]
        first, second = ([bytes(each.data) for each in batches_of(broker, partition.topic)] for broker in replicas)
        assert first == second, partition


async def abort_timed_out(brokers: LinkedBrokers, node_id: int) -> None:
    while True:
        await asyncio.sleep(0.5)
        await brokers.nodes[node_id].transactions.abort_timed_out()


class Client:
    """A producer that runs transactions one after the other, whatever happens."""

    def __init__(self, world: World, name: str, random: Random) -> None:
        self.name = name
        self.outcomes = world.outcomes[name]
        self._world = world
        self._random = random
        self._producer_id = self._epoch = -1
        self._sequences: dict[str, int] = {}

    async def work(self) -> None:
        await self.init()
        while True:
            await self.transact(is_commit=self._random.random() < 0.7)

    async def init(self) -> None:
        """Become the producer of the transactional id, whoever was before."""
        request = InitProducerIdRequest(self.name, transaction_timeout_ms=TIMEOUT_MS)
        while True:
            response = await self._decide(lambda shard, now_ms: shard.init_producer_id(request, 5, now_ms))
            if response is not None and response.error_code == ErrorCode.NONE:
                self._take(response)
                return
            await asyncio.sleep(0.05)

    async def transact(self, *, is_commit: bool) -> None:
        number = self.outcomes.next_number
        self.outcomes.next_number += 1
        if not is_commit:
            self.outcomes.aborted.add(number)
        try:
            for topic in TOPICS:
                await self._send(topic, f"{self.name} {number}".encode())
                await asyncio.sleep(self._random.uniform(0, 0.2))
            if self._random.random() < 0.03:
                await asyncio.sleep(TIMEOUT_MS / 1000 + 1)
            await self._commit_offset(number)
            await asyncio.sleep(self._random.uniform(0, 0.2))
        except GaveUp:
            self.outcomes.aborted.add(number)
            await self.init()
            return
        await self._end(number, is_commit=is_commit)

    async def _send(self, topic: str, value: bytes) -> None:
        """Produce 12 with acks=all. Raises GaveUp where it was not acknowledged."""
        broker = self._world.found_by_client(topic, self._random)
        partition = broker.manager.partitions.find(topic, 0)
        if partition is None:
            raise GaveUp
        requester = TransactionalProducer(self.name, self._producer_id, self._epoch, True, True)
        sequence = self._sequences.get(topic, 0)
        verified = await answered(broker.verification.verify_with_retries(requester, {partition: sequence}))
        is_dead = broker is not self._world.brokers.nodes[broker.node_id]
        if is_dead or verified is None or verified[partition].code:
            raise GaveUp
        records = batch(
            value, producer_id=self._producer_id, producer_epoch=self._epoch, base_sequence=sequence,
            is_transactional=True,
        )  # fmt: skip
        guard = verified[partition].guard
        append = PartitionAppend(partition, bytearray(records), verification=guard)
        if not broker.manager.append_records([append], required_acks=ALL_ACKS):
            done = asyncio.get_running_loop().create_future()
            broker.manager.wait_for_replicas(
                [append], timeout_ms=3000, on_done=lambda: done.done() or done.set_result(True)
            )
            if await answered(done) is None:
                raise GaveUp
        if append.error_code:
            raise GaveUp
        self._sequences[topic] = sequence + 1

    async def _commit_offset(self, offset: int) -> None:
        broker = self._world.found_by_client(OFFSETS_TOPIC, self._random)
        if broker.manager.partitions.find(OFFSETS_TOPIC, 0) is None:
            raise GaveUp
        producer = SimProducer(broker, self.name)
        producer.producer_id, producer.epoch = self._producer_id, self._epoch
        if await answered(producer.commit_offset(offset, self.name)) != [ErrorCode.NONE]:
            raise GaveUp

    async def _end(self, number: int, *, is_commit: bool) -> None:
        request = EndTxnRequest(
            self.name, producer_id=self._producer_id, producer_epoch=self._epoch, committed=is_commit
        )
        while True:
            response = await self._decide(lambda shard, now_ms: shard.end_txn(request, 5, now_ms))
            if response is not None and response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS:
                break
            await asyncio.sleep(0.05)
        if response.error_code == ErrorCode.NONE:
            (self.outcomes.committed if is_commit else self.outcomes.aborted).add(number)
            self._take(response)
            return
        self.outcomes.aborted.add(number)  # it has run for too long
        await self.init()

    def _take(self, response: Any) -> None:
        self._producer_id, self._epoch = response.producer_id, response.producer_epoch
        self._sequences.clear()

    async def _decide(self, decide: Any) -> Any:
        broker = self._world.found_by_client(TRANSACTION_STATE_TOPIC, self._random)
        return await answered(broker.transactions.decide(self.name, decide))


async def answered(request: Awaitable[T]) -> T | None:
    """Return the response to a request; None where it is refused or does not come in time."""
    try:
        async with asyncio.timeout(RESPONSE_S):
            return await request
    except (ApiError, TimeoutError):
        return None
