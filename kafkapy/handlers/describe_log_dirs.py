"""DescribeLogDirs 1-5: the log directories, how full they are, and the partitions in them with their sizes and lags.

Null topics: all partitions. Partitions asked for that are not here are left out. Of the replicas here none is a future
one (they appear while a replica moves between directories), and their lag is how far the log's end is behind the high
watermark.

v3  an error of the whole, v4 total and usable bytes (KIP-827), v5 cordoned directories (KIP-1066).
"""

from collections.abc import Iterable, Mapping

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_log_dirs_response import (
    DescribeLogDirsPartition,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from kafkapy.security.authorizer import CLUSTER_NAME, AclOperation, ResourceType
from kafkapy.storage.log_manager import LogDirFacts
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
    cordoned = services.config.log.cordoned_log_dirs
    return DescribeLogDirsResponse(
        results=[
            _describe(services, directory, wanted, is_cordoned=directory.path in cordoned or "*" in cordoned)
            for directory in services.log_manager.describe_log_dirs()
        ]
    )


def _describe(
    services: Services, directory: LogDirFacts, wanted: set[TopicPartition] | None, *, is_cordoned: bool
) -> DescribeLogDirsResult:
    if directory.error_code:
        return DescribeLogDirsResult(error_code=directory.error_code, log_dir=directory.path)
    sizes = directory.log_sizes
    listed = sizes if wanted is None else sizes.keys() & wanted
    return DescribeLogDirsResult(
        log_dir=directory.path,
        topics=_topics(services, sorted(listed), sizes),
        total_bytes=directory.total_bytes,
        usable_bytes=directory.usable_bytes,
        is_cordoned=is_cordoned,
    )


def _topics(
    services: Services, listed: Iterable[TopicPartition], sizes: Mapping[TopicPartition, int]
) -> list[DescribeLogDirsTopic]:
    topics: dict[str, DescribeLogDirsTopic] = {}
    for topic_partition in listed:
        topic = topics.get(topic_partition.topic)
        if topic is None:
            topic = topics[topic_partition.topic] = DescribeLogDirsTopic(topic_partition.topic)
        topic.partitions.append(
            DescribeLogDirsPartition(
                partition_index=topic_partition.partition,
                partition_size=sizes[topic_partition],
                offset_lag=_lag(services, topic_partition),
            )
        )
    return list(topics.values())


def _lag(services: Services, topic_partition: TopicPartition) -> int:
    log = services.log_manager.get_log(topic_partition)
    return UNKNOWN_LAG if log is None else max(log.high_watermark - log.log_end_offset, 0)
