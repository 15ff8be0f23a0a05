"""AlterReplicaLogDirs 1-2: move replicas of this broker to other log directories, while they are in use.

The response says whether the move has begun, not that it is complete: until then DescribeLogDirs shows the future
replica. If a partition is named twice, the last directory counts.
"""

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_replica_log_dirs_request import AlterReplicaLogDirsRequest
from kafkapy.protocol.messages.alter_replica_log_dirs_response import (
    AlterReplicaLogDirPartitionResult,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopicResult,
)
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.types import TopicPartition


async def handle(
    services: Services, context: RequestContext, request: AlterReplicaLogDirsRequest
) -> AlterReplicaLogDirsResponse:
    paths = {
        TopicPartition(topic.name, partition): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for partition in topic.partitions
    }
    if services.authorizer.authorize(context, AclOperation.ALTER, ResourceType.CLUSTER, CLUSTER_NAME):
        way = walk(services, context)
        codes = {each: services.log_dir_mover.alter(each, path) async for each, path in way.over(paths.items())}
    else:
        codes = dict.fromkeys(paths, int(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))
    topics: dict[str, AlterReplicaLogDirTopicResult] = {}
    for (name, partition), code in codes.items():
        topic = topics.setdefault(name, AlterReplicaLogDirTopicResult(topic_name=name))
        topic.partitions.append(AlterReplicaLogDirPartitionResult(partition_index=partition, error_code=code))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
