"""Share partitions of a hosted broker, with a persister in memory: what the share handlers are tested against."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafkapy.config.share import ShareConfig
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.share import share_acknowledge, share_fetch
from kafkapy.metadata.image import SHARE_VERSION
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.feature_level_record import FeatureLevelRecord
from kafkapy.protocol.messages.share_acknowledge_request import (
    AcknowledgementBatch as WireBatch,
)
from kafkapy.protocol.messages.share_acknowledge_request import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from kafkapy.protocol.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batches import batches
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.runtime.share.dead_letters import DeadLetters
from kafkapy.runtime.share.share_partitions import SharePartitions, ShareParts
from kafkapy.seams import FileRegion
from kafkapy.share.group_settings import group_share_settings
from kafkapy.share.persister import (
    InitialState,
    PartitionResult,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting, batch, topic_id

PEER = ConnectionInfo("10.0.0.1:9092-10.0.0.3:4000-0", "PLAINTEXT", "PLAINTEXT", "10.0.0.3", 4000)
Acks = Mapping[int, Sequence[tuple[int, int, Sequence[int]]]]
"""By partition: first offset, last offset, types."""


class MemoryPersister:
    """Keeps writes in order. `errors`: codes of the next calls; while `gate` is not set, writes wait."""

    def __init__(self) -> None:
        self.start_offsets: dict[tuple[str, TopicIdPartition], int] = {}
        self.writes: list[StateWrite] = []
        self.read_count = 0
        self.errors: list[ErrorCode] = []
        self.gate = asyncio.Event()
        self.gate.set()

    def _error(self) -> ErrorCode:
        return self.errors.pop(0) if self.errors else ErrorCode.NONE

    async def initialize(self, group_id: str, states: Sequence[InitialState]) -> list[PartitionResult]:
        raise NotImplementedError

    async def read(self, group_id: str, reads: Sequence[StateRead]) -> list[StateReadResult]:
        self.read_count += 1
        results = []
        for read in reads:
            start = self.start_offsets.get((group_id, TopicIdPartition(read.topic_id, read.partition)), -1)
            written = [
                each
                for write in self.writes
                if (write.topic_id, write.partition) == (read.topic_id, read.partition)
                for each in write.state_batches
            ]
            latest = {offset: each for each in written for offset in range(each.first_offset, each.last_offset + 1)}
            kept = [latest[offset]._replace(first_offset=offset, last_offset=offset) for offset in sorted(latest)]
            kept = [each for each in kept if each.first_offset >= max(start, 0)]
            results.append(
                StateReadResult(read.topic_id, read.partition, self._error(), start_offset=start, state_batches=kept)
            )
        return results

    async def write(self, group_id: str, writes: Sequence[StateWrite]) -> list[PartitionResult]:
        await self.gate.wait()
        results = []
        for write in writes:
            code = self._error()
            if code == ErrorCode.NONE:
                self.writes.append(write)
                self.start_offsets[group_id, TopicIdPartition(write.topic_id, write.partition)] = write.start_offset
            results.append(PartitionResult(write.topic_id, write.partition, code))
        return results

    async def delete(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[PartitionResult]:
        raise NotImplementedError

    async def read_summary(self, group_id: str, partitions: Sequence[TopicIdPartition]) -> list[StateSummary]:
        raise NotImplementedError


def share_partitions_of(
    hosting: Any,
    persister: Callable[[], Any],
    own: Mapping[str, str],
    max_sessions: int = 10,
    dead_letters: DeadLetters | None = None,
) -> SharePartitions:
    """Return the share partitions of a hosted broker. own: keys of every group, which may change."""
    share_version = 1 if dead_letters is None else 2
    parts = ShareParts(
        persister=persister,
        settings=lambda group_id: group_share_settings(ShareConfig(), own, share_version),
        clock=hosting.clock,
        wheel=hosting.wheel,
        io_pool=hosting.io_pool,
        replica_manager=hosting.manager,
        dead_letters=dead_letters,
    )
    return SharePartitions(parts, max_sessions)


class Shares:
    """A broker with the topic `orders`, and requests to its share handlers. Made inside a running SimLoop."""

    def __init__(
        self,
        loop: SimLoop,
        *,
        partition_count: int = 1,
        authorizer: Any = None,
        max_sessions: int = 10,
        properties: Mapping[str, Any] | None = None,
        **own: str,
    ) -> None:
        """properties: of the broker. own: keys of every group, with underscores for dots."""
        self.hosting = Hosting(loop, **(properties or {}))
        self.hosting.commit(FeatureLevelRecord(name=SHARE_VERSION, feature_level=1))
        self.hosting.create_topic(partition_count=partition_count)
        self.persister = MemoryPersister()
        self.own = {"share.auto.offset.reset": "earliest"} | {key.replace("_", "."): own[key] for key in own}
        self.partitions = share_partitions_of(self.hosting, lambda: self.persister, self.own, max_sessions)
        self.services = self.hosting.services(authorizer)
        self.services.share_partitions = lambda: self.partitions
        self.loop = loop

    def produce(self, *values: bytes, partition: int = 0, **fields: Any) -> None:
        self.hosting.append(batch(*values, **fields), partition_id=partition)

    def hosted(self, partition: int = 0) -> HostedPartition:
        found = self.hosting.manager.partitions.find("orders", partition)
        assert found is not None
        return found

    def member(self, name: str = "m1", *, group: str = "g", connection: str = "c1") -> "Member":
        return Member(self.services, topic_id("orders"), name, group=group, connection=connection)


class Member:
    """A member with a session for one topic; it counts the session epoch."""

    def __init__(
        self, services: Any, topic_id: bytes, name: str = "m1", *, group: str = "g", connection: str = "c1"
    ) -> None:
        self.services = services
        self.topic_id = topic_id
        self.name, self.group = name, group
        self.peer = replace(PEER, connection_id=connection)
        self.epoch = 0

    def context(self, api_key: int, version: int) -> RequestContext:
        return RequestContext(RequestHeader(api_key, version, 1, "tester"), self.peer)

    async def fetch(
        self,
        *partitions: int,
        acks: Acks | None = None,
        forgotten: Sequence[int] = (),
        version: int = 2,
        **fields: Any,
    ) -> Any:
        """Return the response as a client reads it. Partition 0 is named in the first request unless told."""
        acks = acks or {}
        named = partitions or ((0,) if self.epoch == 0 else ())
        parts = [
            FetchPartition(
                number,
                acknowledgement_batches=[
                    AcknowledgementBatch(first, last_offset=last, acknowledge_types=list(types))
                    for first, last, types in acks.get(number, ())
                ],
            )
            for number in dict.fromkeys([*named, *acks])
        ]
        defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "max_records": 500, "batch_size": 500}
        request = ShareFetchRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=fields.pop("epoch", self.epoch),
            topics=[FetchTopic(self.topic_id, partitions=parts)] if parts else [],
            forgotten_topics_data=[ForgottenTopic(self.topic_id, partitions=list(forgotten))] if forgotten else [],
            **{**defaults, **fields},
        )
        if self.epoch >= 0:
            self.epoch += 1
        response = await share_fetch.handle(self.services, self.context(78, version), request)
        for topic in response.responses:
            for part in topic.partitions:
                if isinstance(part.records, FileRegion):
                    region, part.records = part.records, part.records.read()
                    region.release()
        return type(response).decode(response.encode(version), version)

    async def acquire(self, *partitions: int, **fields: Any) -> list[tuple[int, int, int]]:
        """Fetch, and return what was acquired of all partitions, after letting a load end."""
        response = await self.fetch(*partitions, **{"max_wait_ms": 1000, **fields})
        return acquired_of(response)

    async def acknowledge(self, acks: Acks, *, version: int = 2, **fields: Any) -> Any:
        request = ShareAcknowledgeRequest(
            group_id=self.group,
            member_id=self.name,
            share_session_epoch=fields.pop("epoch", self.epoch),
            topics=[
                AcknowledgeTopic(
                    self.topic_id,
                    partitions=[
                        AcknowledgePartition(
                            number,
                            acknowledgement_batches=[
                                WireBatch(first, last_offset=last, acknowledge_types=list(types))
                                for first, last, types in of_partition
                            ],
                        )
                        for number, of_partition in acks.items()
                    ],
                )
            ],
            **fields,
        )
        self.epoch += 1
        response = await share_acknowledge.handle(self.services, self.context(79, version), request)
        return type(response).decode(response.encode(version), version)


def parts_of(response: Any) -> list[Any]:
    return [part for topic in response.responses for part in topic.partitions]


def acquired_of(response: Any) -> list[tuple[int, int, int]]:
    return [
        (each.first_offset, each.last_offset, each.delivery_count)
        for part in parts_of(response)
        for each in part.acquired_records
    ]


def spans(part: Any) -> list[tuple[int, int]]:
    """The base and last offsets of the batches of a response."""
    return [(each.base_offset, each.last_offset) for each in batches(part.records)]
