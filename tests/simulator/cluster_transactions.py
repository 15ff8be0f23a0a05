"""Transactional clients of a simulated cluster, and members of groups of both kinds, whose offsets they commit.

The clients are those of transaction_clients.py and transaction_members.py; here each request finds its own way to the
leader or coordinator it is for. What they did and saw is judged by tests/support/history_checker.py in the end.
"""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from random import Random
from typing import Any, ClassVar, Final

from kafkapy.protocol.message import MessageStruct
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequest
from kafkapy.protocol.messages.produce_request import ProduceRequest
from tests.simulator import transaction_members
from tests.simulator.cluster_checker import ClusterChecker, ViolationError
from tests.simulator.cluster_clients import Client, Connections, LostError
from tests.simulator.cluster_world import ClusterWorld
from tests.simulator.loop import START_WALL_MS
from tests.simulator.transaction_clients import (
    PARTITION_COUNT,
    TIMEOUT_MS,
    TOPICS,
    Lost,
    Membership,
    Stage,
    TransactionClient,
    TransactionReader,
)
from tests.simulator.transaction_crashes import look_at_all
from tests.simulator.transaction_members import ClassicMember, ModernMember, SwitchingMember
from tests.support.client_requests import READ_COMMITTED
from tests.support.history import Limit, Observe
from tests.support.history_checker import find_anomalies

GROUP, TRANSACTION = 0, 1
"""Types of coordinators."""
PROPERTIES: Final = {
    **transaction_members.PROPERTIES,
    "transaction_abort_timed_out_transaction_cleanup_interval_ms": "500",
}
PATIENCE_S: Final = 60.0


def topics(min_isr: int) -> list[CreatableTopic]:
    """Return the topics that the clients need."""
    configs = [CreatableTopicConfig("min.insync.replicas", value=str(min_isr))]
    return [
        *(
            CreatableTopic(name, num_partitions=PARTITION_COUNT, replication_factor=3, configs=configs)
            for name in TOPICS
        ),
        CreatableTopic(
            "__transaction_state",
            num_partitions=1,
            replication_factor=3,
            configs=[*configs, CreatableTopicConfig("cleanup.policy", value="compact")],
        ),
    ]


class ClusterStage(Stage):
    """What the transactional clients of a cluster share; their clocks are right."""

    def __init__(self, world: ClusterWorld) -> None:
        super().__init__()
        self.world = world
        self._connection_count = 0

    def wall_ms(self) -> int:
        return START_WALL_MS + self.world.loop.now_ms()

    def new_connection(self, random: Random, *, lost_share: float) -> "RoutedConnections":
        self._connection_count += 1
        return RoutedConnections(self.world, f"10.2.0.{self._connection_count}", random, lost_share)


class RoutedConnections:
    """Sends each request to whom it is for, as far as the client knows."""

    def __init__(self, world: ClusterWorld, host: str, random: Random, lost_share: float) -> None:
        self._connections = Connections(world, host, host)
        self._random = random
        self._lost_share = lost_share
        self._nodes: dict[tuple[Any, ...], int] = {}
        """Whom to ask, by what is asked for."""

    async def send_request(self, request: Any, version: int) -> Any:
        """Send a request and return its response. Raises Lost."""
        what = purpose_of(request)
        try:
            node_id = await self._find(what)
            response = await self._connections.call(node_id, request, version)
            if self._random.random() < self._lost_share:
                self._connections.drop(node_id)
                raise LostError("lost by the client")
        except LostError as error:
            self._nodes.pop(what, None)
            raise Lost from error
        if any(errors_in(response)):
            self._nodes.pop(what, None)
        return response

    async def call(self, request: Any, version: int) -> Any:
        """Ask until there is a response without an error."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                with suppress(Lost):
                    response = await self.send_request(request, version)
                    if not any(errors_in(response)):
                        return response
                await asyncio.sleep(0.1)

    async def _find(self, what: tuple[Any, ...]) -> int:
        if what not in self._nodes:
            find = self._find_coordinator if isinstance(what[0], int) else self._find_leader
            self._nodes[what] = await find(*what)
        return self._nodes[what]

    async def _find_coordinator(self, key_type: int, key: str) -> int:
        request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
        (found,) = (await self._connections.send_to_any(request)).coordinators
        if found.error_code or found.node_id < 0:
            raise LostError(found.error_code)
        return int(found.node_id)

    async def _find_leader(self, topic: str, partition: int) -> int:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        for each in (await self._connections.send_to_any(request)).topics[0].partitions:
            if each.partition_index == partition and each.leader_id > 0:
                return int(each.leader_id)
        raise LostError(f"nobody leads {topic}-{partition}")


def purpose_of(request: Any) -> tuple[Any, ...]:
    """Return (topic, partition) of a request to a leader, else the coordinator's type and key."""
    if isinstance(request, ProduceRequest):
        (topic,) = request.topic_data
        return topic.name, topic.partition_data[0].index
    if isinstance(request, FetchRequest):
        (requested,) = request.topics
        return requested.topic, requested.partitions[0].partition
    if isinstance(request, OffsetFetchRequest):
        return GROUP, request.groups[0].group_id
    if hasattr(request, "member_id"):
        return GROUP, request.group_id
    return TRANSACTION, getattr(request, "transactional_id", "") or request.v3_and_below_transactional_id


def errors_in(response: Any) -> Iterator[int]:
    """Yield the error codes of a response and of its parts."""
    if isinstance(response, list | tuple):
        for each in response:
            yield from errors_in(each)
    elif isinstance(response, MessageStruct):
        for name in response.field_names():
            value = getattr(response, name)
            if name.endswith("error_code"):
                yield value
            else:
                yield from errors_in(value)


class ClusterClassicMember(ClassicMember):
    """Nothing is said of generations: one that was not synced may come again after the coordinator's death."""

    def _note_generation(self, generation_id: int) -> None:
        return

    def is_behind(self, epoch: int) -> bool:
        return False


MEMBERS: Final[Sequence[tuple[Callable[..., Membership], ...]]] = (
    (ClusterClassicMember, ModernMember),
    (SwitchingMember, ModernMember),
)
"""What the clients' members are: those of even seeds, and of odd ones."""


class Transactor(Client):
    """A transactional producer of KIP-890, and the member of a group for which it commits offsets."""

    enough_progress: ClassVar[int] = 2
    """And one more transaction in the end."""

    def __init__(
        self,
        world: ClusterWorld,
        checker: ClusterChecker,
        stage: ClusterStage,
        name: str,
        member: Callable[..., Membership],
    ) -> None:
        super().__init__(world, checker, name, 0)
        random = Random(f"{world.seed} {name}")
        self._client = TransactionClient(
            stage,
            name,
            instance=0,
            is_v2=True,
            numbers=[1],
            random=random,
            membership=member(stage, f"group-of-{name}", name, Random(f"{world.seed} member {name}")),
        )

    async def step(self) -> None:
        await self._client.step()
        self.progress = self._client.committed_count

    async def finish(self) -> None:
        """End what is under way, and commit another transaction."""
        async with asyncio.timeout(PATIENCE_S):
            await self._client.finish_one()


class CommittedReader(Client):
    """Reads all partitions under read_committed, and the groups' committed offsets."""

    enough_progress: ClassVar[int] = 2

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, stage: ClusterStage, names: Sequence[str]) -> None:
        super().__init__(world, checker, "committed", 0)
        self._stage = stage
        random = Random(f"{world.seed} reader")
        self._reader = TransactionReader(stage, "committed", READ_COMMITTED, random, names)

    async def step(self) -> None:
        before = len(self._stage.history)
        await self._reader.read_all()
        self.progress += len(self._stage.history) > before
        await asyncio.sleep(0.4)


class TransactionClients:
    """All of them, and the look at the end."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, count: int) -> None:
        """count: of transactional producers."""
        self._stage = ClusterStage(world)
        self._random = Random(world.seed)
        members = MEMBERS[world.seed % len(MEMBERS)]
        if count < len(members):
            members = (members[world.seed // 2 % len(members)],)
        self._names = [f"t-{number}" for number in range(len(members))]
        self.transactors = [
            Transactor(world, checker, self._stage, name, member)
            for name, member in zip(self._names, members, strict=True)
        ]
        self.reader = CommittedReader(world, checker, self._stage, self._names)

    async def finish(self) -> None:
        """Check what was seen on the way, and what is there in the end. All is healed, and the clients have stopped."""
        for transactor in self.transactors:
            await transactor.finish()
        await asyncio.sleep(2 * TIMEOUT_MS / 1000)
        connections = self._stage.new_connection(self._random, lost_share=0.0)
        history = self._stage.history
        history += await look_at_all(connections, self._stage, self._names)  # type: ignore[arg-type]
        # a new leader may know of a lower high watermark than the former one, for a while, as Apache Kafka's
        kept = [each for each in history if not isinstance(each, Observe) or each.limit is Limit.COMMITTED_OFFSET]
        if anomalies := find_anomalies(kept):
            raise ViolationError(f"transactions: {anomalies[:3]}")
