"""OffsetForLeaderEpoch 2-4: the end offset of a leader epoch, by which readers detect truncation. KIP-101, KIP-320.

Served by the leader only, to consumers (DESCRIBE on the topic) and to brokers (CLUSTER_ACTION). For an unknown or
negative epoch, leader epoch and end offset are -1.
"""

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess, find_partition
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_for_leader_epoch_request import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
)
from kafkapy.protocol.messages.offset_for_leader_epoch_response import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType


async def handle(
    services: Services, context: RequestContext, request: OffsetForLeaderEpochRequest
) -> OffsetForLeaderEpochResponse:
    access = TopicAccess(services, context, AclOperation.DESCRIBE, (topic.topic for topic in request.topics))
    is_broker = services.authorizer.authorize(
        context, AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    )
    response = OffsetForLeaderEpochResponse()
    way = walk(services, context)
    async for topic in way.over(request.topics):
        is_allowed = is_broker or access.allows(topic.topic)
        responses = [
            _respond(services, topic.topic, requested, is_allowed=is_allowed)
            async for requested in way.over(topic.partitions)
        ]
        response.topics.append(OffsetForLeaderTopicResult(topic.topic, partitions=responses))
    return response


def _respond(
    services: Services, topic: str, requested: OffsetForLeaderPartition, *, is_allowed: bool
) -> EpochEndOffset:
    if not is_allowed:
        return EpochEndOffset(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, partition=requested.partition)
    try:
        partition = find_partition(services, topic, requested.partition, requested.current_leader_epoch)
    except ApiError as error:
        return EpochEndOffset(error_code=error.code, partition=requested.partition)
    assert partition.log is not None
    found = partition.log.end_offset_for_epoch(requested.leader_epoch)
    if found is None:
        return EpochEndOffset(partition=requested.partition)
    return EpochEndOffset(partition=requested.partition, leader_epoch=found.leader_epoch, end_offset=found.offset)
