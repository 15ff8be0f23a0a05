"""Brokers that replicate: real replica managers, fetchers, ISR updates and logs, over a simulated network and disks.

The controller's tables are real, too, and always there; how its decisions and answers reach the brokers is simulated.
Between two nodes a connection keeps its order; a link that is cut, or a node that is down, answers nothing, so that
requests time out, or breaks connections at once. What is on its way when its sender dies arrives all the same.

    async def main(loop):
        world = ReplicaWorld(loop, 3)
        partition = world.create_topic(replicas=(1, 2, 3))
        await world.pass_ms(100)
"""

import asyncio
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from kafkapy.config.load import load
from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.data import fetch, list_offsets
from kafkapy.machine import Decided, Decision, Steps
from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.metadata.partitions import RecordSteps
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.config_record import ConfigRecord
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batches import batches
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.runtime.broker.isr_updates import IsrUpdates
from kafkapy.runtime.followers.replica_fetchers import ReplicaFetchers
from kafkapy.runtime.peer import NoResponseError
from kafkapy.seams import FileRegion
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.disk import Keep, SimDisk
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster, registration_request
from tests.support.hosting import Hosting, batch, topic_id

HANDLERS: Mapping[int, Any] = {1: fetch.handle, 2: list_offsets.handle}
TOPIC = "orders"
READ_BYTES = 1 << 20


CONTROLLER = 0
"""The controller's number, where links are concerned."""


class Node(Hosting):
    """A broker's replicas in one life of its process. ReplicaWorld makes them."""

    def __init__(self, world: "ReplicaWorld", node_id: int, disk: SimDisk, properties: Mapping[str, str]) -> None:
        super().__init__(world.loop, disk=disk, node_id=node_id, cluster=world.cluster, **properties)
        self.world = world
        self.broker_epoch = -1
        self.image: MetadataImage = EMPTY_IMAGE
        self.is_up = True
        self.tasks: set[asyncio.Task[Any]] = set()
        controller: Any = SimController(world, node_id)
        self.isr_updates = IsrUpdates(
            self.manager,
            controller,
            node_id=node_id,
            broker_epoch=lambda: self.broker_epoch,
            max_lag_ms=lambda: self.config.replication.replica_lag_time_max_ms,
            clock=self.clock,
        )
        self.manager.on_isr_wanted = self.isr_updates.enqueue
        self.isr_updates.start()
        self.fetchers = ReplicaFetchers(
            self.manager,
            self.log_manager,
            config=lambda: self.config,
            broker_epoch=lambda: self.broker_epoch,
            new_peer=self._new_peer,
            flush=self.log_flusher.flush,
            clock=self.clock,
        )

    def follow(self, image: MetadataImage) -> None:
        """Take over an image of the metadata, unless a later one is known."""
        if not self.is_up or image.provenance.last_offset <= self.image.provenance.last_offset:
            return
        before, self.image = self.image, image
        delta = difference(before, image)
        self.manager.announce(image)
        for _ in self.fetchers.maybe_resize():
            pass
        for _ in self.manager.apply_delta(delta, image, self.clock.wall_ms()):
            pass

    def partition(self, number: int = 0) -> HostedPartition:
        found = self.manager.partitions.find(TOPIC, number)
        assert found is not None
        return found

    def log(self, name: str = TOPIC, number: int = 0) -> Log:
        log = self.partition(number).log
        assert log is not None
        return log

    def resize_fetchers(self, count: int) -> None:
        """Change num.replica.fetchers, as the next metadata brings it."""
        self.config, _ = load({**self.config.originals, "num.replica.fetchers": str(count)})

    async def crash(self, keep: Keep = "none") -> None:
        """End at once, as by kill -9 (keep="all") or a power cut, which loses what was not synced, or some of it."""
        self.is_up = False
        self.expirer.stop()
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        await self.isr_updates.stop()
        await self.fetchers.stop()
        await self.log_flusher.close()
        self.disk.crash(keep)

    def run(self, coroutine: Any) -> "asyncio.Task[Any]":
        """Run something that ends with this life."""
        task = self.loop.create_task(coroutine)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    def _new_peer(self, host: str, port: int) -> Any:
        return SimPeer(self.world, self.node_id, host, port)


class SimPeer:
    """runtime.peer.Peer over the world's links."""

    def __init__(self, world: "ReplicaWorld", node_id: int, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._world = world
        self._from = node_id
        self._to = int(host.removeprefix("host"))
        self._waiting: set[asyncio.Future[Any]] = set()

    def send_request(
        self, api_key: int, build: Callable[[int], Any], *, versions: tuple[int, int], timeout_ms: int
    ) -> "asyncio.Future[Any]":
        world, version = self._world, versions[1]
        answered: asyncio.Future[Any] = world.loop.create_future()
        self._waiting.add(answered)
        answered.add_done_callback(self._waiting.discard)
        request = build(version)
        frame, kind = bytes(request.encode(version)), type(request)
        world.loop.call_later(timeout_ms / 1000, self._fail, answered)
        world.requests.append((self._from, self._to, api_key, request))

        def respond(response: Any) -> None:
            if not answered.done():
                answered.set_result(response)

        world.send(self._from, self._to, lambda: world.serve(self._from, self._to, kind, frame, version, respond))
        return answered

    def close(self) -> None:
        for answered in list(self._waiting):
            self._fail(answered)

    def _fail(self, answered: "asyncio.Future[Any]") -> None:
        if not answered.done():
            answered.set_exception(NoResponseError(self.host, is_unsupported=False))
            answered.exception()


class SimController:
    """runtime.active_controller.ActiveController over the world's links; requests and answers may be lost."""

    def __init__(self, world: "ReplicaWorld", node_id: int) -> None:
        self._world = world
        self._from = node_id

    async def send_request(self, request: Any, decide: Any) -> Any:
        world = self._world
        answered: asyncio.Future[Any] = world.loop.create_future()

        def respond(result: Any) -> None:
            if not answered.done():
                answered.set_result(result)

        def arrive() -> None:
            try:
                result: Any = world.commit(decide(world.cluster.controller, 0))
            except ApiError as error:
                result = error
            world.send(CONTROLLER, self._from, lambda: respond(result))

        world.alterations.append(request)
        world.send(self._from, CONTROLLER, arrive)
        try:
            async with asyncio.timeout(world.controller_timeout_ms / 1000):
                result = await answered
        except TimeoutError:
            raise ApiError(ErrorCode.NOT_CONTROLLER) from None
        if isinstance(result, ApiError):
            raise result
        return result


class ReplicaWorld:
    """The nodes 1 to node_count of a cluster, and what is between them. Properties: Kafka's keys with underscores."""

    def __init__(self, loop: SimLoop, node_count: int, **properties: str) -> None:
        self.loop = loop
        self.cluster = Cluster(node_count)
        self.properties = {"replica_socket_timeout_ms": "1000", **properties}
        self.delays_ms = (1, 1)
        """The shortest and the longest time on a link."""
        self.slow: dict[tuple[int, int], int] = {}
        """(from, to) -> milliseconds more that what is sent there takes."""
        self.deaf: set[int] = set()
        """Nodes that hear of no metadata, though they get the controller's responses."""
        self.controller_timeout_ms = 1000
        self.cut: set[tuple[int, int]] = set()
        """(from, to): what is sent there is lost."""
        self.tamper: Callable[[int, int, Any], Any] | None = None
        """(from, to, response) -> the response that arrives, None for none."""
        self.requests: list[tuple[int, int, int, Any]] = []
        """(from, to, api key, request) of all that nodes asked each other."""
        self.alterations: list[Any] = []
        self.on_commit: Callable[[], None] | None = None
        self._arrivals: dict[tuple[int, int], float] = {}
        self.nodes: dict[int, Node] = {}
        for node_id in range(1, node_count + 1):
            self._start(node_id, SimDisk(node_id))

    def _start(self, node_id: int, disk: SimDisk) -> Node:
        node = self.nodes[node_id] = Node(self, node_id, disk, self.properties)
        node.broker_epoch = self.cluster.epochs[node_id]
        node.follow(self.cluster.image)
        return node

    async def stop(self) -> None:
        for node in self.nodes.values():
            if node.is_up:
                await node.isr_updates.stop()
                await node.fetchers.stop()

    # -- the controller

    def commit(self, decision: "Decided[Any, Any]") -> Any:
        """Carry out a decision of the controller; the nodes hear of it a moment later."""
        before = self.cluster.image.provenance.last_offset
        response = self.cluster.commit(decision)
        image = self.cluster.image
        if image.provenance.last_offset != before:
            for node_id in self.nodes:
                self.send(CONTROLLER, node_id, lambda node_id=node_id: self._deliver(node_id, image))  # type: ignore[misc]
            if self.on_commit is not None:
                self.on_commit()
        return response

    def _deliver(self, node_id: int, image: MetadataImage) -> None:
        if node_id not in self.deaf:
            self.nodes[node_id].follow(image)

    def create_topic(
        self,
        partition_count: int = 1,
        *,
        replicas: Sequence[int],
        isr: Sequence[int] | None = None,
        leader: int | None = None,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """Create the topic, led by its first replica; all nodes know it at once."""
        topic = [TopicRecord(name=TOPIC, topic_id=topic_id(TOPIC))]
        settings = [
            ConfigRecord(resource_type=2, resource_name=TOPIC, name=key, value=value)
            for key, value in (configs or {}).items()
        ]
        partitions = [
            PartitionRecord(
                partition_id=number,
                topic_id=topic_id(TOPIC),
                replicas=list(replicas),
                isr=list(replicas if isr is None else isr),
                leader=replicas[0] if leader is None else leader,
                leader_epoch=0,
                partition_epoch=0,
                directories=[bytes(16)] * len(replicas),
            )
            for number in range(partition_count)
        ]
        self.commit(Decision(None, [*topic, *settings, *partitions]))
        for node in self.nodes.values():
            node.follow(self.cluster.image)

    def registration(self, number: int = 0) -> PartitionRegistration:
        """The partition, as the controller has it."""
        return self.cluster.controller.topics.by_id[topic_id(TOPIC)].partitions[number]

    def fence(self, node_id: int) -> None:
        self.commit(_all_of(self.cluster.controller.partitions.fence(node_id)))

    def unfence(self, node_id: int) -> None:
        self.commit(_unfencing(self.cluster.controller.partitions.unfence(node_id)))

    def begin_controlled_shutdown(self, node_id: int) -> None:
        self.commit(_all_of(self.cluster.controller.partitions.begin_controlled_shutdown(node_id)))

    async def restart(self, node_id: int) -> None:
        """Begin the next life of a node that has crashed (unclean: the controller forgets that it was in sync)."""
        assert not self.nodes[node_id].is_up
        for link in [link for link in self._arrivals if node_id in link]:
            del self._arrivals[link]  # its connections are new: what the old ones still bring may come later
        life = self.cluster.epochs[node_id]
        request = registration_request(node_id, incarnation=life + 1, previous_broker_epoch=-1)
        controller = self.cluster.controller
        response = self.commit(controller.decide_register_broker(request, self.cluster.now_ms, is_local=True))
        self.cluster.epochs[node_id] = response.broker_epoch
        node = self._start(node_id, self.nodes[node_id].disk)
        self.unfence(node_id)
        node.follow(self.cluster.image)

    # -- links

    def send(self, sender: int, receiver: int, arrive: Callable[[], None]) -> None:
        """Let something arrive later, in order on its link, unless the link is cut now."""
        if (sender, receiver) in self.cut:
            return
        low, high = self.delays_ms
        at = (
            self.loop.now
            + self.slow.get((sender, receiver), 0) / 1000
            + (low if low == high else self.loop.rng.uniform(low, high)) / 1000
        )
        at = self._arrivals[sender, receiver] = max(at, self._arrivals.get((sender, receiver), 0.0))
        self.loop.call_at(at, arrive)

    def isolate(self, node_id: int) -> None:
        """Cut a node off from all others, and from the controller."""
        for other in (CONTROLLER, *self.nodes):
            if other != node_id:
                self.cut |= {(node_id, other), (other, node_id)}

    def heal(self) -> None:
        """Mend all links; the nodes catch up with the metadata."""
        self.cut.clear()
        self.deaf.clear()
        for node in self.nodes.values():
            node.follow(self.cluster.image)

    def serve(self, sender: int, receiver: int, kind: Any, frame: bytes, version: int, respond: Any) -> None:
        """A request has arrived at a node: answer it, if that runs."""
        node = self.nodes[receiver]
        if node.is_up:
            node.run(self._serve(node, sender, kind, frame, version, respond))

    async def _serve(self, node: Node, sender: int, kind: Any, frame: bytes, version: int, respond: Any) -> None:
        peer = ConnectionInfo(f"node {node.node_id}-node {sender}", "PLAINTEXT", "PLAINTEXT", f"node {sender}", 0)
        context = RequestContext(RequestHeader(kind.API_KEY, version, 0, "broker"), peer)
        response = await HANDLERS[kind.API_KEY](node.services(), context, kind.decode(frame, version))
        if isinstance(response, FetchResponse):
            _read_regions(response)
        response = type(response).decode(bytes(response.encode(version)), version)
        if self.tamper is not None:
            response = self.tamper(sender, node.node_id, response)
        if response is not None:
            self.send(node.node_id, sender, lambda: respond(response))

    # -- clients

    async def pass_ms(self, duration_ms: int) -> None:
        end: asyncio.Future[None] = self.loop.create_future()
        self.loop.call_later(duration_ms / 1000, end.set_result, None)
        await end

    async def until(self, holds: Callable[[], bool], limit_ms: int = 60_000) -> None:
        """Let time pass until something holds."""
        end_ms = self.loop.now_ms() + limit_ms
        while not holds():
            assert self.loop.now_ms() < end_ms, "it did not come true"
            await self.pass_ms(10)

    async def produce(
        self, node_id: int, *values: bytes, number: int = 0, timeout_ms: int = 1000, **fields: Any
    ) -> tuple[int, int]:
        """Append with acks=all at a node; return (error code, base offset)."""
        return await self.nodes[node_id].run(self._produce(self.nodes[node_id], number, values, timeout_ms, fields))

    async def _produce(
        self, node: Node, number: int, values: Sequence[bytes], timeout_ms: int, fields: Mapping[str, Any]
    ) -> tuple[int, int]:
        append = PartitionAppend(node.partition(number), batch(*values, **fields))
        if not node.manager.append_records([append], required_acks=ALL_ACKS):
            done: asyncio.Future[None] = self.loop.create_future()
            node.manager.wait_for_replicas(
                [append],
                timeout_ms=timeout_ms,
                on_done=lambda: None if done.done() else done.set_result(None),
            )
            await done
        return append.error_code, append.base_offset


def _all_of(steps: "RecordSteps") -> "Steps[Any, None]":
    yield from steps
    return Decision(None)


def _unfencing(steps: "Generator[list[Any], None, list[Any]]") -> "Steps[Any, None]":
    return Decision(None, (yield from steps))


def _read_regions(response: FetchResponse) -> None:
    for topic in response.responses:
        for part in topic.partitions:
            if isinstance(part.records, FileRegion):
                region, part.records = part.records, part.records.read()
                region.release()


def stored(
    log: Log, position: int = 0, *, isolation: FetchIsolation = FetchIsolation.LOG_END
) -> list[tuple[int, int, bytes]]:
    """Return (offset, leader epoch, value) of a log's records from the batch at position on."""
    found: list[tuple[int, int, bytes]] = []
    position = max(position, log.log_start_offset)
    while True:
        read = log.read(position, READ_BYTES, isolation=isolation)
        if read.region is None:
            return found
        data = read.region.read()
        read.region.release()
        for each in batches(data):
            found += [
                (record.offset, each.partition_leader_epoch, bytes(record.value or b"")) for record in each.records()
            ]
            position = each.last_offset + 1


def content(log: Log) -> bytes:
    """Return the bytes of a log's segments."""
    return b"".join(segment.log.file.pread(segment.size, 0) for segment in log.segments)
