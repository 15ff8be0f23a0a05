"""A broker's group coordinator over partitions on a simulated disk, on a virtual-time loop."""

from typing import Any

from kafkapy.group.settings import OFFSETS_TOPIC, GroupSettings
from kafkapy.metadata.delta import difference
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest
from kafkapy.protocol.messages.offset_commit_response import OffsetCommitResponse
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkapy.runtime.coordinators.group_coordinator import GroupCoordinator
from tests.support.chance import SeededRandom
from tests.support.hosting import Hosting

GROUP = "readers"


class GroupHosting(Hosting):
    """As Hosting, with `groups`; `create_offsets_topic` makes this node the coordinator."""

    groups: GroupCoordinator

    def _load(self) -> None:
        super()._load()
        self.groups = GroupCoordinator(
            replica_manager=self.manager,
            settings=GroupSettings(lambda: self.config.group, share_config=lambda: self.config.share),
            clock=self.clock,
            random=SeededRandom(),
            wheel=self.wheel,
            io_pool=self.io_pool,
            persister=self._group_persister,
        )

    def _group_persister(self) -> Any:
        """Return what keeps the states of share groups' partitions."""
        raise AssertionError("there is none")

    def _publish(self, before: MetadataImage) -> None:
        super()._publish(before)
        for _ in self.groups.apply_delta(difference(before, self.cluster.image), self.cluster.image):
            pass

    def create_offsets_topic(self, partition_count: int = 1, **options: Any) -> Any:
        return self.create_topic(OFFSETS_TOPIC, partition_count, **options)

    async def commit_offset(
        self, offset: int, *, topic: str = "orders", partition: int = 0, group_id: str = GROUP, **fields: Any
    ) -> list[int]:
        """Commit one offset; return the error codes."""
        request = commit_request(offset, topic=topic, partition=partition, group_id=group_id, **fields)
        response: OffsetCommitResponse = await self.groups.commit_offsets(
            group_id, lambda shard, token, now_ms: shard.offsets.commit(request, 9, now_ms)
        )
        return [each.error_code for topic in response.topics for each in topic.partitions]

    async def committed_offset(
        self, *, topic: str = "orders", partition: int = 0, group_id: str = GROUP, require_stable: bool = False
    ) -> int:
        requested = OffsetFetchRequestGroup(
            group_id, topics=[OffsetFetchRequestTopics(topic, topic_id=bytes(16), partition_indexes=[partition])]
        )
        response = await self.groups.read(
            group_id, lambda shard: shard.offsets.fetch(requested, require_stable=require_stable)
        )
        return response.topics[0].partitions[0].committed_offset


def commit_request(
    offset: int,
    *,
    topic: str = "orders",
    partition: int = 0,
    group_id: str = GROUP,
    topic_id: bytes = bytes(16),
    metadata: str | None = "",
    **fields: Any,
) -> OffsetCommitRequest:
    from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequestPartition, OffsetCommitRequestTopic

    requested = OffsetCommitRequestPartition(partition, committed_offset=offset, committed_metadata=metadata)
    topics = [OffsetCommitRequestTopic(topic, topic_id=topic_id, partitions=[requested])]
    return OffsetCommitRequest(group_id=group_id, topics=topics, **fields)
