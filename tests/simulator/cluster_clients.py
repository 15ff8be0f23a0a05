"""Clients of a simulated cluster, which record what they were told: producers, consumers, committers, an administrator.

Each speaks the wire protocol over connections of its own, finds leaders and coordinators by asking, and tries again
until told to stop. A request without a response within CALL_S is given up, its connection too.
"""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from kafkapy.protocol.api import response_type
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batches import batches
from kafkapy.types import ZERO_UUID
from tests.simulator.cluster_checker import ClusterChecker, ViolationError
from tests.simulator.cluster_world import CLIENT_PORT, ClusterWorld, host_of
from tests.simulator.faulty_network import FaultyConnector
from tests.simulator.loop import START_WALL_MS
from tests.simulator.network import SimChannel, SimClient
from tests.support.batches import build_batch
from tests.support.wire import request_frame

CALL_S: Final = 3.0
RETRY_S: Final = (0.02, 0.3)
MAX_IN_FLIGHT: Final = 4
PRODUCES_PER_S: Final = 10
COMMITS_PER_S: Final = 6
LONGEST_REST_S: Final = 0.25
"""Between two fetches of a consumer."""
CALM_REST_S: Final = 0.5
"""Between two steps of a client that has done its part, where the plan has it rest."""
VERSIONS: Final = {
    0: 13,
    1: 17,
    3: 13,
    8: 10,
    9: 10,
    10: 6,
    11: 9,
    12: 4,
    13: 5,
    14: 5,
    19: 7,
    20: 6,
    22: 5,
    32: 4,
    37: 3,
    43: 2,
    44: 1,
    45: 1,
}
"""The version of each API that a client sends."""


class LostError(Exception):
    """A request was not answered, or nobody is there to be asked."""


class Connections:
    """A client's connections, one to each node; requests may be pipelined."""

    def __init__(self, world: ClusterWorld, name: str, host: str, *, port: int = CLIENT_PORT) -> None:
        self.world = world
        self.name = name
        self._port = port
        self._connector = FaultyConnector(world.network, host)
        self._links: dict[int, _Link] = {}
        self._nodes = [computer.node_id for computer in world.brokers]

    async def call(self, node_id: int, request: Any, version: int | None = None) -> Any:
        """Return the response. Raises LostError."""
        return await (await self.send(node_id, request, version))

    async def send(self, node_id: int, request: Any, version: int | None = None) -> "asyncio.Future[Any]":
        """Send a request; return what will be its response, or raise LostError."""
        link = self._links.get(node_id)
        if link is None or link.is_closed:
            link = self._links[node_id] = _Link(await self.connect(node_id))
        return link.send(request, VERSIONS[request.API_KEY] if version is None else version)

    async def send_to_any(self, request: Any) -> Any:
        return await self.call(self.world.loop.rng.choice(self._nodes), request)

    def drop(self, node_id: int) -> None:
        link = self._links.pop(node_id, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        for node_id in list(self._links):
            self.drop(node_id)

    async def connect(self, node_id: int) -> SimChannel:
        """Return a connection of its own. Raises LostError."""
        done: asyncio.Future[SimChannel] = self.world.loop.create_future()

        def on_done(channel: SimChannel | None, error: OSError | None) -> None:
            if done.done():
                if channel is not None:
                    channel.close()
            elif channel is None:
                done.set_exception(LostError(error))
            else:
                done.set_result(channel)

        cancel = self._connector.connect(host_of(node_id), self._port, on_done)
        try:
            async with asyncio.timeout(CALL_S):
                return await done
        except TimeoutError:
            cancel()
            raise LostError("not connected") from None


class _Link:
    """A connection, and the requests on it that wait for their responses."""

    def __init__(self, channel: SimChannel) -> None:
        self._client = SimClient(channel)
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._next_id = 1
        self.is_closed = False
        self._reader = asyncio.ensure_future(self._read())

    def send(self, request: Any, version: int) -> "asyncio.Future[Any]":
        loop = asyncio.get_running_loop()
        response: asyncio.Future[Any] = loop.create_future()
        response.add_done_callback(lambda done: done.cancelled() or done.exception())
        number, self._next_id = self._next_id, self._next_id + 1
        self._waiting.append((request.API_KEY, version, number, response))
        frame = request_frame(request, version, correlation_id=number)
        try:
            sent = self._client.channel.send([len(frame).to_bytes(4, "big") + frame], False)
        except OSError:
            sent = 0
        if not sent:  # a frame that is cut ends the connection, too: small ones find room
            self.close()
        loop.call_later(CALL_S, self._give_up, response)
        return response

    def _give_up(self, response: "asyncio.Future[Any]") -> None:
        if not response.done():
            self.close()

    async def _read(self) -> None:
        try:
            while True:
                frame = await self._client.receive_frame()
                api_key, version, number, response = self._waiting.popleft()
                answered, position = read_response_header(frame, api_key, version)
                assert answered == number, "responses come in the order of their requests"
                if not response.done():
                    response.set_result(response_type(api_key).decode(frame[position:], version))
        except (EOFError, OSError):
            self.close()

    def close(self) -> None:
        if self.is_closed:
            return
        self.is_closed = True
        self._reader.cancel()
        self._client.channel.close()
        for _, _, _, response in self._waiting:
            if not response.done():
                response.set_exception(LostError("no response"))


@dataclass
class Place:
    """Where a partition is led, as a client knows."""

    topic_id: bytes
    leader_id: int
    leader_epoch: int


class Client:
    """What clients have in common: a run that lasts until `is_over`, one step after another."""

    enough_progress: ClassVar[int] = 3
    """How often it has to get something done once all is healed; the first may have been under way before."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int) -> None:
        self.world = world
        self.checker = checker
        self.name = name
        self.is_over = False
        self.is_calm = False
        """Whether to do little: others are still waited for."""
        self.progress = 0
        """Counts what has gone well."""
        self.connections = Connections(world, name, f"10.1.0.{number}")
        self._places: dict[tuple[str, int], Place] = {}

    async def run(self) -> None:
        try:
            while not self.is_over:
                try:
                    await self.step()
                except LostError:
                    await self.pause()
                if self.is_calm:
                    await asyncio.sleep(CALM_REST_S)
        finally:
            self.connections.close()

    async def step(self) -> None:
        raise NotImplementedError

    async def pause(self) -> None:
        await asyncio.sleep(self.world.loop.rng.uniform(*RETRY_S))

    async def place(self, topic: str, partition: int) -> Place:
        """Return where a partition is led. Raises LostError where nobody knows."""
        place = self._places.get((topic, partition))
        if place is None:
            request = MetadataRequest(
                topics=[MetadataRequestTopic(ZERO_UUID, name=topic)], allow_auto_topic_creation=False
            )
            found = (await self.connections.send_to_any(request)).topics[0]
            for each in found.partitions:
                if each.partition_index == partition and each.leader_id > 0:
                    place = Place(found.topic_id, each.leader_id, each.leader_epoch)
        if place is None:
            raise LostError(f"nobody leads {topic}-{partition}")
        self._places[topic, partition] = place
        return place

    def forget_place(self, topic: str, partition: int) -> None:
        self._places.pop((topic, partition), None)


@dataclass
class Batch:
    """A batch of one producer that was sent, perhaps, and not acknowledged."""

    values: list[bytes]
    base_sequence: int
    data: bytes
    attempts: int = 0
    responses: list[int] = field(default_factory=list)


class IdempotentProducer(Client):
    """Writes numbers to a partition, up to MAX_IN_FLIGHT batches at once, each until it is acknowledged.

    After a restart a partition remembers a producer's last batch only, as Kafka's snapshot does: a batch that was
    appended together with later ones, all of whose responses were lost, is then out of order when it is sent again.
    Kafka promises no more than that it is there once. Then the client goes on as a new producer, under another name.
    """

    def __init__(
        self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, topic: str, partition: int
    ) -> None:
        super().__init__(world, checker, name, number)
        self._topic, self._partition = topic, partition
        self._producer: tuple[int, int] | None = None
        self._unacknowledged: list[Batch] = []
        self._next_number = 0
        self._has_acknowledged = False
        self._life_count = 1

    async def step(self) -> None:
        if self._producer is None:
            await self._init()
        place = await self.place(self._topic, self._partition)
        rng = self.world.loop.rng
        while len(self._unacknowledged) < rng.randrange(1, MAX_IN_FLIGHT + 1):
            self._unacknowledged.append(self._new_batch(rng.randrange(1, 4)))
        responses = [await self._send(place, batch) for batch in self._in_flight()]
        try:
            for part in responses:
                if not self._take((await part).responses[0].partition_responses[0]):
                    raise LostError("to be tried again")
        except LostError:
            self.connections.drop(place.leader_id)  # what is under way on it may still be done, and never twice
            self.forget_place(self._topic, self._partition)
            raise
        await asyncio.sleep(rng.expovariate(PRODUCES_PER_S))

    def _in_flight(self) -> list[Batch]:
        """Return the batches to send at once: those that were sent before one by one, as Java's producer does.

        So is the first of all: of a producer that it does not know a broker takes any sequence, as Kafka's does.
        """
        is_first = not self._has_acknowledged or self._unacknowledged[0].attempts > 0
        return self._unacknowledged[:1] if is_first else list(self._unacknowledged)

    async def _init(self) -> None:
        response = await self.connections.send_to_any(InitProducerIdRequest(transactional_id=None))
        if response.error_code:
            raise LostError(response.error_code)
        self._producer = response.producer_id, response.producer_epoch
        self.checker.note_producer_id(response.producer_id, self.name)

    def _new_batch(self, count: int) -> Batch:
        assert self._producer is not None
        values = [f"{self.name} {self._next_number + index}".encode() for index in range(count)]
        producer_id, epoch = self._producer
        data = build_batch(
            [(START_WALL_MS + self.world.loop.now_ms(), None, value, ()) for value in values],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self._next_number,
        )
        batch = Batch(values, self._next_number, data)
        self._next_number += count
        return batch

    async def _send(self, place: Place, batch: Batch) -> "asyncio.Future[Any]":
        batch.attempts += 1
        return await self.connections.send(
            place.leader_id, produce_request(place, self._topic, self._partition, batch.data)
        )

    def _take(self, response: Any) -> bool:
        """Take the response to the oldest batch; return whether the next one is of use."""
        batch = self._unacknowledged[0]
        code = response.error_code
        batch.responses.append(code)
        if code == ErrorCode.NONE or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            del self._unacknowledged[0]
            self.progress += 1
            self._has_acknowledged = True
            if response.base_offset >= 0:
                self.checker.acknowledge(self._topic, self._partition, response.base_offset, batch.values)
            self.checker.note_order(self._topic, self._partition, self.name, batch.values)
            return True
        if code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and self._may_be_forgotten(batch):
            self._begin_anew()
        elif code in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.UNKNOWN_PRODUCER_ID,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            raise ViolationError(
                f"I4: {self.name} was told {ErrorCode(code).name} for {batch.values}, whose predecessors were "
                f"acknowledged ({batch.responses})"
            )
        return False

    def _may_be_forgotten(self, batch: Batch) -> bool:
        """Whether a partition that remembers the last batch only may have appended this one."""
        return batch.attempts > 1 and any(later.attempts for later in self._unacknowledged[1:])

    def _begin_anew(self) -> None:
        self._producer = None
        self._unacknowledged.clear()
        self._next_number = 0
        self._has_acknowledged = False
        self._life_count += 1
        self.name = f"{self.name.partition('.')[0]}.{self._life_count}"
        self.world.note(f"{self.name} begins")


def produce_request(place: Place, topic: str, partition: int, data: bytes) -> ProduceRequest:
    part = PartitionProduceData(partition, records=data)
    return ProduceRequest(
        acks=-1, timeout_ms=1500, topic_data=[TopicProduceData(topic, topic_id=place.topic_id, partition_data=[part])]
    )


async def find_coordinator(connections: Connections, group_id: str) -> int:
    """Return the node id of a group's coordinator. Raises LostError."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[group_id])
    (found,) = (await connections.send_to_any(request)).coordinators
    if found.error_code or found.node_id < 0:
        raise LostError(found.error_code)
    return int(found.node_id)


class PlainProducer(Client):
    """Writes values that are never sent twice: what was refused for certain must never be seen."""

    def __init__(
        self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, topic: str, partition: int
    ) -> None:
        super().__init__(world, checker, name, number)
        self._topic, self._partition = topic, partition
        self._next_number = 0

    async def step(self) -> None:
        place = await self.place(self._topic, self._partition)
        value = f"{self.name} {self._next_number}".encode()
        self._next_number += 1
        data = build_batch([(START_WALL_MS + self.world.loop.now_ms(), None, value, ())])
        try:
            response = await self.connections.call(
                place.leader_id, produce_request(place, self._topic, self._partition, data)
            )
        except LostError:
            self.forget_place(self._topic, self._partition)
            raise
        part = response.responses[0].partition_responses[0]
        if part.error_code == ErrorCode.NONE:
            self.progress += 1
            self.checker.acknowledge(self._topic, self._partition, part.base_offset, [value])
            await asyncio.sleep(self.world.loop.rng.expovariate(PRODUCES_PER_S))
            return
        if part.error_code == ErrorCode.NOT_ENOUGH_REPLICAS:
            self.checker.refuse(self._topic, self._partition, value)
        self.forget_place(self._topic, self._partition)
        await self.pause()


class Consumer(Client):
    """Reads a partition from its beginning, again and again from somewhere, and tells the checker what is where."""

    def __init__(
        self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, topic: str, partition: int
    ) -> None:
        super().__init__(world, checker, name, number)
        self._topic, self._partition = topic, partition
        self.position = 0
        self._last_epoch = -1

    async def step(self) -> None:
        place = await self.place(self._topic, self._partition)
        requested = FetchPartition(
            self._partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=self.position,
            last_fetched_epoch=self._last_epoch,
            partition_max_bytes=1 << 20,
        )
        request = FetchRequest(
            max_wait_ms=300,
            min_bytes=1,
            session_epoch=-1,
            topics=[FetchTopic(self._topic, topic_id=place.topic_id, partitions=[requested])],
        )
        try:
            response = await self.connections.call(place.leader_id, request)
        except LostError:
            self.forget_place(self._topic, self._partition)
            raise
        if response.error_code or not response.responses:
            self.forget_place(self._topic, self._partition)
            raise LostError(response.error_code)
        self._take(response.responses[0].partitions[0], place)
        await asyncio.sleep(self.world.loop.rng.uniform(0, LONGEST_REST_S))

    def _take(self, response: Any, place: Place) -> None:
        if place.leader_epoch < self._last_epoch:  # of a node whose metadata is old: a consumer believes none of it
            self.forget_place(self._topic, self._partition)
            raise LostError(ErrorCode.FENCED_LEADER_EPOCH)
        if response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE or response.diverging_epoch.end_offset >= 0:
            raise ViolationError(
                f"I1: {self.name} has read to {self.position} (leader epoch {self._last_epoch}), and node "
                f"{place.leader_id} at epoch {place.leader_epoch} says {response.error_code} {response.diverging_epoch}"
            )
        if response.error_code:
            self.forget_place(self._topic, self._partition)
            raise LostError(response.error_code)
        for batch in batches(response.records or b""):
            for record in batch.records():
                if record.offset >= self.position:
                    self.checker.see(self._topic, self._partition, record.offset, bytes(record.value or b""))
            self.position = max(self.position, batch.next_offset)
            self._last_epoch = batch.partition_leader_epoch
            self.progress += 1
        if self.position > response.high_watermark >= 0 and response.records:
            raise ViolationError(f"I1: {self.name} was given {self.position - 1}, above {response.high_watermark}")


class Committer(Client):
    """Commits rising offsets of a group that has no members, and asks what is committed."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, topic: str) -> None:
        super().__init__(world, checker, name, number)
        self._topic = topic
        self._requested = 0
        self._acknowledged = -1
        self._coordinator_id = -1

    async def step(self) -> None:
        place = await self.place(self._topic, 0)
        try:
            if self._coordinator_id < 0:
                self._coordinator_id = await find_coordinator(self.connections, self.name)
            if self.world.loop.rng.random() < 0.7:
                await self._commit(place)
            else:
                await self.fetch(place)
        except LostError:
            self._coordinator_id = -1
            raise
        await asyncio.sleep(self.world.loop.rng.expovariate(COMMITS_PER_S))

    async def _commit(self, place: Place) -> None:
        self._requested += 1
        part = OffsetCommitRequestPartition(0, committed_offset=self._requested, committed_metadata="")
        request = OffsetCommitRequest(
            group_id=self.name,
            topics=[OffsetCommitRequestTopic(self._topic, topic_id=place.topic_id, partitions=[part])],
        )
        response = (await self.connections.call(self._coordinator_id, request)).topics[0].partitions[0]
        if response.error_code:
            raise LostError(response.error_code)
        self._acknowledged = self._requested
        self.progress += 1

    async def fetch(self, place: Place) -> None:
        """Ask what is committed: the last offset that was acknowledged, or one that was asked for since."""
        at_least = self._acknowledged
        topics = [OffsetFetchRequestTopics(self._topic, topic_id=place.topic_id, partition_indexes=[0])]
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(self.name, topics=topics)], require_stable=True)
        (group,) = (await self.connections.call(self._coordinator_id, request)).groups
        if group.error_code:
            raise LostError(group.error_code)
        response = group.topics[0].partitions[0]
        if response.error_code:
            raise LostError(response.error_code)
        if not at_least <= response.committed_offset <= self._requested:
            raise ViolationError(
                f"I9: {self.name} is at {response.committed_offset}: "
                f"{at_least} was acknowledged, {self._requested} requested"
            )
        self._acknowledged = max(self._acknowledged, response.committed_offset)
