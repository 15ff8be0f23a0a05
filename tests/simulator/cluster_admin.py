"""An administrator of a simulated cluster: once all is healed, each kind of administration call has to get done.

A topic of its own is created, configured, enlarged, moved, led by its preferred replicas, written to, deleted. A call
is repeated until it was answered without an error, or with the one that says that an earlier call did it; then its
effect has to be seen in the metadata of every node.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Any, Final

from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from tests.simulator.cluster_checker import MIN_ISR, ClusterChecker
from tests.simulator.cluster_clients import Client, Connections, LostError, produce_request
from tests.simulator.cluster_plan import Plan
from tests.simulator.cluster_transactions import errors_in
from tests.simulator.cluster_transactions import topics as topics_of_transactions
from tests.simulator.cluster_world import ClusterWorld
from tests.simulator.loop import START_WALL_MS
from tests.support.batches import build_batch

MADE: Final = "made"
TOPIC_RESOURCE: Final = 2
RETENTION_MS: Final = "86400123"
CALL_MS: Final = 2000
DONE_OR_EXISTS: Final = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


class Administrator(Client):
    """`doing`: the step under way; `last_codes`: the errors of its last response."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker) -> None:
        super().__init__(world, checker, "administrator", 98)
        self.doing = ""
        self.last_codes: list[int] = []
        self._target: list[int] = []

    async def run(self) -> None:
        """Do each step once."""
        steps: Sequence[Callable[[], Awaitable[None]]] = (
            self.create_topic,
            self.alter_config,
            self.create_partitions,
            self.reassign,
            self.elect_leaders,
            self.produce,
            self.delete_topic,
        )
        for step in steps:
            self.doing = step.__name__.replace("_", " ")
            await step()
        self.connections.close()

    async def create_topic(self) -> None:
        configs = [CreatableTopicConfig("min.insync.replicas", value=str(MIN_ISR))]
        topic = CreatableTopic(MADE, num_partitions=1, replication_factor=2, configs=configs)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=CALL_MS)
        await self._call(request, ErrorCode.TOPIC_ALREADY_EXISTS)
        await self._seen(lambda made: len(made) == 1 and self._is_served(made))

    async def alter_config(self) -> None:
        config = AlterableConfig("retention.ms", config_operation=0, value=RETENTION_MS)
        resource = AlterConfigsResource(TOPIC_RESOURCE, resource_name=MADE, configs=[config])
        await self._call(IncrementalAlterConfigsRequest([resource]))
        for computer in self.world.brokers:
            while await self._config(computer.node_id) != RETENTION_MS:
                await self.pause()

    async def _config(self, node_id: int) -> str | None:
        """Return what a broker says of the topic's config, None if it does not answer."""
        request = DescribeConfigsRequest(
            [DescribeConfigsResource(TOPIC_RESOURCE, resource_name=MADE, configuration_keys=["retention.ms"])]
        )
        try:
            (result,) = (await self.connections.call(node_id, request)).results
        except LostError:
            return None
        self.last_codes = [result.error_code]
        return result.configs[0].value if result.configs else None

    async def create_partitions(self) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(MADE, count=2, assignments=None)], timeout_ms=CALL_MS)
        await self._call(request, ErrorCode.INVALID_PARTITIONS)
        await self._seen(lambda made: len(made) == 2 and self._is_served(made))

    async def reassign(self) -> None:
        """Move the first partition to its leader and another broker, which is preferred to it."""
        leader_id = self._made()[0].leader
        others = [each.node_id for each in self.world.brokers if each.node_id not in self._made()[0].replicas]
        self._target = [*others[:1], leader_id] if leader_id > 0 else list(self._made()[0].replicas)
        topic = ReassignableTopic(MADE, partitions=[ReassignablePartition(0, replicas=self._target)])
        await self._call(AlterPartitionReassignmentsRequest(timeout_ms=CALL_MS, topics=[topic]))
        await self._seen(lambda made: list(made[0].replicas) == self._target and self._is_served(made))

    async def elect_leaders(self) -> None:
        request = ElectLeadersRequest(
            0, topic_partitions=[TopicPartitions(MADE, partitions=[0, 1])], timeout_ms=CALL_MS
        )
        await self._call(request, ErrorCode.ELECTION_NOT_NEEDED)
        await self._seen(lambda made: all(each.leader == each.replicas[0] for each in made.values()))

    async def produce(self) -> None:
        for partition in (0, 1):
            while not await self._is_written(partition):
                await self.pause()

    async def _is_written(self, partition: int) -> bool:
        try:
            place = await self.place(MADE, partition)
            data = build_batch([(START_WALL_MS + self.world.loop.now_ms(), None, b"made", ())])
            response = await self.connections.call(place.leader_id, produce_request(place, MADE, partition, data))
        except LostError:
            self.forget_place(MADE, partition)
            return False
        self.last_codes = [each for each in errors_in(response) if each]
        if self.last_codes:
            self.forget_place(MADE, partition)
        return not self.last_codes

    async def delete_topic(self) -> None:
        request = DeleteTopicsRequest([DeleteTopicState(MADE)], timeout_ms=CALL_MS)
        await self._call(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        await self._seen(lambda made: not made)

    # -- calls ------------------------------------------------------------------------------------------------------

    async def _call(self, request: Any, *done_codes: int) -> None:
        """Send a request until it is answered without an error. done_codes: an earlier attempt has done it."""
        attempts = 0
        while True:
            attempts += 1
            try:
                response = await self.connections.send_to_any(request)
            except LostError:
                await self.pause()
                continue
            is_repeated = attempts > 1 or ErrorCode.ELECTION_NOT_NEEDED in done_codes
            accepted = {ErrorCode.NONE, *done_codes} if is_repeated else {ErrorCode.NONE}
            self.last_codes = [code for code in errors_in(response) if code not in accepted]
            if not self.last_codes:
                return
            await self.pause()

    async def _seen(self, holds: Callable[[dict[int, PartitionRegistration]], bool]) -> None:
        """Wait until something holds for the topic's partitions in the metadata of every node."""
        while not all(holds(dict(made)) for made in self._made_everywhere()):
            await asyncio.sleep(0.02)

    def _made_everywhere(self) -> list[dict[int, PartitionRegistration]]:
        images = [computer.image for computer in self.world.computers.values()]
        topics = [image.topics.by_name.get(MADE) if image is not None else None for image in images]
        return [dict(topic.partitions) if topic is not None else {} for topic in topics]

    def _made(self) -> dict[int, PartitionRegistration]:
        image = self.world.image()
        assert image is not None
        return dict(image.topics.by_name[MADE].partitions)

    def _is_served(self, made: dict[int, PartitionRegistration]) -> bool:
        """Whether each partition has a leader, all replicas are in sync and none moves."""
        return all(
            each.leader > 0
            and set(each.isr) == set(each.replicas)
            and not each.adding_replicas
            and not each.removing_replicas
            for each in made.values()
        )


async def create_topics(connections: Connections, plan: Plan, name: str, moved: str) -> None:
    """Create a run's topics: those of its clients, of which `moved` has two replicas, and the coordinators'."""
    configs = [CreatableTopicConfig("min.insync.replicas", value=str(plan.min_isr))]
    of_clients = [*configs, *([CreatableTopicConfig("flush.messages", value="2")] if plan.flushes_often else [])]
    of_clients += [CreatableTopicConfig(key, value=value) for key, value in plan.topic_configs]
    of_coordinator = [*configs, CreatableTopicConfig("cleanup.policy", value="compact")]
    of_coordinator += [CreatableTopicConfig(key, value=value) for key, value in plan.offsets_configs]
    topics = [
        CreatableTopic(name=name, num_partitions=2, replication_factor=3, configs=of_clients),
        CreatableTopic(name=moved, num_partitions=1, replication_factor=2, configs=of_clients),
        CreatableTopic(name="__consumer_offsets", num_partitions=1, replication_factor=3, configs=of_coordinator),
    ]
    if plan.has_transactions:
        topics += topics_of_transactions(MIN_ISR)
    while True:
        with suppress(LostError):
            response = await connections.send_to_any(CreateTopicsRequest(topics=topics, timeout_ms=5000))
            if all(topic.error_code in DONE_OR_EXISTS for topic in response.topics):
                return
        await asyncio.sleep(0.2)
