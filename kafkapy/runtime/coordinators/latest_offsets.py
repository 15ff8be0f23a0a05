"""Looks up the latest offsets of partitions at the brokers that lead them: the high watermark, as in ListOffsets."""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.dataclass import dataclass
from kafkapy.metadata.registrations import NO_LEADER
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.list_offsets_response import ListOffsetsResponse
from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.peer import NoResponseError
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.runtime.broker_channels import BrokerChannels

LIST_OFFSETS: Final = 2
VERSIONS: Final = (7, 9)
LATEST_TIMESTAMP: Final = -1
NO_REPLICA: Final = -1
NO_OFFSET: Final = -1
PARTITIONS_PER_REQUEST: Final = 10_000

logger = logging.getLogger("kafkapy.group")


@dataclass(frozen=True, slots=True)
class LatestOffset:
    """The next offset of a partition to be committed; with an error code it is NO_OFFSET."""

    offset: int = NO_OFFSET
    error_code: int = ErrorCode.NONE


class LatestOffsets:
    """Reads the offsets of partitions led here, and asks the brokers that lead the others."""

    def __init__(
        self, replica_manager: ReplicaManager, new_channels: "Callable[[], BrokerChannels] | None", *, timeout_ms: int
    ) -> None:
        """`new_channels` is called once, for the first partition that another broker leads.

        Without it their error code is NOT_LEADER_OR_FOLLOWER. `timeout_ms`: of a request to another broker.
        """
        self._replica_manager = replica_manager
        self._new_channels = new_channels
        self._channels: BrokerChannels | None = None
        self._timeout_ms = timeout_ms

    async def read(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, LatestOffset]:
        """Return the latest offset of each partition, or why there is none."""
        found: dict[TopicPartition, LatestOffset] = {}
        elsewhere: dict[int, list[TopicPartition]] = {}
        for partition in partitions:
            leader = self._leader(partition)
            if leader == self._replica_manager.node_id:
                found[partition] = self._local(partition)
            elif leader == NO_LEADER:
                found[partition] = LatestOffset(error_code=ErrorCode.LEADER_NOT_AVAILABLE)
            elif self._new_channels is None:
                found[partition] = LatestOffset(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
            else:
                elsewhere.setdefault(leader, []).append(partition)
        for responses in await asyncio.gather(*(self._ask(leader, some) for leader, some in elsewhere.items())):
            found.update(responses)
        return found

    def _leader(self, partition: TopicPartition) -> int:
        topic = self._replica_manager.partitions.newest_image.topics.by_name.get(partition.topic)
        registration = None if topic is None else topic.partitions.get(partition.partition)
        return NO_LEADER if registration is None else registration.leader

    def _local(self, partition: TopicPartition) -> LatestOffset:
        hosted = self._replica_manager.partitions.find(partition.topic, partition.partition)
        if hosted is None or hosted.role is not Role.LEADER or hosted.log is None:
            return LatestOffset(error_code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return LatestOffset(hosted.log.high_watermark)

    async def _ask(self, broker_id: int, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, LatestOffset]:
        responses: dict[TopicPartition, LatestOffset] = {}
        for start in range(0, len(partitions), PARTITIONS_PER_REQUEST):
            some = partitions[start : start + PARTITIONS_PER_REQUEST]
            responses |= dict.fromkeys(some, LatestOffset(error_code=ErrorCode.NETWORK_EXCEPTION))
            responses |= await self._exchange(broker_id, some)
        return responses

    async def _exchange(
        self, broker_id: int, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, LatestOffset]:
        if self._channels is None:
            assert self._new_channels is not None
            self._channels = self._new_channels()
        try:
            response = await self._channels.send_request(
                broker_id,
                LIST_OFFSETS,
                lambda _version: _request(partitions),
                versions=VERSIONS,
                timeout_ms=self._timeout_ms,
            )
        except NoResponseError as error:
            logger.info("Could not ask for the latest offsets of %d partitions: %s", len(partitions), error)
            return {}
        assert isinstance(response, ListOffsetsResponse)
        return dict(_responses(response))


def _request(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(
            ListOffsetsPartition(partition_index=partition.partition, timestamp=LATEST_TIMESTAMP)
        )
    topics = [ListOffsetsTopic(name, partitions=requested) for name, requested in by_topic.items()]
    return ListOffsetsRequest(NO_REPLICA, topics=topics)


def _responses(response: ListOffsetsResponse) -> Iterator[tuple[TopicPartition, LatestOffset]]:
    for topic in response.topics:
        for partition in topic.partitions:
            latest = LatestOffset(partition.offset, partition.error_code)
            yield TopicPartition(topic.name, partition.partition_index), latest
