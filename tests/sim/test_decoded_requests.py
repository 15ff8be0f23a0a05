"""What decoded requests take is bounded over all connections, and that bound makes no group or replica wait."""

import asyncio
import tracemalloc
from typing import Any

import pytest

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.table import MAX_DESCRIBED_BYTES
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.add_partitions_to_txn_request import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.decoded_requests import ELEMENT_BYTES, FEW_ELEMENTS, DecodedRequests, Room
from kafkapy.serving.large_requests import LARGE_FRAME_BYTES, LargeRequests, Undecoded
from tests.simulator.broker_world import KafkaClient, Machine
from tests.simulator.loop import SimLoop
from tests.support.wire import request_frame

MIB = 1 << 20
MAX_BYTES = 3 * MIB
"""Of two requests and their responses, with the frames of all."""


async def boot(loop: SimLoop, decoded: DecodedRequests) -> Machine:
    machine = Machine(loop, offsets_topic_num_partitions="1", group_initial_rebalance_delay_ms="0")
    await machine.boot()
    services_of(machine).decoded = decoded
    return machine


def services_of(machine: Machine) -> Any:
    return machine.server._services


def list_offsets(count: int, name: str = "t") -> ListOffsetsRequest:
    return ListOffsetsRequest(
        -1, isolation_level=0, topics=[ListOffsetsTopic(f"{name}{each}", partitions=[]) for each in range(count)]
    )


def fetch_of(topic_id: bytes, partitions: int, *, max_wait_ms: int) -> FetchRequest:
    requested = [
        FetchPartition(each, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
        for each in range(partitions)
    ]
    topics = [FetchTopic("", topic_id=topic_id, partitions=requested)]
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, session_epoch=-1, topics=topics)


@pytest.mark.parametrize(
    ("topics", "connections", "is_large"),
    [(4_000, 8, True), (1_300, 16, False)],
    ids=["large frames", "small frames"],
)
async def test_decoded_requests_of_many_connections_take_bounded_memory_together(
    loop: SimLoop, topics: int, connections: int, is_large: bool
) -> None:
    """Without the account all of them are decoded at once: 5 to 10 MiB."""
    request = list_offsets(topics, "")
    is_in_large_frame = len(request_frame(request, 10)) >= LARGE_FRAME_BYTES
    assert is_in_large_frame == is_large
    account_bytes = 17 * MIB if is_large else 2 * MIB

    decoded = DecodedRequests(small_bytes=account_bytes, large_bytes=account_bytes, parked_bytes=0)
    machine = await boot(loop, decoded)
    clients = [machine.connect() for _ in range(connections)]
    assert len((await clients[0].call(request, 10)).topics) == topics
    tracemalloc.start()
    try:
        for client in clients:
            await client.link.send_frame(request_frame(request, 10))
        frames = [await client.link.receive_frame() for client in clients]
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len({len(frame) for frame in frames}) == 1
    assert peak_bytes < MAX_BYTES
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def fill(decoded: DecodedRequests) -> list[Any]:
    """Take all room in which requests wait; return it."""
    large = await decoded.wait_large(1 << 30, 1 << 30)
    small = await decoded.wait(1 << 30, 0)
    return [large, small]


async def test_what_a_request_waits_for_does_not_wait_for_room(loop: SimLoop) -> None:
    """A group's rebalance, a fetch that waits, and the produce that it waits for, of more than FEW_ELEMENTS each."""

    decoded = DecodedRequests()
    machine = await boot(loop, decoded)
    client, consumer = machine.connect(), machine.connect()
    topic = await client.create_topic("t", 60)
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    await client.call(list_offsets(1), 10)
    rooms = await fill(decoded)
    fetch = fetch_of(topic.topic_id, 60, max_wait_ms=60_000)
    await consumer.send(fetch, 17)
    await asyncio.sleep(1)
    taken = 61 * ELEMENT_BYTES + len(request_frame(fetch, 17))
    assert decoded.bytes_in_use == sum(room.byte_count for room in rooms) + taken
    batches = [PartitionProduceData(each, records=client.batch([b"x"])) for each in range(40)]
    produce = ProduceRequest(
        acks=-1, timeout_ms=1000, topic_data=[TopicProduceData("t", topic_id=topic.topic_id, partition_data=batches)]
    )
    produced = (await client.call(produce, 13)).responses[0].partition_responses
    assert {each.error_code for each in produced} == {0}
    fetched = (await consumer.receive()).responses[0].partitions
    assert sum(bool(each.records) for each in fetched) > 0
    await rebalance(machine)
    for room in rooms:
        room.release()
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def test_questions_of_other_brokers_do_not_wait_for_room(loop: SimLoop) -> None:
    """Offset commits that hold it on two brokers would wait for each other's responses until their time is over."""

    decoded = DecodedRequests()
    machine = await boot(loop, decoded)
    client = machine.connect()
    rooms = await fill(decoded)
    for partitions in (40, 4_000):
        topics = [AddPartitionsToTxnTopic("t", partitions=list(range(partitions)))]
        transaction = AddPartitionsToTxnTransaction(
            "t", producer_id=1, producer_epoch=0, verify_only=True, topics=topics
        )
        response = await client.call(AddPartitionsToTxnRequest(transactions=[transaction]), 5)
        (topic,) = response.results_by_transaction[0].topic_results
        assert len(topic.results_by_partition) == partitions
    for room in rooms:
        room.release()
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def rebalance(machine: Machine) -> None:
    """Have two members join with many protocols and a large assignment."""
    leader, follower = machine.connect(), machine.connect()
    ids = [await member_id(client) for client in (leader, follower)]
    await leader.send(join(ids[0], 100), 9)
    await follower.send(join(ids[1], 100), 9)
    joined = await leader.receive()
    if not joined.members or len(joined.members) < 2:  # the other one came too late for this generation
        await leader.send(join(ids[0], 100), 9)
        joined = await leader.receive()
    other = await follower.receive()
    assert joined.generation_id == other.generation_id
    by_id = {ids[0]: leader, ids[1]: follower}
    first = by_id.pop(joined.leader)
    ((other_id, second),) = by_id.items()
    await second.send(sync(joined, other_id, 0), 5)
    await asyncio.sleep(1)
    await first.send(sync(joined, joined.leader, 500), 5)
    assert [(await client.receive()).error_code for client in (first, second)] == [0, 0]


async def member_id(client: KafkaClient) -> str:
    response = await client.call(join("", 1), 9)
    assert response.member_id
    name: str = response.member_id
    return name


def join(member: str, protocols: int) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id="g",
        session_timeout_ms=30_000,
        rebalance_timeout_ms=60_000,
        member_id=member,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(f"p{each}", metadata=b"") for each in range(protocols)],
    )


def sync(joined: Any, member: str, assignments: int) -> SyncGroupRequest:
    return SyncGroupRequest(
        group_id="g",
        generation_id=joined.generation_id,
        member_id=member,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol_name,
        assignments=[SyncGroupRequestAssignment(f"m{each}", assignment=b"a" * 20) for each in range(assignments)],
    )


@pytest.mark.parametrize("count", [FEW_ELEMENTS + 1, 4_000])
async def test_a_request_waits_for_room_and_those_behind_it_wait_too(loop: SimLoop, count: int) -> None:
    decoded = DecodedRequests()
    machine = await boot(loop, decoded)
    client, other = machine.connect(), machine.connect()
    await other.call(list_offsets(1), 10)
    rooms = await fill(decoded)
    await client.send(list_offsets(count), 10)
    await client.send(list_offsets(2), 10)
    assert len((await other.call(list_offsets(FEW_ELEMENTS), 10)).topics) == FEW_ELEMENTS
    await asyncio.sleep(10)
    assert not client.link.received
    for room in rooms:
        room.release()
    assert [len((await client.receive()).topics) for _ in range(2)] == [count, 2]
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def test_fetches_that_would_take_too_much_while_they_wait_are_answered_at_once(loop: SimLoop) -> None:
    decoded = DecodedRequests(parked_bytes=2 * 250 * ELEMENT_BYTES)
    machine = await boot(loop, decoded)
    clients = [machine.connect() for _ in range(3)]
    topic = await clients[0].create_topic("t", 200)
    began = loop.time()
    for client, partitions in zip(clients, (200, 100, 10), strict=True):
        await client.send(fetch_of(topic.topic_id, partitions, max_wait_ms=60_000), 17)
    assert len((await clients[1].receive()).responses[0].partitions) == 100
    assert loop.time() - began < 1
    assert len((await clients[2].receive()).responses[0].partitions) == 10
    assert len((await clients[0].receive()).responses[0].partitions) == 200
    assert loop.time() - began >= 60
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def test_fetches_without_room_to_wait_take_bounded_memory_together(loop: SimLoop) -> None:
    """They are decoded one after another, as PROMPT_BYTES have room, though none waits for records: 4 MiB without."""
    first = FetchPartition(0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
    topics = [
        FetchTopic("t", topic_id=b"", partitions=[first]),
        *(FetchTopic("", topic_id=b"", partitions=[]) for _ in range(4_000)),
    ]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, session_epoch=-1, topics=topics)
    assert len(request_frame(request, 12)) >= LARGE_FRAME_BYTES

    decoded = DecodedRequests(parked_bytes=0, prompt_bytes=1)
    machine = await boot(loop, decoded)
    clients = [machine.connect() for _ in range(8)]
    await clients[0].create_topic("t", 1)
    began = loop.time()
    await clients[0].call(request, 12)
    tracemalloc.start()
    try:
        for client in clients:
            await client.link.send_frame(request_frame(request, 12))
        for client in clients:
            await client.link.receive_frame()
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert loop.time() - began < 1
    assert peak_bytes < MAX_BYTES
    assert decoded.bytes_in_use == 0
    await machine.stop()


async def test_fetches_that_wait_leave_room_for_the_writes_and_joins_that_wait(loop: SimLoop) -> None:
    """A fetch of nothing but one partition that is read, and of topics without partitions, may wait for ever."""

    decoded = DecodedRequests(parked_bytes=4_000 * ELEMENT_BYTES)
    machine = await boot(loop, decoded)
    client, filler = machine.connect(), machine.connect()
    await client.create_topic("t", 1)
    first = FetchPartition(0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1000)
    topics = [
        FetchTopic("t", topic_id=b"", partitions=[first]),
        *(FetchTopic("", topic_id=b"", partitions=[]) for _ in range(1_978)),
    ]
    fetch = FetchRequest(max_wait_ms=600_000, min_bytes=1, session_epoch=-1, topics=topics)
    await filler.send(fetch, 12)
    await asyncio.sleep(1)
    assert decoded.bytes_in_use == 1_980 * ELEMENT_BYTES + len(request_frame(fetch, 12))
    room_of = LargeRequests(services_of(machine)).acquire_room
    write, read = ProduceRequest(timeout_ms=1000), FetchRequest(max_wait_ms=1000)
    assert room_of(context_of(read, "10.0.0.7"), read, 33, 0) is None
    rooms = [
        room_of(context_of(write, "10.0.0.8"), write, 1_000, 0),
        room_of(context_of(join("", 1), "10.0.0.9"), join("", 1), 400, 100 * ELEMENT_BYTES),
    ]
    assert write.timeout_ms == 1000
    assert decoded.bytes_in_use > 3_400 * ELEMENT_BYTES
    for room in rooms:
        assert room is not None
        room.release()
    await machine.stop()


def context_of(request: Any, host: str) -> RequestContext:
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", host, 9)
    return RequestContext(RequestHeader(request.API_KEY, request.MAX_VERSION, 1, "c"), connection)


async def test_the_configs_of_a_response_are_counted_before_they_are_described(loop: SimLoop) -> None:
    machine = await boot(loop, DecodedRequests())
    resources = [DescribeConfigsResource(resource_type=32, resource_name=f"group-{each}") for each in range(1_000)]
    request = DescribeConfigsRequest(resources=resources)
    frame = memoryview(bytearray(request.encode(4)))
    undecoded = Undecoded(DescribeConfigsRequest, frame, 0, 4, 20_000)
    _, room = await LargeRequests(services_of(machine)).read(context_of(request, "10.0.0.1"), undecoded)
    assert room.byte_count == 1_000 * ELEMENT_BYTES + len(frame) + MAX_DESCRIBED_BYTES
    room.release()
    await machine.stop()


async def test_a_client_that_takes_what_it_can_leaves_room_to_wait_for_others(loop: SimLoop) -> None:
    decoded = DecodedRequests(parked_bytes=2 * 1_000 * ELEMENT_BYTES)
    machine = await boot(loop, decoded)
    room_of = LargeRequests(services_of(machine)).acquire_room
    read = FetchRequest(max_wait_ms=1000)
    rooms: list[Room] = []
    held: dict[str, int] = {}
    for host in ("10.0.0.1", "10.0.0.2", "10.0.0.3"):
        while (room := room_of(context_of(read, host), read, 50, 0)) is not None:
            rooms.append(room)
            held[host] = held.get(host, 0) + 50
    assert held == {"10.0.0.1": 500, "10.0.0.2": 250, "10.0.0.3": 150}
    for room in rooms:
        room.release()
    assert decoded.bytes_in_use == 0
    assert not decoded._held
    await machine.stop()


async def test_clients_that_wait_for_room_take_turns(loop: SimLoop) -> None:
    decoded = DecodedRequests(small_bytes=100 * ELEMENT_BYTES)
    first = await decoded.wait(100, 0, "greedy")
    order: list[str] = []

    async def wait(client: str) -> None:
        room = await decoded.wait(100, 0, client)
        order.append(client)
        await asyncio.sleep(1)
        room.release()

    async with asyncio.TaskGroup() as waiting:
        tasks = [waiting.create_task(wait(client)) for client in ["greedy"] * 5 + ["a", "b", "a"]]
        await asyncio.sleep(1)
        tasks[1].cancel()
        first.release()
    assert order == ["greedy", "a", "b", "a", "greedy", "greedy", "greedy"]
    assert decoded.bytes_in_use == 0


async def test_joins_that_would_take_too_much_while_they_wait_close_their_connection(loop: SimLoop) -> None:
    decoded = DecodedRequests(parked_bytes=250 * ELEMENT_BYTES + len(request_frame(join("m" * 60, 250), 9)))
    machine = await boot(loop, decoded)
    client = machine.connect()
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 5)
    for count, is_refused in ((250, False), (251, True), (900, True)):
        member = machine.connect()
        name = await member_id(member)
        if is_refused:
            with pytest.raises(EOFError):
                await member.call(join(name, count), 9)
        else:
            assert (await member.call(join(name, count), 9)).error_code == 0
        assert decoded.bytes_in_use == 0
    await machine.stop()


async def test_a_connection_that_ends_while_its_request_waits_for_room_leaves_no_trace(loop: SimLoop) -> None:
    decoded = DecodedRequests()
    machine = await boot(loop, decoded)
    client = machine.connect()
    await client.call(list_offsets(1), 10)
    rooms = await fill(decoded)
    await client.send(list_offsets(100), 10)
    await asyncio.sleep(1)
    client.link.channel.close()
    await asyncio.sleep(1)
    for room in rooms:
        room.release()
    await asyncio.sleep(1)
    assert decoded.bytes_in_use == 0
    await machine.stop()
