"""DescribeLogDirs 1-5: the log directories with their usage, and their partitions with sizes and lags.

Null topics means all partitions. Requested partitions that are not on this broker are left out. While a replica moves
between directories it is listed twice. The lag of the future replica is what is still to be copied; the lag of others
is the distance of their log end offset to the high watermark.

v3  a top-level error code, v4 total and usable bytes (KIP-827), v5 cordoned directories (KIP-1066), none below
metadata.version 4.3-IV0.
"""

from itertools import chain

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.metadata.features import MV_4_3_IV0
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.log_manager import LogDirFacts
from kafkapy.types import TopicPartition

UNKNOWN_LAG = -1


async def handle(
    services: Services, context: RequestContext, request: DescribeLogDirsRequest
) -> DescribeLogDirsResponse:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME):
        return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    wanted = None
    if request.topics is not None:
        wanted = {TopicPartition(topic.topic, number) for topic in request.topics for number in topic.partitions}
    way = walk(services, context)
    directories = services.log_manager.describe_log_dirs(wanted)
    return DescribeLogDirsResponse(results=[await _describe(services, directory, way) for directory in directories])


async def _describe(services: Services, directory: LogDirFacts, way: Walk) -> DescribeLogDirsResult:
    if directory.error_code:
        return DescribeLogDirsResult(error_code=directory.error_code, log_dir=directory.path)
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=await _topics(services, directory, way),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=directory.is_cordoned and _knows_cordons(services),
    )


def _knows_cordons(services: Services) -> bool:
    return (services.metadata.image.features.metadata_version or 0) >= MV_4_3_IV0


async def _topics(services: Services, directory: LogDirFacts, way: Walk) -> list[DescribeLogDirsTopic]:
    """Return the logs of a directory in the order of their partitions, yielding to the event loop."""
    topics: dict[str, DescribeLogDirsTopic] = {}
    described = chain(((log, False) for log in directory.logs), ((log, True) for log in directory.future_logs))
    async for log, is_future in way.over(described):
        name, number = log.topic_partition
        topic = topics.setdefault(name, DescribeLogDirsTopic(name))
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=number,
                partition_size=log.size_bytes,
                offset_lag=_lag(services, log, is_future=is_future),
                is_future_key=is_future,
            )
        )
    for topic in topics.values():
        topic.partitions.sort(key=lambda partition: partition.partition_index)
    return sorted(topics.values(), key=lambda topic: topic.name)


def _lag(services: Services, log: Log, *, is_future: bool) -> int:
    current = services.log_manager.get_log(log.topic_partition)
    if current is None:
        return UNKNOWN_LAG
    return current.log_end_offset - log.log_end_offset if is_future else max(log.high_watermark - log.log_end_offset, 0)
