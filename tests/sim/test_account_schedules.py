"""Random requests of several clients in a small account, with disconnects at any time: all room is given back."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.runtime.decoded_requests import ELEMENT_BYTES, DecodedRequests, Room
from tests.simulator.broker_world import ADDRESS, KafkaClient, Machine, Topic
from tests.simulator.loop import SimLoop
from tests.simulator.network import LinkRules, SimClient

PARTITIONS = 200
LONGEST_WAIT_MS = 3_000
HELD_S = 0.2
ROUNDS = 40
RULES = LinkRules(0, 5, max_piece_bytes=900)


class Clients:
    """Clients at three addresses, one of which sends most of the requests."""

    def __init__(self, loop: SimLoop, machine: Machine, topic: Topic) -> None:
        self._loop, self._machine, self._topic = loop, machine, topic
        self._open: list[KafkaClient] = []

    def act(self) -> None:
        rng = self._loop.rng
        if self._open and rng.random() < 0.3:
            self._open.pop(rng.randrange(len(self._open))).link.channel.close()
        if not self._open or rng.random() < 0.4:
            host = rng.choice(["10.0.0.1", "10.0.0.1", "10.0.0.1", "10.0.0.2", "10.0.0.3"])
            network = self._machine.network
            self._open.append(
                KafkaClient(SimClient(network.connect(ADDRESS, from_host=host, rules=RULES)), self._machine)
            )
        request, version = self._request()
        sending = self._loop.create_task(rng.choice(self._open).send(request, version))
        sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    def close(self) -> None:
        for client in self._open:
            client.link.channel.close()

    def _request(self) -> tuple[Any, int]:
        rng = self._loop.rng
        count = rng.choice([1, 20, 40, 60, 100, 150, PARTITIONS])
        match rng.randrange(5):
            case 0:
                return self._fetch(count), 17
            case 1:
                return list_offsets(count if rng.random() < 0.7 else 3_000), 10
            case 2:
                return self._produce(count), 13
            case 3:
                protocols = [JoinGroupRequestProtocol(f"p{each}", metadata=bytes(20)) for each in range(count)]
                return JoinGroupRequest(
                    f"g{rng.randrange(3)}",
                    session_timeout_ms=6_000,
                    rebalance_timeout_ms=6_000,
                    member_id="",
                    group_instance_id=None,
                    protocol_type="consumer",
                    protocols=protocols,
                ), 3
            case _:
                commits = [OffsetCommitRequestPartition(each, committed_offset=1) for each in range(count)]
                return OffsetCommitRequest(
                    "g", topics=[OffsetCommitRequestTopic("t", topic_id=self._topic.topic_id, partitions=commits)]
                ), 9

    def _fetch(self, count: int) -> FetchRequest:
        rng = self._loop.rng
        partitions = [
            FetchPartition(each, current_leader_epoch=-1, fetch_offset=1 << 40 if rng.random() < 0.01 else 0)
            for each in range(count)
        ]
        for each in partitions:
            each.partition_max_bytes = 1000
        return FetchRequest(
            max_wait_ms=rng.choice([0, 100, LONGEST_WAIT_MS]),
            min_bytes=1 << 20,
            session_epoch=-1,
            topics=[FetchTopic("", topic_id=self._topic.topic_id, partitions=partitions)],
        )

    def _produce(self, count: int) -> ProduceRequest:
        values = [b"x" * self._loop.rng.randrange(1, 100)]
        client = KafkaClient(self._open[0].link, self._machine)
        data = [PartitionProduceData(each, records=client.batch(values)) for each in range(count)]
        topics = [TopicProduceData("t", topic_id=self._topic.topic_id, partition_data=data)]
        return ProduceRequest(acks=-1, timeout_ms=LONGEST_WAIT_MS, topic_data=topics)


def list_offsets(count: int) -> ListOffsetsRequest:
    partitions = [
        ListOffsetsPartition(partition_index=each, current_leader_epoch=-1, timestamp=-1) for each in range(count)
    ]
    return ListOffsetsRequest(-1, isolation_level=0, topics=[ListOffsetsTopic("t", partitions=partitions)])


async def hold(loop: SimLoop, wait: Callable[[int, int, str], Awaitable[Room]], name: str) -> None:
    """Take room again and again, each time for HELD_S at most, as requests do that wait for replicas."""
    while True:
        room = await wait(loop.rng.randrange(50, 200), 200, name)
        try:
            await asyncio.sleep(loop.rng.random() * HELD_S)
        finally:
            room.release()


def lanes_of(decoded: DecodedRequests) -> list[Any]:
    return [decoded._small, decoded._large, decoded._parked, decoded._prompt]


@pytest.mark.parametrize("seed", range(3))
async def test_all_room_is_given_back_and_a_client_of_its_own_is_served(loop: SimLoop, seed: int) -> None:
    element = ELEMENT_BYTES
    decoded = DecodedRequests(150 * element, 300 * element, 400 * element, 250 * element)
    machine = Machine(loop, seed=seed, offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="1000")
    await machine.boot()
    services: Any = machine.server._services
    services.decoded = decoded
    probe = machine.connect()
    topic = await probe.create_topic("t", PARTITIONS)
    await probe.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    clients = Clients(loop, machine, topic)
    waits = [decoded.wait, decoded.wait_large, decoded.wait_prompt, decoded.wait, decoded.wait_large]
    holding = [loop.create_task(hold(loop, wait, f"holder {number}")) for number, wait in enumerate(waits)]
    longest_s, waited = 0.0, 0
    for _ in range(ROUNDS):
        for _ in range(loop.rng.randrange(1, 12)):
            clients.act()
        await asyncio.sleep(loop.rng.choice([0, 0.001, 0.01, 0.3]))
        waited += any(lane._waiting for lane in lanes_of(decoded))
        began = loop.time()
        assert len((await probe.call(list_offsets(100), 10)).topics[0].partitions) == 100
        longest_s = max(longest_s, loop.time() - began)
    if seed % 2:
        await machine.stop()
    clients.close()
    for each in holding:
        each.cancel()
    await asyncio.sleep(2 * LONGEST_WAIT_MS / 1000 + 20)
    for lane in lanes_of(decoded):
        assert (lane.bytes_in_use, lane._count, lane._waiting) == (0, 0, {})
    assert not decoded._held
    assert machine.server._reactor.request_memory.bytes == 0
    assert waited > ROUNDS // 2, "else nothing was shown"
    assert longest_s < 10 * HELD_S
    await machine.stop()
