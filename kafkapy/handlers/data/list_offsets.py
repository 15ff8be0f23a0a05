"""ListOffsets 1-11: offsets by timestamp, or by a special timestamp (replication/offset_lookup.py).

Latest (-1) and earliest (-2) are cheap; others may have to read a segment, with cold pages read in the IO pool.

v2  isolation level, v4 leader epochs, v5 OFFSET_NOT_AVAILABLE (before: LEADER_NOT_AVAILABLE), v7 -3 (KIP-734),
v8 -4 (KIP-405), v9 -5 (KIP-1005), v10 a time-out, for tiered storage only, v11 -6 (KIP-1023). A special timestamp that
the version does not have gets UNSUPPORTED_VERSION.
"""

from collections import Counter
from typing import Final

from kafkapy.errors import ApiError, ProtocolError, StorageError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess, find_partition, warm
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest
from kafkapy.protocol.messages.list_offsets_response import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from kafkapy.record.batch import NO_LEADER_EPOCH
from kafkapy.replication.offset_lookup import find_offset, is_supported
from kafkapy.security.authorizer import AclOperation
from kafkapy.storage.errors import NeedsWarming
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.segment.time_index import TimestampOffset
from kafkapy.storage.segment.time_search import HeavySearch, Searched

CONSUMER_REPLICA_ID: Final = -1
DEBUGGING_REPLICA_ID: Final = -2
"""For tools that look at one replica: a follower answers, too, up to the end of its log."""
LEADER_EPOCHS_SINCE: Final = 4
OFFSET_NOT_AVAILABLE_SINCE: Final = 5


async def handle(services: Services, context: RequestContext, request: ListOffsetsRequest) -> ListOffsetsResponse:
    lookup = _Lookup(services, context, request)
    response = ListOffsetsResponse()
    way = walk(services, context)
    async for topic in way.over(request.topics):
        responses = [await lookup.respond(topic.name, partition) async for partition in way.over(topic.partitions)]
        response.topics.append(ListOffsetsTopicResponse(topic.name, partitions=responses))
    return response


class _Lookup:
    """Answers the partitions of one request; holds what they have in common."""

    def __init__(self, services: Services, context: RequestContext, request: ListOffsetsRequest) -> None:
        self._services = services
        self._context = context
        self._version = context.api_version
        self._access = TopicAccess(services, context, AclOperation.DESCRIBE, (topic.name for topic in request.topics))
        self._is_from_client = request.replica_id == CONSUMER_REPLICA_ID
        self._is_debugging = request.replica_id == DEBUGGING_REPLICA_ID
        self._isolation = _isolation(request)
        self._duplicates = _duplicates(request)

    async def respond(self, topic: str, requested: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
        try:
            self._check(topic, requested)
            found = await self._find(topic, requested)
        except ApiError as error:
            return ListOffsetsPartitionResponse(
                partition_index=requested.partition_index, error_code=self._known_code(error.code)
            )
        except StorageError:
            return ListOffsetsPartitionResponse(
                partition_index=requested.partition_index, error_code=ErrorCode.KAFKA_STORAGE_ERROR
            )
        leader_epoch = found.leader_epoch if self._version >= LEADER_EPOCHS_SINCE else NO_LEADER_EPOCH
        return ListOffsetsPartitionResponse(
            partition_index=requested.partition_index,
            error_code=0,
            timestamp=found.timestamp_ms,
            offset=found.offset,
            leader_epoch=leader_epoch,
        )

    def _check(self, topic: str, requested: ListOffsetsPartition) -> None:
        if not self._access.allows(topic):
            raise ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        if (topic, requested.partition_index) in self._duplicates:
            raise ApiError(ErrorCode.INVALID_REQUEST, f"{topic}-{requested.partition_index} is asked for twice")
        if not is_supported(requested.timestamp, self._version):
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"timestamp {requested.timestamp} in version {self._version}")

    async def _find(self, topic: str, requested: ListOffsetsPartition) -> TimestampOffset:
        searched: Searched = {}
        # found again after each wait: meanwhile it may have moved, been deleted, or changed its leader epoch
        while True:
            partition = find_partition(
                self._services,
                topic,
                requested.partition_index,
                requested.current_leader_epoch,
                or_follower=self._is_debugging,
            )
            log = partition.log
            assert log is not None, "a partition that is led or followed has a log"
            try:
                return find_offset(
                    partition,
                    requested.timestamp,
                    self._isolation,
                    is_from_client=self._is_from_client,
                    searched=searched,
                )
            except HeavySearch as heavy:
                heavy_work = self._services.heavy_work
                searched[heavy.place] = await heavy_work.run(heavy.run, heavy.needed_bytes, self._context.client)
                continue
            except NeedsWarming as cold:
                needed = cold
            try:
                await warm(self._services, needed)
            except OSError as error:
                raise log.log_dir.handle_os_error(error, f"reading {partition.topic_partition}") from error

    def _known_code(self, code: int) -> int:
        if code == ErrorCode.OFFSET_NOT_AVAILABLE and self._version < OFFSET_NOT_AVAILABLE_SINCE:
            return ErrorCode.LEADER_NOT_AVAILABLE
        return code


def _isolation(request: ListOffsetsRequest) -> FetchIsolation:
    """Return the isolation: a consumer's isolation level, or up to the log end for replicas. Raises ProtocolError."""
    if request.isolation_level not in (0, 1):
        raise ProtocolError(f"isolation level {request.isolation_level} does not exist")
    if request.replica_id != CONSUMER_REPLICA_ID:
        return FetchIsolation.LOG_END
    return FetchIsolation.TXN_COMMITTED if request.isolation_level == 1 else FetchIsolation.HIGH_WATERMARK


def _duplicates(request: ListOffsetsRequest) -> frozenset[tuple[str, int]]:
    counts = Counter(
        (topic.name, partition.partition_index) for topic in request.topics for partition in topic.partitions
    )
    return frozenset(key for key, count in counts.items() if count > 1)
