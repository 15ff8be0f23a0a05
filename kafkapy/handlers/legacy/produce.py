"""Produce 0-2: message sets of magic 0 and 1, stored as batches of magic 2. v1: throttle time, v2: append time.

The conversion takes about 2 us per record, plus the time to inflate. Message sets that are compressed, or above
CONVERTED_AT_ONCE_BYTES, are converted on a worker, one partition at a time. The connection is held meanwhile, because
these producers have no sequence numbers to keep their order.

Deviation: Apache Kafka answers KAFKA_STORAGE_ERROR, which came with version 4. Here it is NOT_LEADER_OR_FOLLOWER,
because the producer then retries.
"""

from collections.abc import Container
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import CloseConnection, RequestContext, Services
from kafkapy.handlers.data import produce
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.legacy.conversions import run_conversion
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.protocol.messages.legacy_produce_request import PartitionProduceData as LegacyData
from kafkapy.protocol.messages.legacy_produce_response import (
    LegacyProduceResponse,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.batch import CODEC_MASK
from kafkapy.record.compression import MAX_APPENDED_BYTES, NONE, inflated_at_most
from kafkapy.record.convert import up_convert
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.replication.replica_manager import NO_ACKS
from kafkapy.seams import FileRegion, ReadableBuffer
from kafkapy.security.authorizer import AclOperation
from kafkapy.storage.workers import give_way

if TYPE_CHECKING:
    from kafkapy.runtime.pool import HeavyWork

OLDEST_SERVED: Final = 3
CONVERTED_AT_ONCE_BYTES: Final = 4096
MAX_INFLATED_BYTES: Final = MAX_APPENDED_BYTES // 2
"""The maximum inflated size of a message set, without its converted form. Deviation: Apache Kafka has no bound. Here
there is one, because a few KiB could fill the memory."""

ATTRIBUTES_POSITION: Final = 17
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


async def handle(
    services: Services, context: RequestContext, request: LegacyProduceRequest
) -> LegacyProduceResponse | None:
    names = (topic.name for topic in request.topic_data for _ in topic.partition_data)
    access = TopicAccess(services, context, AclOperation.WRITE, names)
    forbidden = {topic.name for topic in request.topic_data if topic.partition_data and not access.allows(topic.name)}
    conversion = _Conversion(request, services.heavy_work)
    context.connection.is_held = not conversion.is_light
    await conversion.run(forbidden)
    context.connection.is_held = False  # if nothing was converted: else the next request that waits would be held
    response = await produce.serve(services, context.at_version(OLDEST_SERVED), conversion.request, access)
    if response is not None:
        for topic in response.responses:
            for done in topic.partition_responses:
                part = conversion.responses[topic.name, done.index]
                if not part.error_code:
                    is_storage_error = done.error_code == KAFKA_STORAGE_ERROR
                    part.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_storage_error else done.error_code
                    part.base_offset = done.base_offset
                    part.log_append_time_ms = done.log_append_time_ms
        return conversion.response
    if conversion.refused:
        raise CloseConnection(f"refused by partition {conversion.refused} under acks=0, client id {context.client_id}")
    assert request.acks == NO_ACKS
    return None


class _Conversion:
    """The converted request, and the response. Partitions that cannot be converted are only in the response.

    The response has one part for a partition that is named again: the refusal, if one of its message sets is refused.
    """

    def __init__(self, requested: LegacyProduceRequest, heavy_work: "HeavyWork") -> None:
        self._requested = requested
        self._heavy_work = heavy_work
        self.is_light = _is_light(requested)
        self.request = ProduceRequest(acks=requested.acks, timeout_ms=requested.timeout_ms)
        self.response = LegacyProduceResponse()
        self.responses: dict[tuple[str, int], PartitionProduceResponse] = {}
        """The partitions of the response, which the append completes unless they have an error."""
        self.refused: dict[int, str] = {}

    async def run(self, forbidden: Container[str]) -> None:
        """Convert all partitions, except those of forbidden topics."""
        answered_topics: dict[str, TopicProduceResponse] = {}
        for topic in self._requested.topic_data:
            self.request.topic_data.append(TopicProduceData(name=topic.name))
            answered = answered_topics.get(topic.name)
            if answered is None:
                answered = answered_topics[topic.name] = TopicProduceResponse(topic.name)
                self.response.responses.append(answered)
            for data in topic.partition_data:
                response = PartitionProduceResponse(index=data.index, base_offset=-1)
                if self.responses.setdefault((topic.name, data.index), response) is response:
                    answered.partition_responses.append(response)
                await self._add(data, self.responses[topic.name, data.index], is_forbidden=topic.name in forbidden)

    async def _add(self, data: LegacyData, response: PartitionProduceResponse, *, is_forbidden: bool) -> None:
        assert not isinstance(data.records, FileRegion), "a request never carries a region"
        try:
            if is_forbidden:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if data.records is None:
                raise InvalidRecordsError("a partition must have messages, and has none")
            records = memoryview(bytearray(await self._convert(data.records)))
        except ApiError as error:
            response.error_code = error.code
            self.refused[data.index] = str(error)
            return
        finally:
            data.records = None  # the frame is not needed for them any more
        self.request.topic_data[-1].partition_data.append(PartitionProduceData(data.index, records=records))

    async def _convert(self, records: ReadableBuffer) -> bytes:
        if self.is_light:
            return up_convert(records)
        inflated_bytes = inflated_at_most(_codec(records), records, MAX_INFLATED_BYTES)
        return await run_conversion(
            self._heavy_work,
            lambda max_inflated_bytes: up_convert(records, max_inflated_bytes, give_way),
            input_bytes=len(records),
            inflated_bytes=MAX_INFLATED_BYTES,
            needed_bytes=2 * inflated_bytes + len(records),
        )


def _is_light(request: LegacyProduceRequest) -> bool:
    """Whether a request is converted on the event loop, without a worker."""
    size_bytes = 0
    for topic in request.topic_data:
        for data in topic.partition_data:
            assert not isinstance(data.records, FileRegion), "a request never carries a region"
            if data.records and _codec(data.records) != NONE:
                return False
            size_bytes += len(data.records or b"")
    return size_bytes <= CONVERTED_AT_ONCE_BYTES


def _codec(message_set: ReadableBuffer) -> int:
    """Return the codec of the first message; if that is compressed, it is the only one."""
    return message_set[ATTRIBUTES_POSITION] & CODEC_MASK if len(message_set) > ATTRIBUTES_POSITION else NONE
