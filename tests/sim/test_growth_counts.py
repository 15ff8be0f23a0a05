"""A small Produce request takes the same code whatever grows: partitions, connections; a larger batch less for a byte.

What benchmarks/growth.py measures beyond that is not kafkapy's code: the CPU's caches, and the kernel.
"""

import sys
from collections.abc import Sequence
from statistics import median

import pytest

from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulator.broker_world import KafkaClient, Machine, Topic
from tests.simulator.hot_paths import PRODUCE_VERSION, Counter
from tests.simulator.loop import SimLoop
from tests.support.interpreter import needs_interpreter
from tests.support.wire import request_frame

MORE = 1.05
"""Of 200 connections: what the loop's turns have to do with more of them at once."""
VALUE = b"x" * 940

pytestmark = [
    pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecode is counted on CPython 3.11"),
    needs_interpreter("it counts bytecode"),
]


def produce(client: KafkaClient, topic: Topic, partition: int, record_count: int = 1) -> bytes:
    batch = client.batch([VALUE] * record_count)
    data = TopicProduceData(
        topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(partition, records=batch)]
    )
    request = ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data])
    frame = request_frame(request, PRODUCE_VERSION)
    return len(frame).to_bytes(4, "big") + frame


async def count(clients: Sequence[KafkaClient], frames: Sequence[bytes]) -> float:
    """Return the instructions of one of the requests, one from each client, the second time that they are sent."""
    await _send(clients, frames)
    with Counter() as counter:
        await _send(clients, frames)
    return counter.instructions / len(frames)


async def _send(clients: Sequence[KafkaClient], frames: Sequence[bytes]) -> None:
    for client, frame in zip(clients, frames, strict=True):
        await client.link.send(frame)
    for client in clients:
        await client.link.receive_frame()


async def test_a_request_costs_the_same_with_more_partitions(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    costs = {}
    for partition_count in (10, 1_000):
        topic = await client.create_topic(f"topic-{partition_count}", partition_count)
        frames = [produce(client, topic, number * partition_count // 10) for number in range(10)]
        costs[partition_count] = median([await count([client], [frame]) for frame in frames])
    assert costs[1_000] == costs[10]
    await machine.stop()


async def test_a_request_costs_the_same_with_more_connections(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    topic = await machine.connect().create_topic("topic", 10)
    costs = {}
    for connection_count in (10, 200):
        clients = [machine.connect() for _ in range(connection_count)]
        frames = [produce(client, topic, number % 10) for number, client in enumerate(clients)]
        costs[connection_count] = await count(clients, frames)
    assert costs[200] <= MORE * costs[10], costs
    await machine.stop()


async def test_a_larger_batch_costs_less_for_a_byte(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("topic", 1)
    frames = [produce(client, topic, 0, record_count) for record_count in (1, 16, 64, 256, 1_000)]
    costs = [await count([client], [frame]) / len(frame) for frame in frames]
    assert costs == sorted(costs, reverse=True), costs
    await machine.stop()
