"""A queue whose leader and whose state's coordinator move between brokers, by chance, while members work.

Responses are lost where a broker is cut off, and leaders may not know that they were replaced: no record is lost, in
two hands, or delivered again once it is done. KAFKAPY_SOAK_SEEDS multiplies the seeds.
"""

import asyncio
from random import Random

import pytest

from kafkapy.errors import ApiError
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE
from tests.sim.test_share_partitions_across_brokers import COORDINATOR, LEADER, OTHER, RECORDS, Queue
from tests.simulator.crash_enumeration import SOAK_FACTOR
from tests.simulator.loop import SimLoop, run
from tests.support.linked_brokers import LinkedBrokers
from tests.support.share_history import Act, Event, breaches
from tests.support.share_partition_hosting import Member, acquired_of, parts_of

LIMIT, LOCK_S, TICK_S = 5, 30.0, 0.005
MOVES = 6
TYPES = {Act.ACCEPT: ACK_ACCEPT, Act.RELEASE: ACK_RELEASE, Act.REJECT: ACK_REJECT}


class Moving:
    """Members on whichever broker leads, and what moves."""

    def __init__(self, queue: Queue, seed: int) -> None:
        self.queue = queue
        self.dice = Random(seed)
        self.events: list[Event] = []
        self.names = 0

    def now(self) -> float:
        return 1.0 + self.queue.brokers.loop.time()

    def leader(self) -> int:
        partition = self.queue.brokers.cluster.image.topics.partition("orders", 0)
        assert partition is not None
        return partition.leader

    def add(self, begin_s: float, act: Act, member: str, offset: int = -1, count: int = 0) -> None:
        self.events.append(Event(begin_s, self.now(), member, act, (0, offset), count))

    async def member(self) -> None:
        while True:
            self.names += 1
            node_id, name = self.leader(), f"m{self.names}"
            member = self.queue.member(node_id, name)
            try:
                while self.leader() == node_id:
                    await self.turn(member)
            except ApiError:
                await asyncio.sleep(0.2)
            finally:
                self.queue.shares[node_id].connection_closed(name)
                self.add(self.now(), Act.GONE, name)

    async def turn(self, member: Member) -> None:
        begin_s = self.now()
        acquired = acquired_of(await member.fetch(max_wait_ms=200, max_records=5, batch_size=5))
        name = member.name
        for first, last, count in acquired:
            for offset in range(first, last + 1):
                self.add(begin_s, Act.DELIVERED, name, offset, count)
        await asyncio.sleep(self.dice.choice((0, 0.1, 1)))
        for first, last, _ in acquired:
            acts = [self.dice.choice((Act.ACCEPT, Act.ACCEPT, Act.RELEASE, Act.REJECT)) for _ in range(first, last + 1)]
            begin_s, is_done = self.now(), False
            try:
                (part,) = parts_of(await member.acknowledge({0: [(first, last, [TYPES[act] for act in acts])]}))
                is_done = part.error_code == 0
            finally:
                for offset, act in zip(range(first, last + 1), acts, strict=True):
                    self.add(begin_s, act if is_done else Act.UNKNOWN, name, offset)

    async def move(self) -> None:
        """Move the leader or the coordinator, some time after the last move; now and then nobody tells the old one."""
        brokers, dice = self.queue.brokers, self.dice
        for _ in range(MOVES):
            await asyncio.sleep(dice.uniform(0.5, 4))
            begin_s = self.now()
            if dice.random() < 0.5:
                old, new = self.leader(), LEADER + OTHER - self.leader()
                if dice.random() < 0.3:
                    brokers.behind.add(old)
                brokers.lead("orders", new)
                await asyncio.sleep(1)
                brokers.behind.clear()
                brokers.catch_up()
                await asyncio.sleep(1)
                brokers.join_isr("orders", LEADER, OTHER)
            elif dice.random() < 0.5:
                brokers.cut_off(COORDINATOR)
                await asyncio.sleep(dice.uniform(0.2, 3))
                brokers.unreachable.clear()
            else:
                partition = brokers.cluster.image.topics.partition(SHARE_STATE_TOPIC, 0)
                assert partition is not None
                brokers.lead(SHARE_STATE_TOPIC, COORDINATOR + OTHER - partition.leader)
                await asyncio.sleep(2)
                brokers.join_isr(SHARE_STATE_TOPIC, COORDINATOR, OTHER)
            self.events.append(Event(begin_s, self.now(), "", Act.RESTARTED))

    def is_done(self) -> bool:
        found = [each.partition.records for each in self.queue.shares[self.leader()]]
        return bool(found) and found[0].start_offset >= RECORDS


async def lived(loop: SimLoop, seed: int) -> set[Act]:
    """Live until all records are done; return what the members did. A seed may draw no release, or no reject."""
    queue = Queue(LinkedBrokers(loop, 3))
    await queue.begin(state_replicas=[OTHER])
    moving = Moving(queue, seed)
    tasks = [loop.create_task(moving.member()) for _ in range(3)]
    await moving.move()
    deadline = loop.time() + 600
    while not moving.is_done():
        assert loop.time() < deadline, "records hang"
        for task in tasks:
            if task.done():
                task.result()
        await asyncio.sleep(1)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await queue.close()
    sent = [(0, offset) for offset in range(RECORDS)]
    assert breaches(moving.events, sent, lock_s=LOCK_S - TICK_S, limit=LIMIT) == []
    return {event.act for event in moving.events}


@pytest.mark.parametrize("seed", range(10 * SOAK_FACTOR))
def test_moves_of_leader_and_coordinator_lose_and_repeat_nothing(seed: int) -> None:
    run(lambda loop: lived(loop, seed))


def test_a_life_has_all_that_it_is_for() -> None:
    acts = run(lambda loop: lived(loop, 0))
    assert acts >= {Act.DELIVERED, Act.ACCEPT, Act.RELEASE, Act.REJECT, Act.GONE, Act.RESTARTED}
