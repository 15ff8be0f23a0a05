"""Clients older than Kafka 0.11: what is converted for them is bounded, whether they take it or not."""

import asyncio
import struct

from kafkapy.protocol.messages.legacy_fetch_request import FetchPartition, FetchTopic, LegacyFetchRequest
from kafkapy.protocol.messages.legacy_fetch_response import LegacyFetchResponse
from kafkapy.protocol.messages.legacy_produce_request import (
    LegacyProduceRequest,
    PartitionProduceData,
    TopicProduceData,
)
from kafkapy.protocol.messages.legacy_produce_response import LegacyProduceResponse
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.record.compression import GZIP
from kafkapy.record.legacy import build_message_set
from kafkapy.runtime.pool import RESPONSE_BYTES, HeavyWork
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop

VERSION = 2
VALUE = bytes(900_000)
MANY = 20


def fetch_of(topic: str, offset: int, max_bytes: int = 50 << 20) -> LegacyFetchRequest:
    requested = [FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=max_bytes)]
    return LegacyFetchRequest(max_wait_ms=100, min_bytes=1, topics=[FetchTopic(topic, partitions=requested)])


async def old_fetch(client: KafkaClient, topic: str, offset: int) -> list[int]:
    """Return the offsets that a fetch from `offset` brings."""
    await client.send(fetch_of(topic, offset), VERSION)
    frame = await client.link.receive_frame()
    (partition,) = LegacyFetchResponse.decode(memoryview(frame)[4:], VERSION).responses[0].partitions
    assert partition.error_code == 0
    assert isinstance(partition.records, memoryview)
    return [record.offset for batch in batches(partition.records) for record in batch.records()]


def heavy_work(machine: Machine) -> HeavyWork:
    router = machine.server._reactor.processors[0].serving.route.__self__  # type: ignore[attr-defined]  # a bound method
    return router._services.heavy_work


async def with_records(loop: SimLoop, count: int) -> Machine:
    machine = Machine(loop, kafkapy_legacy_clients_enable="true")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders")
    for _ in range(count):
        assert (await client.produce(topic, VALUE)).error_code == 0
    return machine


async def test_old_consumers_that_take_nothing_hold_a_bounded_share_and_keep_nobody_waiting(loop: SimLoop) -> None:
    machine = await with_records(loop, 10)
    heavy = heavy_work(machine)
    stuck = [machine.connect() for _ in range(MANY)]
    for client in stuck:
        client.link.stop_reading()
        await client.send(fetch_of("orders", 0), VERSION)
    await asyncio.sleep(5)
    assert RESPONSE_BYTES / 2 < heavy.response_bytes < RESPONSE_BYTES + 2 * len(VALUE)
    other, start = machine.connect(), loop.time()
    assert await old_fetch(other, "orders", 0) == []
    assert loop.time() - start < 0.3
    assert heavy.bytes_in_use == 0
    for client in stuck:
        client.link.channel.close()
    await asyncio.sleep(1)
    assert heavy.response_bytes == 0
    assert len(await old_fetch(other, "orders", 0)) == 9
    await asyncio.sleep(1)
    assert (heavy.response_bytes, heavy.bytes_in_use) == (0, 0)
    await machine.stop()


async def test_an_old_consumer_reads_all_of_what_is_more_than_a_response(loop: SimLoop) -> None:
    machine = await with_records(loop, 14)
    client = machine.connect()
    found: list[int] = []
    while len(found) < 14:
        part = await old_fetch(client, "orders", len(found))
        assert 0 < len(part) < 12
        found += part
    assert found == list(range(14))
    await machine.stop()


async def test_a_small_compressed_set_that_inflates_far_is_not_converted_on_the_loop(loop: SimLoop) -> None:
    machine = await with_records(loop, 0)
    bomb = build_message_set([Record(0, 1, None, bytes(900_000))], magic=1, compression=GZIP)
    assert len(bomb) < 4096
    before = machine.io_pool.finished_count
    client = machine.connect()
    request = LegacyProduceRequest(
        -1,
        timeout_ms=1000,
        topic_data=[TopicProduceData("orders", partition_data=[PartitionProduceData(0, records=bomb)])],
    )
    await client.send(request, VERSION)
    frame = await client.link.receive_frame()
    assert struct.unpack_from(">i", frame) == (1,)
    response = LegacyProduceResponse.decode(frame[4:], VERSION).responses[0].partition_responses[0]
    assert (response.error_code, response.base_offset) == (0, 0)
    assert machine.io_pool.finished_count > before
    await machine.stop()
