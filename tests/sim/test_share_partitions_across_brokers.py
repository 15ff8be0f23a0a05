"""A partition that is read as a queue moves to another broker; its state is coordinated by a third one."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.runtime.share.share_partitions import SharePartitions
from kafkapy.share.persister import InitialState
from kafkapy.share.record_state import ACK_ACCEPT, ACK_RELEASE
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import batch, topic_id
from tests.support.linked_brokers import LinkedBrokers
from tests.support.share_partition_hosting import Member, acquired_of, parts_of, share_partitions_of

COORDINATOR, LEADER, OTHER = 1, 2, 3
RECORDS = 30


class Queue:
    """Three brokers, the topic `orders` with records on two of them, and members of one share group."""

    def __init__(self, brokers: LinkedBrokers) -> None:
        self.brokers = brokers
        self.shares = {node_id: self._shares_of(node_id) for node_id in (LEADER, OTHER)}

    def _shares_of(self, node_id: int) -> SharePartitions:
        node = self.brokers.nodes[node_id]
        return share_partitions_of(node, lambda: node.share.persister, {})

    async def begin(self, state_replicas: Sequence[int] = ()) -> None:
        """state_replicas: brokers that have the states, too, in sync."""
        brokers = self.brokers
        brokers.commit(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))
        brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR, others=state_replicas)
        if state_replicas:
            await asyncio.sleep(1)
            brokers.join_isr(SHARE_STATE_TOPIC, COORDINATOR, *state_replicas)
        brokers.create_topic("orders", LEADER, others=[OTHER])
        await asyncio.sleep(1)
        leader = brokers.nodes[LEADER]
        leader.append(*(batch(*[b"x"] * 10) for _ in range(RECORDS // 10)))
        await asyncio.sleep(1)
        brokers.join_isr("orders", LEADER, OTHER)
        await asyncio.sleep(1)
        state = InitialState(topic_id("orders"), 0, 0, 0)
        (result,) = await leader.share.persister.initialize("g", [state])
        assert result.error_code == 0

    def member(self, node_id: int, name: str) -> Member:
        services = self.brokers.nodes[node_id].services()
        services.share_partitions = lambda: self.shares[node_id]
        return Member(services, topic_id("orders"), name, connection=name)

    async def close(self) -> None:
        for shares in self.shares.values():
            await shares.close()
        await self.brokers.close()


def queued(test: Callable[[Queue], Awaitable[None]]) -> Callable[[], None]:
    def run_test() -> None:
        async def main(loop: SimLoop) -> None:
            queue = Queue(LinkedBrokers(loop, 3))
            await queue.begin()
            await test(queue)
            await queue.close()

        run(main)

    return run_test


def offsets_of(acquired: list[tuple[int, int, int]]) -> dict[int, int]:
    """Return the delivery count of each offset."""
    return {offset: count for first, last, count in acquired for offset in range(first, last + 1)}


LEFT = {offset: 2 if offset < 15 else 1 for offset in range(10, RECORDS)}
"""What the next leader delivers: 0 to 9 were accepted, 10 to 14 released; who has acquired the others is forgotten."""


async def consume_some(queue: Queue) -> Member:
    member = queue.member(LEADER, "m1")
    assert offsets_of(await member.acquire()) == dict.fromkeys(range(RECORDS), 1)
    (part,) = parts_of(await member.acknowledge({0: [(0, 9, [ACK_ACCEPT]), (10, 14, [ACK_RELEASE])]}))
    assert part.error_code == 0
    return member


@queued
async def test_the_next_leader_goes_on_where_the_state_is(queue: Queue) -> None:
    member = await consume_some(queue)
    other = queue.member(LEADER, "m2")
    assert offsets_of(await other.acquire()) == dict.fromkeys(range(10, 15), 2)
    waiting = queue.brokers.loop.create_task(other.fetch(max_wait_ms=10_000))
    await asyncio.sleep(1)
    queue.brokers.lead("orders", OTHER)
    (part,) = parts_of(await waiting)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (OTHER, 1)
    (part,) = parts_of(await member.acknowledge({0: [(15, 19, [ACK_ACCEPT])]}))
    assert part.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert list(queue.shares[LEADER]) == []
    assert offsets_of(await queue.member(OTHER, "m1").acquire()) == LEFT


@queued
async def test_a_leader_that_does_not_know_that_it_was_replaced_writes_nothing(queue: Queue) -> None:
    member = await consume_some(queue)
    queue.brokers.behind.add(LEADER)
    queue.brokers.lead("orders", OTHER)
    next_member = queue.member(OTHER, "m2")
    assert offsets_of(await next_member.acquire()) == LEFT
    (part,) = parts_of(await member.acknowledge({0: [(15, 19, [ACK_ACCEPT])]}))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    (part,) = parts_of(await next_member.acknowledge({0: [(10, RECORDS - 1, [ACK_ACCEPT])]}))
    assert part.error_code == 0
    assert acquired_of(await next_member.fetch()) == []


@queued
async def test_acknowledgements_wait_for_a_coordinator_that_is_away(queue: Queue) -> None:
    member = await consume_some(queue)
    queue.brokers.cut_off(COORDINATOR)
    response = queue.brokers.loop.create_task(member.acknowledge({0: [(15, 19, [ACK_ACCEPT])]}))
    await asyncio.sleep(3)
    assert not response.done()
    queue.brokers.unreachable.clear()
    (part,) = parts_of(await response)
    assert part.error_code == 0
