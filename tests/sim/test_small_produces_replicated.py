"""Small produces with acks=all to a replicated partition: served together, answered as each alone, once replicated."""

import sys
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.data import produce
from kafkapy.handlers.data.small_produces import SmallProduces
from kafkapy.machine import Decision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_request_header, write_response_header
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.produce_response import ProduceResponse
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from tests.simulator.hot_paths import Counter
from tests.simulator.loop import SimLoop, run
from tests.simulator.replicas import ReplicaWorld
from tests.support.hosting import batch, run_scheduled, topic_id
from tests.support.wire import request_frame

VERSION = 13
COUNT = 8
ELECTION = PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, isr=[2])


def framed(number: int, timeout_ms: int, partition_count: int) -> bytes:
    records = bytes(batch(b"%d" % number, producer_id=5, producer_epoch=0, base_sequence=number))
    data = [PartitionProduceData(partition, records=records) for partition in range(partition_count)]
    topic = TopicProduceData("", topic_id=topic_id("orders"), partition_data=data)
    request = ProduceRequest(acks=-1, timeout_ms=timeout_ms, topic_data=[topic])
    body = request_frame(request, VERSION, correlation_id=number, client_id="c")
    return len(body).to_bytes(4, "big") + body


class Client:
    """Sends requests to node 1, together or each alone; `responses` are the bytes that it has got."""

    def __init__(self, world: ReplicaWorld, partition_count: int, *, is_together: bool) -> None:
        self._partition_count = partition_count
        self.responses = b""
        self._node = world.nodes[1]
        self._small = SmallProduces(self._node.services())
        self._connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
        self._is_together = is_together
        self._sent = 0

    async def send(self, count: int, timeout_ms: int = 1000) -> None:
        self._send(count, timeout_ms)
        await run_scheduled()

    def _send(self, count: int, timeout_ms: int) -> None:
        frames = [framed(number, timeout_ms, self._partition_count) for number in range(self._sent, self._sent + count)]
        self._sent += count
        if not self._is_together:
            for frame in frames:
                self._node.run(self._handle(frame))
            return
        data, position = b"".join(frames), 0
        while position < len(data):
            served = self._small.serve(self._connection, data, position, 32)
            if served is None:  # as a link does, this one goes alone
                end_position = position + 4 + int.from_bytes(data[position : position + 4], "big")
                self._node.run(self._handle(data[position:end_position]))
            else:
                end_position = served.end_position
                if served.responses is not None:
                    self._take(served.responses)
                else:
                    assert served.wait is not None
                    served.wait(self._take)
            position = end_position

    def codes(self) -> list[int]:
        """Return the error codes of partition 0 in the responses, in the order of the requests."""
        found, position = {}, 0
        while position < len(self.responses):
            size = int.from_bytes(self.responses[position : position + 4], "big")
            response = ProduceResponse.decode(self.responses[position + 9 : position + 4 + size], VERSION)
            found[int.from_bytes(self.responses[position + 4 : position + 8], "big")] = response
            position += 4 + size
        return [found[number].responses[0].partition_responses[0].error_code for number in sorted(found)]

    def _take(self, responses: bytes) -> None:
        self.responses += responses

    async def _handle(self, frame: bytes) -> None:
        header, position = read_request_header(frame[4:])
        request = ProduceRequest.decode(frame[4 + position :], header.api_version)
        context = RequestContext(header, self._connection)
        response = await produce.handle(self._node.services(), context, request)
        assert response is not None
        out = Writer()
        write_response_header(out, ProduceRequest.API_KEY, header.api_version, header.correlation_id)
        response.write(out, header.api_version)
        self._take(len(out).to_bytes(4, "big") + bytes(out))


async def begin(
    loop: SimLoop, *, is_together: bool, partition_count: int = 1, **topic: Any
) -> tuple[ReplicaWorld, Client]:
    """Two replicas in sync, and a segment that is not empty."""
    world = ReplicaWorld(loop, 2)
    world.create_topic(replicas=(1, 2), isr=(1, 2), partition_count=partition_count, **topic)
    assert (await world.produce(1, b"before"))[0] == 0
    client = Client(world, partition_count, is_together=is_together)
    await client.send(1)
    await world.pass_ms(100)
    assert client.codes() == [0]
    return world, client


Scene = Callable[[ReplicaWorld, Client], Any]


async def replicated(world: ReplicaWorld, client: Client) -> list[int]:
    await client.send(COUNT)
    assert len(client.codes()) == 1, "no follower has them yet"
    await world.pass_ms(100)
    return [0] * COUNT


async def lost_follower(world: ReplicaWorld, client: Client) -> list[int]:
    world.isolate(2)
    await client.send(COUNT)
    await world.pass_ms(900)
    assert len(client.codes()) == 1
    await world.pass_ms(200)
    return [ErrorCode.REQUEST_TIMED_OUT] * COUNT


async def lost_amid(world: ReplicaWorld, client: Client) -> list[int]:
    """The follower has a part of them, and takes no more."""
    world.nodes[1].partition().record_follower_fetch(
        2,
        fetch_offset=2,
        log_start_offset=0,
        now_ms=world.nodes[1].clock.monotonic_ms(),
        broker_epoch=world.cluster.epochs[2],
    )
    world.isolate(2)
    await client.send(COUNT)
    world.nodes[1].manager.record_follower_fetch(
        world.nodes[1].partition(),
        2,
        fetch_offset=2 + COUNT // 2,
        log_start_offset=0,
        leader_end_offset=2 + COUNT,
        broker_epoch=world.cluster.epochs[2],
    )
    await world.pass_ms(1100)
    return [0] * (COUNT // 2) + [ErrorCode.REQUEST_TIMED_OUT] * (COUNT // 2)


async def deposed(world: ReplicaWorld, client: Client) -> list[int]:
    world.isolate(2)
    await client.send(COUNT)
    world.commit(Decision(None, [ELECTION]))
    world.nodes[1].follow(world.cluster.image)
    await run_scheduled()
    return [ErrorCode.NOT_LEADER_OR_FOLLOWER] * COUNT


async def too_few_left(world: ReplicaWorld, client: Client) -> list[int]:
    world.isolate(2)
    await client.send(COUNT)
    shrunk = PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), isr=[1])
    world.commit(Decision(None, [shrunk]))
    world.nodes[1].follow(world.cluster.image)
    await world.pass_ms(1100)
    await client.send(COUNT)
    await world.pass_ms(1100)
    return [ErrorCode.REQUEST_TIMED_OUT] * COUNT + [ErrorCode.NOT_ENOUGH_REPLICAS] * COUNT


async def stopped(world: ReplicaWorld, client: Client) -> list[int]:
    world.isolate(2)
    await client.send(COUNT)
    world.nodes[1].manager.shutdown()
    await run_scheduled()
    return [ErrorCode.REQUEST_TIMED_OUT] * COUNT


async def deposed_in_one(world: ReplicaWorld, client: Client) -> list[int]:
    """Another partition of each request waits until its time-out."""
    codes = await deposed(world, client)
    assert len(client.codes()) == 1
    await world.pass_ms(1100)
    return codes


SCENES = [replicated, lost_follower, lost_amid, too_few_left, stopped]


@pytest.mark.parametrize(
    ("scene", "partition_count"),
    [*((scene, count) for scene in SCENES for count in (1, 2)), (deposed, 1), (deposed_in_one, 2)],
)
def test_responses_are_those_of_each_alone(scene: Scene, partition_count: int) -> None:
    async def play(loop: SimLoop, *, is_together: bool) -> bytes:
        configs = {"min.insync.replicas": "2"} if scene is too_few_left else {}
        world, client = await begin(loop, is_together=is_together, partition_count=partition_count, configs=configs)
        expected = await scene(world, client)
        assert client.codes() == [0, *expected]
        await world.stop()
        return client.responses

    together, alone = (run(lambda loop, way=way: play(loop, is_together=way)) for way in (True, False))
    assert together == alone


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecode is counted on CPython 3.11")
def test_together_they_cost_half_of_what_each_alone_does() -> None:
    def cost(*, is_together: bool) -> float:
        async def main(loop: SimLoop) -> float:
            world, client = await begin(loop, is_together=is_together)
            counter = Counter()
            with counter:
                await client.send(32)
                await world.pass_ms(100)
            assert client.codes() == [0] * 33
            await world.stop()
            return counter.instructions

        return run(main)

    assert cost(is_together=True) < 0.5 * cost(is_together=False)
