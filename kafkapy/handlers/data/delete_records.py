"""DeleteRecords 0-2: advance the log start offset of partitions; offset -1 means the high watermark. KIP-107.

Answers with the low watermark once all replicas have reached the offset. Segments below it are deleted by the next
retention run. A topic that is only compacted gets POLICY_VIOLATION, an internal one INVALID_TOPIC_EXCEPTION.
"""

from typing import Final

from kafkapy.handlers.cluster_view import is_internal
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess, completion
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_records_request import DeleteRecordsPartition, DeleteRecordsRequest
from kafkapy.protocol.messages.delete_records_response import (
    DeleteRecordsPartitionResult,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from kafkapy.replication.delayed_delete_records import INVALID_LOW_WATERMARK, PartitionDeletion
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation

DELETED_AT_ONCE: Final = 50


async def handle(services: Services, context: RequestContext, request: DeleteRecordsRequest) -> DeleteRecordsResponse:
    access = TopicAccess(services, context, AclOperation.DELETE, (topic.name for topic in request.topics))
    deletions: dict[PartitionDeletion, DeleteRecordsPartitionResult] = {}
    response = DeleteRecordsResponse()
    way = walk(services, context)
    async for topic in way.over(request.topics):
        results = [
            _plan(services, access, topic.name, requested, deletions) async for requested in way.over(topic.partitions)
        ]
        response.topics.append(DeleteRecordsTopicResult(topic.name, partitions=results))
    await _delete(services, way, list(deletions), request.timeout_ms)
    async for deletion, result in way.over(deletions.items()):
        result.error_code = deletion.error_code
        result.low_watermark = deletion.low_watermark
    return response


async def _delete(services: Services, way: Walk, planned: list[PartitionDeletion], timeout_ms: int) -> None:
    """Delete, in turns, then wait until each deletion has its outcome: for DELETED_AT_ONCE of them at a time.

    One wait for all would go through all of them at each change of a partition.
    """
    deletions = services.replica_manager.deletions
    deadline_ms = services.clock.monotonic_ms() + timeout_ms
    unfinished: list[list[PartitionDeletion]] = []
    for start in range(0, len(planned), DELETED_AT_ONCE):
        some = planned[start : start + DELETED_AT_ONCE]
        if not deletions.delete(some):
            unfinished.append(some)
        if way.is_over(DELETED_AT_ONCE):
            await way.give_way()
    for some in unfinished:
        future, on_done = completion()
        deletions.wait(some, timeout_ms=deadline_ms - services.clock.monotonic_ms(), on_done=on_done)
        if not future.done():
            await future
            way.begin_anew()
        if way.is_over(len(some)):
            await way.give_way()


def _plan(
    services: Services,
    access: TopicAccess,
    topic: str,
    requested: DeleteRecordsPartition,
    deletions: dict[PartitionDeletion, DeleteRecordsPartitionResult],
) -> DeleteRecordsPartitionResult:
    """Return the result of one partition: an error, or a result that is completed from the deletion added here."""
    result = DeleteRecordsPartitionResult(
        partition_index=requested.partition_index, low_watermark=INVALID_LOW_WATERMARK
    )
    partitions = services.replica_manager.partitions
    partition = partitions.find(topic, requested.partition_index)
    if not access.allows(topic):
        result.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif partition is None:
        result.error_code = partitions.missing_code(topic, requested.partition_index)
    elif is_internal(topic):
        result.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
    else:
        deletions[PartitionDeletion(partition, requested.offset)] = result
    return result
