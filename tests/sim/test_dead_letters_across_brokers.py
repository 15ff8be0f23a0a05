"""Dead letters whose topic another broker leads: by Produce over a peer connection, while leaders move and go."""

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from kafkapy.metadata.image import RESOURCE_GROUP, RESOURCE_TOPIC, SHARE_VERSION
from kafkapy.metadata.topic_names import SHARE_STATE_TOPIC
from kafkapy.protocol.api import api_key_of
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.produce_request import ProduceRequest
from kafkapy.runtime.share.dead_letter_outbox import CREATE_TOPICS
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.persister import InitialState, StateRead
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, RecordState
from tests.simulator.loop import SimLoop, run
from tests.support.dead_letters import (
    DEAD,
    ENABLED,
    NAME,
    dead_letters_of,
    letters_in,
    offset_of,
)
from tests.support.hosting import batch, config_records, topic_id
from tests.support.linked_brokers import LinkedBrokers
from tests.support.metadata_services import Deny
from tests.support.share_partition_hosting import Member, share_partitions_of

COORDINATOR, LEADER, DEAD_LEADER, OTHER = 1, 2, 3, 4
RECORDS = 20
COPY = "errors.deadletterqueue.copy.record.enable"


class Queue:
    """Four brokers: one leads `orders`, another the dead-letter topic; group `g` copies what it gives up."""

    def __init__(self, brokers: LinkedBrokers, *, has_authorizer: bool = False) -> None:
        self.brokers = brokers
        node = brokers.nodes[LEADER]
        services = node.services()
        self.letters = dead_letters_of(node, services, node._new_peer, has_authorizer=has_authorizer)
        self.shares = share_partitions_of(node, lambda: node.share.persister, {NAME: DEAD}, dead_letters=self.letters)

    async def begin(self) -> None:
        brokers = self.brokers
        brokers.commit(
            FeatureLevelRecord(name=SHARE_VERSION, feature_level=2),
            *config_records(RESOURCE_GROUP, "g", {NAME: DEAD, COPY: "true"}),
        )
        brokers.create_topic(SHARE_STATE_TOPIC, COORDINATOR)
        brokers.create_topic("orders", LEADER)
        brokers.create_topic(DEAD, DEAD_LEADER, others=[OTHER])
        brokers.commit(*config_records(RESOURCE_TOPIC, DEAD, ENABLED))
        await asyncio.sleep(1)
        leader = brokers.nodes[LEADER]
        leader.append(batch(*(b"value %d" % number for number in range(RECORDS))))
        (result,) = await leader.share.persister.initialize("g", [InitialState(topic_id("orders"), 0, 0, 0)])
        assert result.error_code == 0

    async def reject(self, *rejected: int, first_offset: int = 0, last_offset: int = RECORDS - 1) -> None:
        """Let a member acquire everything, which is from first_offset on, reject some and accept the others."""
        services = self.brokers.nodes[LEADER].services()
        services.share_partitions = lambda: self.shares
        member = Member(services, topic_id("orders"), "m", connection=f"c{first_offset}")
        assert await member.acquire() == [(first_offset, last_offset, 1)]
        offsets = range(first_offset, last_offset + 1)
        types = [ACK_REJECT if offset in rejected else ACK_ACCEPT for offset in offsets]
        response = await member.acknowledge({0: [(first_offset, last_offset, types)]})
        assert response.responses[0].partitions[0].error_code == 0

    def written(self, node_id: int = DEAD_LEADER) -> list[tuple[int, bytes | None]]:
        return sorted((offset_of(each), each.value) for each in letters_in(self.brokers.nodes[node_id]))

    def produces(self, node_id: int = DEAD_LEADER) -> int:
        return sum(isinstance(each, ProduceRequest) for each in self.brokers.nodes[node_id].requests)

    async def states(self) -> list[tuple[int, int, int]]:
        persister = self.brokers.nodes[LEADER].share.persister
        (read,) = await persister.read("g", [StateRead(topic_id("orders"), 0, 0)])
        return [(each.first_offset, each.last_offset, each.delivery_state) for each in read.state_batches]

    async def is_archived(self) -> bool:
        """Whether nothing waits for its copy any more, by what is persisted."""
        return RecordState.ARCHIVING.value not in [state for _, _, state in await self.states()]

    async def close(self) -> None:
        await self.shares.close()
        await self.brokers.close()


def queued(test: Callable[[Queue], Awaitable[None]], *, has_authorizer: bool = False) -> Callable[[], None]:
    def run_test() -> None:
        async def main(loop: SimLoop) -> None:
            queue = Queue(LinkedBrokers(loop, 4), has_authorizer=has_authorizer)
            await queue.begin()
            await test(queue)
            await queue.close()

        run(main)

    return run_test


guarded = partial(queued, has_authorizer=True)


LETTERS = [(3, b"value 3"), (4, b"value 4"), (9, b"value 9")]


@queued
async def test_letters_are_produced_to_the_leader_in_one_request(queue: Queue) -> None:
    await queue.reject(3, 4, 9)
    await asyncio.sleep(2)
    assert queue.written() == LETTERS
    assert queue.produces() == 1
    (request,) = [each for each in queue.brokers.nodes[DEAD_LEADER].requests if isinstance(each, ProduceRequest)]
    assert (request.acks, request.topic_data[0].topic_id) == (-1, topic_id(DEAD))
    assert await queue.is_archived()


@queued
async def test_a_leader_that_does_not_answer_is_waited_for(queue: Queue) -> None:
    queue.brokers.cut_off(DEAD_LEADER)
    await queue.reject(3, 4, 9)
    await asyncio.sleep(5)
    assert queue.written() == []
    assert [each for each in await queue.states() if each[2] == RecordState.ARCHIVING.value] == [(3, 4, 3), (9, 9, 3)]
    queue.brokers.unreachable.clear()
    await asyncio.sleep(10)
    assert queue.written() == LETTERS
    assert await queue.is_archived()


@queued
async def test_the_next_leader_gets_what_the_last_one_did_not_answer(queue: Queue) -> None:
    queue.brokers.cut_off(DEAD_LEADER)
    await queue.reject(3, 4, 9)
    await asyncio.sleep(1)
    queue.brokers.lead(DEAD, OTHER)
    await asyncio.sleep(10)
    assert queue.written(OTHER) == LETTERS
    assert await queue.is_archived()


@queued
async def test_a_broker_that_is_the_leader_no_more_refuses_and_the_new_one_is_asked(queue: Queue) -> None:
    """The broker that sends does not know yet."""
    queue.brokers.behind.add(LEADER)
    queue.brokers.lead(DEAD, OTHER)
    await queue.reject(3, 4, 9)
    await asyncio.sleep(1)
    assert (queue.written(OTHER), queue.produces()) == ([], 1)
    queue.brokers.behind.clear()
    queue.brokers.catch_up()
    await asyncio.sleep(5)
    assert queue.written(OTHER) == LETTERS


@queued
async def test_a_leader_that_does_not_know_the_topic_yet_is_asked_again(queue: Queue) -> None:
    queue.brokers.behind.add(OTHER)
    queue.brokers.create_topic("dlq.new", OTHER)
    records = config_records(RESOURCE_TOPIC, "dlq.new", ENABLED)
    queue.brokers.commit(*config_records(RESOURCE_GROUP, "g", {NAME: "dlq.new"}), *records)
    await queue.reject(3)
    await asyncio.sleep(1)
    assert queue.produces(OTHER) == 1
    queue.brokers.behind.clear()
    queue.brokers.catch_up()
    await asyncio.sleep(5)
    found = letters_in(queue.brokers.nodes[OTHER], topic="dlq.new")
    assert [(offset_of(each), each.value) for each in found] == [(3, b"value 3")]


@queued
async def test_a_broker_that_may_not_write_gives_up(queue: Queue) -> None:
    queue.brokers.nodes[DEAD_LEADER]._services.authorizer = Deny((AclOperation.WRITE, DEAD))
    await queue.reject(3, 4, 9)
    await asyncio.sleep(2)
    assert (queue.written(), queue.produces()) == ([], 1)
    assert await queue.is_archived(), "archived without"


@guarded
async def test_with_an_authorizer_a_broker_is_asked_whether_it_may_write_what_it_leads(queue: Queue) -> None:
    queue.brokers.lead(DEAD, LEADER)
    await queue.reject(3)
    await asyncio.sleep(2)
    assert (queue.written(LEADER), queue.produces(LEADER)) == (LETTERS[:1], 1)
    queue.brokers.nodes[LEADER]._services.authorizer = Deny((AclOperation.WRITE, DEAD))
    queue.brokers.nodes[LEADER].append(batch(b"one more"))
    await queue.reject(RECORDS, first_offset=RECORDS, last_offset=RECORDS)
    await asyncio.sleep(2)
    assert (queue.written(LEADER), queue.produces(LEADER)) == (LETTERS[:1], 2)
    assert await queue.is_archived(), "archived without"


@guarded
async def test_letters_do_not_wait_for_a_topic_that_is_being_created(queue: Queue) -> None:
    """Without a controller its response takes long; those of one connection come in the order of the requests."""
    queue.brokers.lead(DEAD, LEADER)
    node = queue.brokers.nodes[LEADER]
    route = node._router.route

    async def route_without_controller(connection: Any, frame: memoryview) -> Any:
        if api_key_of(frame) == CREATE_TOPICS:
            await asyncio.get_running_loop().create_future()
        return await route(connection, frame)

    node._router = SimpleNamespace(route=route_without_controller)
    creating = asyncio.ensure_future(queue.letters._parts.create_topic("dlq.new"))
    await asyncio.sleep(1)
    await queue.reject(3)
    await asyncio.sleep(2)
    assert queue.written(LEADER) == LETTERS[:1]
    assert await queue.is_archived()
    assert not creating.done()
    creating.cancel()


@queued
async def test_a_leader_that_never_comes_back_is_given_up_in_the_end(queue: Queue) -> None:
    queue.brokers.cut_off(DEAD_LEADER)
    await queue.reject(3, 4, 9)
    await asyncio.sleep(300)
    assert await queue.is_archived()
    queue.brokers.unreachable.clear()
    await asyncio.sleep(60)
    assert queue.written() == []
