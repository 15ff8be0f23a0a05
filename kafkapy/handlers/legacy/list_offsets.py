"""ListOffsets 0: the base offsets of segments last written at or before a time, latest first, and the log end offset.

Consumers of 0.9 only use the timestamps -1 (latest) and -2 (earliest).
"""

from typing import Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import TopicAccess, find_partition
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.legacy_list_offsets_request import LegacyListOffsetsRequest, ListOffsetsPartition
from kafkapy.protocol.messages.legacy_list_offsets_response import (
    LegacyListOffsetsResponse,
    ListOffsetsPartitionResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.replication.offset_lookup import EARLIEST, LATEST
from kafkapy.security.authorizer import AclOperation
from kafkapy.storage.log.lookup import segment_times

CONSUMER_REPLICA_ID: Final = -1


async def handle(
    services: Services, context: RequestContext, request: LegacyListOffsetsRequest
) -> LegacyListOffsetsResponse:
    access = TopicAccess(services, context, AclOperation.DESCRIBE, (topic.name for topic in request.topics))
    is_from_client = request.replica_id == CONSUMER_REPLICA_ID

    def respond(topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            if not access.allows(topic):
                raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            if requested.timestamp < EARLIEST:
                raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {requested.timestamp} in version 0")
            partition = find_partition(services, topic, requested.partition_index)
            offsets = _offsets_before(partition, requested, services.clock.wall_ms(), is_from_client=is_from_client)
        except ApiError as error:
            return ListOffsetsPartitionResponse(requested.partition_index, error_code=error.code)
        except StorageError:
            return ListOffsetsPartitionResponse(requested.partition_index, error_code=ErrorCode.KAFKA_STORAGE_ERROR)
        return ListOffsetsPartitionResponse(requested.partition_index, error_code=0, old_style_offsets=offsets)

    return LegacyListOffsetsResponse(
        [
            ListOffsetsTopicResponse(
                topic.name, partitions=[respond(topic.name, partition) for partition in topic.partitions]
            )
            for topic in request.topics
        ]
    )


def _offsets_before(
    partition: HostedPartition, requested: ListOffsetsPartition, now_ms: int, *, is_from_client: bool
) -> list[int]:
    log = partition.log
    assert log is not None
    times = segment_times(log)
    if log.log_end_offset > log.segments.active.base_offset:
        times.append((log.log_end_offset, now_ms))
    if requested.timestamp == EARLIEST:
        times = times[:1]
    elif requested.timestamp != LATEST:
        while times and times[-1][1] > requested.timestamp:
            times.pop()
    offsets = [offset for offset, _ in reversed(times)][: max(requested.max_num_offsets, 0)]
    limit = log.high_watermark
    if is_from_client and any(offset > limit for offset in offsets):
        offsets = [limit, *(offset for offset in offsets if offset <= limit)]
    return offsets
