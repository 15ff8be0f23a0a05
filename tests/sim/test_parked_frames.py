"""Requests that wait for others free their frames: however many of them wait, others are served."""

import asyncio
import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from kafkapy.handlers.table import BROKER_APIS
from kafkapy.metrics.requests import RequestCounts
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.protocol.messages.legacy_produce_request import PartitionProduceData as LegacyData
from kafkapy.protocol.messages.legacy_produce_request import TopicProduceData as LegacyTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.produce_response import ProduceResponse
from kafkapy.protocol.primitives import Writer, write_uvarint
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batch import Record
from kafkapy.record.legacy import build_message_set
from kafkapy.runtime.decoded_requests import ELEMENT_BYTES, DecodedRequests
from kafkapy.security.authorizer import AllowAll
from kafkapy.serving.measured_router import MeasuredRouter
from kafkapy.serving.router import Router
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop
from tests.simulator.replicas import ReplicaWorld
from tests.support.frames import check_frame_goes
from tests.support.hosting import batch
from tests.support.wire import CLIENT_ID, request_frame

KIB, MIB = 1 << 10, 1 << 20
CONNECTIONS = 12
FRAME_BYTES = 512 * KIB
WAIT_MS = 3_600_000
HEADER_TAGS_AT = 2 + 2 + 4 + 2 + len(CLIENT_ID)
"""After API key, version, correlation id and client id."""


async def boot(loop: SimLoop, decoded: DecodedRequests | None = None) -> Machine:
    """A broker whose request memory holds fewer frames than there are connections."""
    machine = Machine(
        loop,
        socket_request_max_bytes=str(MIB),
        queued_max_request_bytes=str(4 * MIB),
        offsets_topic_num_partitions="1",
        group_initial_rebalance_delay_ms=str(WAIT_MS),
        connections_max_idle_ms=str(10 * WAIT_MS),
    )
    await machine.boot()
    if decoded is not None:
        services_of(machine).decoded = decoded
    return machine


def services_of(machine: Machine) -> Any:
    return machine.server._services


def fetch_frame(*, frame_bytes: int) -> bytes:
    """A fetch of the end of a partition; most of its frame is a tagged field in its header."""
    partition = FetchPartition(0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
    request = FetchRequest(
        max_wait_ms=WAIT_MS,
        min_bytes=1,
        session_epoch=-1,
        topics=[FetchTopic("t", topic_id=b"", partitions=[partition])],
    )
    frame = request_frame(request, 12)
    rest = frame_bytes - len(frame)
    assert frame[HEADER_TAGS_AT] == 0, "no tagged fields"
    return frame[:HEADER_TAGS_AT] + b"\1\x64" + uvarint(rest) + bytes(rest) + frame[HEADER_TAGS_AT + 1 :]


def uvarint(value: int) -> bytes:
    out = Writer()
    write_uvarint(out, value)
    return bytes(out)


def join_frame(number: int) -> bytes:
    request = JoinGroupRequest(
        group_id=f"g{number}",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=WAIT_MS,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol("p", metadata=bytes(FRAME_BYTES))],
    )
    return request_frame(request, 3)


FRAMES: dict[str, Callable[[int], bytes]] = {
    "a tagged field": lambda _: fetch_frame(frame_bytes=FRAME_BYTES),
    "small ones": lambda _: fetch_frame(frame_bytes=7 * KIB),
    "metadata of members": join_frame,
}


@pytest.mark.parametrize("kind", FRAMES)
async def test_requests_that_wait_leave_the_request_memory_to_others(loop: SimLoop, kind: str) -> None:
    """Before, what they had sent filled it, and no request of others was read until one of them was answered."""

    machine = await boot(loop)
    client = machine.connect()
    topic = await client.create_topic("t", 1)
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    async with asyncio.TaskGroup() as sending:
        for number in range(CONNECTIONS):
            sending.create_task(send_all(machine, [FRAMES[kind](number)] * (60 if kind == "small ones" else 1)))
        await asyncio.sleep(1)
        began = loop.time()
        assert (await client.list_offset(topic, -1)).error_code == 0
        assert (await client.produce(topic, bytes(100 * KIB))).error_code == 0
        assert loop.time() - began < 1
    await machine.stop()


async def send_all(machine: Machine, frames: list[bytes]) -> KafkaClient:
    client = machine.connect()
    for frame in frames:
        await client.link.send_frame(frame)
    return client


async def test_the_memory_of_a_frame_goes_when_its_request_waits(loop: SimLoop) -> None:
    """What it may have copied counts in the account of decoded requests."""
    frame = fetch_frame(frame_bytes=300 * KIB)

    decoded = DecodedRequests()
    machine = await boot(loop, decoded)
    await machine.connect().create_topic("t", 1)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        waiting = [await send_all(machine, [frame]) for _ in range(CONNECTIONS)]
        await asyncio.sleep(1)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert taken - before < 2 * len(frame)
    assert decoded.bytes_in_use == CONNECTIONS * (2 * ELEMENT_BYTES + len(frame))
    assert not any(each.link.received for each in waiting)
    await machine.stop()


async def test_requests_that_would_keep_too_much_while_they_wait_are_answered_or_closed(loop: SimLoop) -> None:
    machine = await boot(loop, DecodedRequests(parked_bytes=FRAME_BYTES))
    client = machine.connect()
    await client.create_topic("t", 1)
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    began = loop.time()
    fetching = await send_all(machine, [fetch_frame(frame_bytes=FRAME_BYTES)])
    joining = await send_all(machine, [join_frame(0)])
    assert await fetching.link.receive_frame()
    with pytest.raises(EOFError):
        await joining.link.receive_frame()
    assert loop.time() - began < 1
    await machine.stop()


def produce_frame(*names: str) -> bytes:
    """A request with tagged fields that no broker knows, in all its structs."""
    tags = {100: bytes(KIB)}
    topics = [
        TopicProduceData(
            name,
            topic_id=b"",
            partition_data=[PartitionProduceData(0, records=bytes(batch(b"a")), unknown_tagged_fields=tags)],
            unknown_tagged_fields=tags,
        )
        for name in names
    ]
    return request_frame(
        ProduceRequest(None, acks=-1, timeout_ms=WAIT_MS, topic_data=topics, unknown_tagged_fields=tags), 9
    )


def legacy_produce_frame() -> bytes:
    records = build_message_set([Record(0, 1, None, b"a")], magic=1)
    topic = LegacyTopic("orders", partition_data=[LegacyData(0, records=bytes(records))])
    return request_frame(LegacyProduceRequest(acks=-1, timeout_ms=WAIT_MS, topic_data=[topic]), 2)


PRODUCES = {
    "now": produce_frame("orders"),
    "refused in part": produce_frame("orders", "no"),
    "old": legacy_produce_frame(),
}


def route(world: ReplicaWorld, connection: ConnectionInfo, frame: memoryview) -> Any:
    """Have node 1, whose follower does not fetch, serve a request; return the coroutine."""
    services = world.nodes[1].services(AllowAll())
    services.apis, services.decoded = BROKER_APIS, DecodedRequests()
    router = Router(services)
    return MeasuredRouter(router.route, router.coalesce, RequestCounts()).route(connection, frame)


@pytest.mark.parametrize("kind", PRODUCES)
async def test_a_produce_that_waits_for_replicas_keeps_nothing_of_its_frame(loop: SimLoop, kind: str) -> None:
    world = ReplicaWorld(loop, 2, kafkapy_legacy_clients_enable="true")
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    check_frame_goes(partial(route, world), PRODUCES[kind])
    await world.stop()


async def test_a_produce_with_a_name_that_no_topic_can_have_does_not_wait(loop: SimLoop) -> None:
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2))
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
    frame = memoryview(bytearray(produce_frame("orders", "n" * 32_000)))
    response = await route(world, connection, frame)
    _, position = read_response_header(bytes(response), ProduceRequest.API_KEY, 9)
    topics = ProduceResponse.decode(bytes(response)[position:], 9).responses
    assert [topic.partition_responses[0].error_code for topic in topics] == [7, 3]
    await world.stop()
