"""A whole broker on a simulated machine: the real BrokerServer on virtual time, a disk and a network in memory.

    async def main(loop):
        machine = Machine(loop)
        await machine.boot()
        client = machine.connect()
        topic = await client.create_topic("orders")

A Machine lives on one loop. Its disk outlives it: `Machine(loop, disk=disk)` is the next life of the same computer.
"""

import asyncio
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batch import RecordBatch
from kafkapy.record.batches import batches
from kafkapy.server.broker import BrokerServer
from kafkapy.server.quorum_node import Network
from kafkapy.storage.log.log import Log
from kafkapy.storage.offline.format import format_embedded
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.simulator.helper import SimHelper
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import START_WALL_MS, SimClock, SimLoop
from tests.simulator.network import LinkRules, SimClient, SimConnector, SimListener, SimNetwork
from tests.support.batches import build_batch
from tests.support.chance import SeededRandom
from tests.support.wire import request_frame

DATA_DIR = "/data"
ADDRESS = ("127.0.0.1", 9092)
CREATE_TOPICS_VERSION = 7
DELETE_TOPICS_VERSION = 6
PRODUCE_VERSION = 13
FETCH_VERSION = 17
LIST_OFFSETS_VERSION = 10
INIT_PRODUCER_ID_VERSION = 5


class Machine:
    """A node, its loop, network and disk. `properties` are Kafka's keys with underscores."""

    def __init__(
        self,
        loop: SimLoop,
        *,
        disk: SimDisk | None = None,
        seed: int = 0,
        start_wall_ms: int = START_WALL_MS,
        rules: LinkRules | None = None,
        log_dirs: str = DATA_DIR,
        **properties: str,
    ) -> None:
        self.loop = loop
        self.disk = disk if disk is not None else SimDisk(seed)
        self.clock = SimClock(loop, start_wall_ms)
        self.random = SeededRandom(seed)
        self.network = SimNetwork(loop, rules)
        self.disk.now_ms = start_wall_ms
        overrides = {key.replace("_", "."): value for key, value in properties.items()}
        self.config, _ = load(embedded_properties(log_dirs, ADDRESS[1], overrides))
        self.io_pool: SimIoPool
        self.helper: SimHelper | None = None
        """The cleaner's, once it has something to clean."""
        self.server: BrokerServer
        self.is_running = False

    def format(self) -> None:
        """Format the directories as `kafkapy start` does, unless they are; it is on the platter then."""
        format_embedded(self.config, self.disk, self.random, self.clock)
        self.disk.sync_all()

    async def boot(self) -> None:
        self.format()
        self.server = BrokerServer(
            self.config,
            disk=self.disk,
            clock=self.clock,
            random=self.random,
            new_io_pool=self._new_io_pool,
            network=Network(self._listen, lambda _loop: SimConnector(self.network, ADDRESS[0])),
            new_helper=self._new_helper,
        )
        await self.server.start()
        self.is_running = True

    async def stop(self) -> None:
        """Stop the server as on SIGTERM; one that is stopped already stays so."""
        if self.is_running:
            self.is_running = False
            await self.server.stop()

    @property
    def has_failed(self) -> bool:
        return self.server.failed is not None and self.server.failed.done()

    def logs(self) -> dict[TopicPartition, Log]:
        """Return the broker's logs, to look at what it does not tell."""
        manager = getattr(self.server, "_log_manager", None)
        return manager.logs if manager is not None else {}

    def connect(self) -> "KafkaClient":
        return KafkaClient(SimClient(self.network.connect(ADDRESS)), self)

    def _new_io_pool(self, loop: asyncio.AbstractEventLoop, worker_count: int) -> SimIoPool:
        assert loop is self.loop
        self.io_pool = SimIoPool(self.loop, worker_count=worker_count)
        return self.io_pool

    def _new_helper(self, loop: asyncio.AbstractEventLoop) -> SimHelper:
        assert loop is self.loop
        self.helper = SimHelper(self.loop, self.disk)
        return self.helper

    def _listen(self, loop: asyncio.AbstractEventLoop, host: str, port: int, **_options: int) -> SimListener:
        return self.network.listen(host, port)


@dataclass(frozen=True, slots=True)
class Topic:
    name: str
    topic_id: bytes


class KafkaClient:
    """A client on one connection. Requests may be pipelined: `send` each, `receive` the responses in order."""

    def __init__(self, link: SimClient, machine: Machine) -> None:
        self.link = link
        self._machine = machine
        self._sent: deque[tuple[int, int, int]] = deque()
        self._next_correlation_id = 1

    async def call(self, request: Any, version: int) -> Any:
        """Send a request and return its response. Raises EOFError where the connection ends before it."""
        await self.send(request, version)
        return await self.receive()

    async def send(self, request: Any, version: int) -> None:
        correlation_id = self._next_correlation_id
        self._next_correlation_id += 1
        self._sent.append((request.API_KEY, version, correlation_id))
        await self.link.send_frame(request_frame(request, version, correlation_id=correlation_id))

    async def receive(self) -> Any:
        api_key, version, correlation_id = self._sent.popleft()
        frame = await self.link.receive_frame()
        answered, position = read_response_header(frame, api_key, version)
        assert answered == correlation_id, "responses come in the order of their requests"
        return response_type(api_key).decode(frame[position:], version)

    # -- the APIs, for one partition --------------------------------------------------------------------------------

    async def create_topic(self, name: str, partition_count: int = 1, **configs: str) -> Topic:
        topic = CreatableTopic(
            name=name,
            num_partitions=partition_count,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
        (result,) = (await self.call(request, CREATE_TOPICS_VERSION)).topics
        assert result.error_code == 0, result
        return Topic(name, result.topic_id)

    async def delete_topic(self, topic: Topic) -> None:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic.name)], timeout_ms=30_000)
        (result,) = (await self.call(request, DELETE_TOPICS_VERSION)).responses
        assert result.error_code == 0, result

    def batch(self, values: Iterable[bytes], *, key: bytes | None = None, **fields: Any) -> bytes:
        now_ms = self._machine.clock.wall_ms()
        return build_batch([(now_ms, key, value, ()) for value in values], **fields)

    async def produce(self, topic: Topic, *values: bytes, acks: int = -1, partition: int = 0, **fields: Any) -> Any:
        """Produce a batch and return the partition's response; with acks=0 send it and return None."""
        data = PartitionProduceData(partition, records=self.batch(values, **fields))
        request = ProduceRequest(
            acks=acks,
            timeout_ms=30_000,
            topic_data=[TopicProduceData(topic.name, topic_id=topic.topic_id, partition_data=[data])],
        )
        if acks == 0:
            await self.link.send_frame(request_frame(request, PRODUCE_VERSION, correlation_id=0))
            return None
        return (await self.call(request, PRODUCE_VERSION)).responses[0].partition_responses[0]

    async def fetch(
        self,
        topic: Topic,
        offset: int,
        *,
        partition: int = 0,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
        leader_epoch: int = -1,
    ) -> Any:
        """Fetch outside of a session and return the partition's response. leader_epoch: the one known; -1 says none."""
        requested = FetchPartition(
            partition, current_leader_epoch=leader_epoch, fetch_offset=offset, partition_max_bytes=max_bytes
        )
        request = FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=min_bytes,
            session_epoch=-1,
            topics=[FetchTopic(topic.name, topic_id=topic.topic_id, partitions=[requested])],
        )
        response = await self.call(request, FETCH_VERSION)
        assert response.error_code == 0, response
        return response.responses[0].partitions[0]

    async def list_offset(self, topic: Topic, timestamp: int, *, partition: int = 0) -> Any:
        requested = ListOffsetsPartition(partition_index=partition, current_leader_epoch=-1, timestamp=timestamp)
        request = ListOffsetsRequest(
            -1, isolation_level=0, topics=[ListOffsetsTopic(topic.name, partitions=[requested])]
        )
        return (await self.call(request, LIST_OFFSETS_VERSION)).topics[0].partitions[0]

    async def init_producer_id(self) -> tuple[int, int]:
        """Return an idempotent producer's id and epoch."""
        response = await self.call(InitProducerIdRequest(transactional_id=None), INIT_PRODUCER_ID_VERSION)
        assert response.error_code == 0, response
        return response.producer_id, response.producer_epoch

    async def read_all(self, topic: Topic, *, partition: int = 0) -> list[RecordBatch]:
        """Return every batch of a partition, from its earliest offset to its end."""
        offset = (await self.list_offset(topic, -2, partition=partition)).offset
        end_offset = (await self.list_offset(topic, -1, partition=partition)).offset
        found: list[RecordBatch] = []
        while offset < end_offset:
            response = await self.fetch(topic, offset, partition=partition)
            assert response.error_code == 0, response
            assert response.records, f"nothing at {offset} of {end_offset}"
            found += batches(response.records)
            offset = found[-1].next_offset
        return found


def values_of(response: Any) -> list[bytes | None]:
    """Return the values of all records in a fetch's response."""
    return [record.value for batch in batches(response.records or b"") for record in batch.records()]
