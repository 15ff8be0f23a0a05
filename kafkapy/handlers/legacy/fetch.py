"""Fetch 0-3: records are converted to message sets of magic 0 (v0, v1) or 1 (v2, v3). v1: throttle time, v3: max.bytes
and at least one batch (KIP-74).

The conversion runs in the IO pool. If only control batches were read, the next batches are read, so that the consumer
makes progress. Deviation: Apache Kafka cuts a batch larger than max.partition.bytes before v3. Here it is returned
whole, because the consumer would be stuck. Deviation: Apache Kafka converts lazily, as the peer reads. Here a response
has about MAX_CONVERTED_BYTES at most, less if much converted data waits for slow peers, because it is converted at
once; the consumer fetches the rest.
"""

import asyncio
from copy import copy
from functools import partial
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data import fetch
from kafkapy.handlers.legacy.conversions import region_of, run_conversion
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
from kafkapy.record.batches import batches
from kafkapy.record.compression import MAX_APPENDED_BYTES, MAX_DECOMPRESSED_BYTES
from kafkapy.record.convert import down_convert
from kafkapy.runtime.pool import SMALL_RESPONSE_BYTES
from kafkapy.seams import FileRegion
from kafkapy.storage.workers import give_way

OLDEST_SERVED: Final = 4
MAGIC_1_SINCE: Final = 2
MAX_CONVERTED_BYTES: Final = 8 << 20
"""The limit per response: converted data stays in memory until the peer has read it."""
NO_ROOM_PAUSE_S: Final = 0.25
"""The delay of an empty response if there is no memory for it, because slow peers have not read theirs."""


async def handle(services: Services, context: RequestContext, request: LegacyFetchRequest) -> LegacyFetchResponse:
    conversion = _Conversion(services, context)
    served = FetchRequest(
        replica_id=request.replica_id,
        max_wait_ms=request.max_wait_ms,
        min_bytes=request.min_bytes,
        max_bytes=min(request.max_bytes, conversion.bytes_left),
        topics=[FetchTopic(topic=topic.topic, partitions=_served(topic.partitions)) for topic in request.topics],
    )
    response = await conversion.fetch(served)
    requested = {(t.topic, p.partition): p for t in request.topics for p in t.partitions}
    legacy_response = LegacyFetchResponse()
    try:
        for topic in response.responses:
            converted = FetchableTopicResponse(topic.topic)
            legacy_response.responses.append(converted)
            for read in topic.partitions:
                converted.partitions.append(
                    await conversion.convert(topic.topic, requested[topic.topic, read.partition_index], read)
                )
    except BaseException:  # cancelled or failed: nobody sends what was converted, so nobody else lets go of its files
        for converted in legacy_response.responses:
            for partition in converted.partitions:
                _release(partition.records)
        raise
    finally:
        for topic in response.responses:
            for read in topic.partitions:
                _release_read(read)
    legacy_response.throttle_time_ms = conversion.throttle_time_ms
    return legacy_response


def _served(partitions: list[LegacyPartition]) -> list[FetchPartition]:
    return [
        FetchPartition(partition=p.partition, fetch_offset=p.fetch_offset, partition_max_bytes=p.partition_max_bytes)
        for p in partitions
    ]


def _release_read(read: Read) -> None:
    """Unpin the region of a part of the response that will not be sent as it is."""
    records, read.records = read.records, b""
    _release(records)


def _release(records: object) -> None:
    if isinstance(records, FileRegion):
        records.release()


class _Conversion:
    """Converts the partitions of one request; `bytes_left` is the remaining size of the response."""

    def __init__(self, services: Services, context: RequestContext) -> None:
        self._services = services
        self._context = context.at_version(OLDEST_SERVED)
        self._magic = 1 if context.api_version >= MAGIC_1_SINCE else 0
        self.bytes_left = MAX_CONVERTED_BYTES
        self.throttle_time_ms = 0

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        response = await fetch.handle(self._services, self._context, request)
        self.throttle_time_ms = max(self.throttle_time_ms, response.throttle_time_ms)
        return response

    async def convert(self, topic: str, requested: LegacyPartition, read: Read) -> PartitionData:
        """Return the converted response of a partition; the region that was read is released."""
        response = PartitionData(
            read.partition_index, error_code=read.error_code, high_watermark=read.high_watermark, records=b""
        )
        while isinstance(read.records, FileRegion) and self.bytes_left > 0:
            try:
                response.records, next_offset = await self._convert(read.records, requested.fetch_offset)
            except ApiError as error:
                response.error_code = error.code
                return response
            except OSError:
                response.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
                return response
            finally:
                _release_read(read)
            if response.records or self.bytes_left <= 0:
                return response
            requested = copy(requested)
            requested.fetch_offset = next_offset
            topics = [FetchTopic(topic=topic, partitions=_served([requested]))]
            again = await self.fetch(FetchRequest(max_bytes=self.bytes_left, topics=topics))
            if not again.responses:  # throttled
                return response
            read = again.responses[0].partitions[0]
        return response

    async def _convert(self, region: FileRegion, first_offset: int) -> tuple[FileRegion | bytes, int]:
        """Return the converted messages of a region, as far as there is room, and the offset after the region."""
        heavy_work = self._services.heavy_work
        max_bytes = min(self.bytes_left, max(region.length, SMALL_RESPONSE_BYTES))
        room = heavy_work.acquire_response_room(max_bytes)
        if room is None:
            self.bytes_left = 0
            await asyncio.sleep(NO_ROOM_PAUSE_S)
            return b"", first_offset
        try:
            converted, next_offset = await run_conversion(
                heavy_work,
                partial(_convert, region, self._magic, first_offset, room.byte_count),
                input_bytes=region.length,
                inflated_bytes=MAX_DECOMPRESSED_BYTES,
                needed_bytes=MAX_APPENDED_BYTES + region.length + max_bytes,
            )
        except BaseException:
            room.release()
            raise
        room.resize(len(converted))
        self.bytes_left -= len(converted)
        return region_of(converted, room.release) if converted else b"", next_offset


def _convert(
    region: FileRegion, magic: int, first_offset: int, max_bytes: int, max_inflated_bytes: int
) -> tuple[bytes, int]:
    """Runs on a worker."""
    data = region.read()
    next_offset = max((batch.last_offset + 1 for batch in batches(data)), default=first_offset + 1)
    converted = down_convert(
        data, magic, first_offset, max_bytes=max_bytes, max_inflated_bytes=max_inflated_bytes, pause=give_way
    )
    return converted, next_offset
