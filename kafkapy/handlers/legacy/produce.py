"""Produce 0-2: message sets of magic 0 and 1, stored as batches of magic 2. v1: throttle time, v2: append time.

The conversion takes some 2 us a record, and whatever inflating takes: above CONVERTED_AT_ONCE_BYTES on a worker, while
the connection starts nothing, since such producers have no sequence numbers to keep their order by.

Deviation: KAFKA_STORAGE_ERROR, which came with version 4, is told as NOT_LEADER_OR_FOLLOWER, so that the producer tries
again.
"""

from collections.abc import Container
from functools import partial
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers import produce
from kafkapy.handlers.context import CloseConnection, RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.legacy_produce_request import LegacyProduceRequest
from kafkapy.protocol.messages.legacy_produce_request import PartitionProduceData as LegacyData
from kafkapy.protocol.messages.legacy_produce_response import (
    LegacyProduceResponse,
    PartitionProduceResponse,
    TopicProduceResponse,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.record.convert import up_convert
from kafkapy.record.errors import InvalidRecordsError
from kafkapy.replication.replica_manager import NO_ACKS
from kafkapy.seams import FileRegion
from kafkapy.security.authorizer import AclOperation

OLDEST_SERVED: Final = 3
CONVERTED_AT_ONCE_BYTES: Final = 4096
KAFKA_STORAGE_ERROR: Final = int(ErrorCode.KAFKA_STORAGE_ERROR)


async def handle(
    services: Services, context: RequestContext, request: LegacyProduceRequest
) -> LegacyProduceResponse | None:
    names = (topic.name for topic in request.topic_data for _ in topic.partition_data)
    access = TopicAccess(services, context, AclOperation.WRITE, names)
    forbidden = {topic.name for topic in request.topic_data if topic.partition_data and not access.allows(topic.name)}
    if _size_bytes(request) <= CONVERTED_AT_ONCE_BYTES:
        conversion = _Conversion(request, forbidden)
    else:
        context.connection.is_held = True
        conversion = await services.heavy_work.run(partial(_Conversion, request, forbidden))
    response = await produce.serve(services, context.at_version(OLDEST_SERVED), conversion.request, access)
    if response is not None:
        appended = (answer for topic in response.responses for answer in topic.partition_responses)
        for answer, done in zip(conversion.awaited, appended, strict=True):
            is_storage_error = done.error_code == KAFKA_STORAGE_ERROR
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER if is_storage_error else done.error_code
            answer.base_offset = done.base_offset
            answer.log_append_time_ms = done.log_append_time_ms
        return conversion.response
    if conversion.refused:
        raise CloseConnection(f"refused by partition {conversion.refused} under acks=0, client id {context.client_id}")
    assert request.acks == NO_ACKS
    return None


def _size_bytes(request: LegacyProduceRequest) -> int:
    return sum(len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)


class _Conversion:
    """The request that is served instead, and the answer: partitions that cannot be converted are in that only.

    Nothing of a forbidden topic is converted.
    """

    def __init__(self, asked: LegacyProduceRequest, forbidden: Container[str]) -> None:
        self.request = ProduceRequest(acks=asked.acks, timeout_ms=asked.timeout_ms)
        self.response = LegacyProduceResponse()
        self.awaited: list[PartitionProduceResponse] = []
        """The answers that the append fills in, in the order of the request that is served."""
        self.refused: dict[int, str] = {}
        for topic in asked.topic_data:
            self.request.topic_data.append(TopicProduceData(name=topic.name))
            self.response.responses.append(TopicProduceResponse(topic.name))
            for data in topic.partition_data:
                self._add(data, is_forbidden=topic.name in forbidden)

    def _add(self, data: LegacyData, *, is_forbidden: bool) -> None:
        answer = PartitionProduceResponse(data.index, base_offset=-1)
        self.response.responses[-1].partition_responses.append(answer)
        assert not isinstance(data.records, FileRegion), "a request never carries a region"
        try:
            if is_forbidden:
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if data.records is None:
                raise InvalidRecordsError("a partition must have messages, and has none")
            records = memoryview(bytearray(up_convert(data.records)))
        except ApiError as error:
            answer.error_code = error.code
            self.refused[data.index] = str(error)
            return
        self.request.topic_data[-1].partition_data.append(PartitionProduceData(data.index, records))
        self.awaited.append(answer)
