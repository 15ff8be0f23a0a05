"""Fetch 0-3: what is read is converted to message sets of magic 0 (v0, v1) or 1 (v2, v3). v1: throttle time, v3:
max.bytes and at least one batch (KIP-74).

Converted in the IO pool. Where all that was read are control batches, the next ones are read, so that the consumer can
go on. Deviation: before v3, too, a batch larger than max.partition.bytes is returned whole, not cut to a consumer's
endless despair.
"""

from copy import copy
from functools import partial
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers import fetch
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.protocol.messages.fetch_response import PartitionData as Read
from kafkapy.protocol.messages.legacy_fetch_request import FetchPartition as LegacyPartition
from kafkapy.protocol.messages.legacy_fetch_request import LegacyFetchRequest
from kafkapy.protocol.messages.legacy_fetch_response import (
    FetchableTopicResponse,
    LegacyFetchResponse,
    PartitionData,
)
from kafkapy.record.batch import batches
from kafkapy.record.convert import down_convert
from kafkapy.replication.fetch_read import release_records
from kafkapy.runtime.pool import run_in_pool
from kafkapy.seams import FileRegion

OLDEST_SERVED: Final = 4
MAGIC_1_SINCE: Final = 2


async def handle(services: Services, context: RequestContext, request: LegacyFetchRequest) -> LegacyFetchResponse:
    conversion = _Conversion(services, context)
    served = FetchRequest(
        replica_id=request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=request.max_bytes,
        topics=[FetchTopic(topic=topic.topic, partitions=_served(topic.partitions)) for topic in request.topics],
    )
    response = await conversion.fetch(served)
    asked = {(t.topic, p.partition): p for t in request.topics for p in t.partitions}
    try:
        return LegacyFetchResponse(
            responses=[
                FetchableTopicResponse(
                    topic.topic,
                    [
                        await conversion.convert(topic.topic, asked[topic.topic, read.partition_index], read)
                        for read in topic.partitions
                    ],
                )
                for topic in response.responses
            ]
        )
    finally:
        for topic in response.responses:
            for read in topic.partitions:
                release_records(read)


def _served(partitions: list[LegacyPartition]) -> list[FetchPartition]:
    return [
        FetchPartition(partition=p.partition, fetch_offset=p.fetch_offset, partition_max_bytes=p.partition_max_bytes)
        for p in partitions
    ]


class _Conversion:
    """What is the same for all partitions of a request."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._context = context.at_version(OLDEST_SERVED)
        self._magic = 1 if context.api_version >= MAGIC_1_SINCE else 0

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        return await fetch.handle(self._services, self._context, request)

    async def convert(self, topic: str, asked: LegacyPartition, read: Read) -> PartitionData:
        """Return what the consumer gets of a partition; its region is released."""
        answer = PartitionData(read.partition_index, read.error_code, read.high_watermark, b"")
        while isinstance(read.records, FileRegion):
            try:
                work = partial(_convert, read.records, self._magic, asked.fetch_offset)
                records, next_offset = await run_in_pool(self._services.io_pool, work)
            except ApiError as error:
                answer.error_code = error.code
                return answer
            except OSError:
                answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return answer
            finally:
                release_records(read)
            if records:
                answer.records = records
                return answer
            asked = copy(asked)
            asked.fetch_offset = next_offset
            again = await self.fetch(FetchRequest(topics=[FetchTopic(topic=topic, partitions=_served([asked]))]))
            read = again.responses[0].partitions[0]
        return answer


def _convert(region: FileRegion, magic: int, first_offset: int) -> tuple[bytes, int]:
    """Return the messages of a region and the offset behind it; runs on a worker."""
    data = region.read()
    next_offset = max((batch.last_offset + 1 for batch in batches(data)), default=first_offset + 1)
    return down_convert(data, magic, first_offset), next_offset
