"""OffsetFetch 1-10: the committed offsets of groups.

v2: null topics means all; a top-level error code. v5: leader epochs. v7: require_stable (KIP-447): a partition with a
pending transactional offset gets UNSTABLE_OFFSET_COMMIT. v8: several groups (KIP-709), each with its error code. v9:
member id and epoch of KIP-848. v10: topics by id. Without a committed offset the response is offset -1.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.parts import PART_ELEMENTS, cut, join
from kafkapy.handlers.table import OFFSETS_OF_GROUP
from kafkapy.metadata.image import TopicImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.offset_fetch_response import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.types import ZERO_UUID, Uuid

BATCHED_SINCE: Final = 8
TOPIC_IDS_SINCE: Final = 10
TOP_LEVEL_ERROR_SINCE: Final = 2


ALL_AT_ONCE: Final = 5_000
"""Offsets of a group that are read at once, some 10 ms of work, if all are requested."""


async def handle(services: Services, context: RequestContext, request: OffsetFetchRequest) -> OffsetFetchResponse:
    if context.api_version >= BATCHED_SINCE:
        groups = walk(services, context).over(_distinct(request.groups))
        return OffsetFetchResponse(
            groups=[await _fetch(services, context, group, request.require_stable) async for group in groups]
        )
    requested = OffsetFetchRequestGroup(
        request.group_id,
        topics=None
        if request.topics is None
        else [
            OffsetFetchRequestTopics(topic.name, topic_id=ZERO_UUID, partition_indexes=topic.partition_indexes)
            for topic in request.topics
        ],
    )
    return _of_one(requested, await _fetch(services, context, requested, request.require_stable), context.api_version)


def _distinct(groups: Iterable[OffsetFetchRequestGroup]) -> Iterator[OffsetFetchRequestGroup]:
    """Yield the groups. Deviation: Apache Kafka answers all topics of a group as often as it is named. Here once,
    because they may be many."""
    seen = set()
    for group in groups:
        key = (group.group_id, group.member_id, group.member_epoch)
        if group.topics is not None or key not in seen:
            yield group
        if group.topics is None:
            seen.add(key)


async def _fetch(
    services: Services, context: RequestContext, requested: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, requested.group_id):
        return OffsetFetchResponseGroup(requested.group_id, error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    refused: list[OffsetFetchResponseTopics] = []
    if requested.topics is not None:
        requested.topics = _allowed(services, context, requested.topics, refused)
    try:
        response = await _read(services, context, requested, require_stable)
    except ApiError as error:
        return OffsetFetchResponseGroup(requested.group_id, error_code=_known_to_old_clients(error.code))
    if requested.topics is None:
        response.topics = _visible(services, context, response.topics)
    response.topics += refused
    return response


async def _read(
    services: Services, context: RequestContext, requested: OffsetFetchRequestGroup, require_stable: bool
) -> OffsetFetchResponseGroup:
    """Read the offsets: at once, or in parts if all of a group with many are requested. Raises ApiError.

    Deviation: Apache Kafka answers with the offsets of one moment. Here each part has its own, because a large request
    is handled in turns.
    """

    def fetch(requested: OffsetFetchRequestGroup) -> Callable[[GroupShard], OffsetFetchResponseGroup]:
        return lambda shard: shard.offsets.fetch(requested, require_stable=require_stable)

    def fetch_or_name(shard: GroupShard) -> OffsetFetchResponseGroup | OffsetFetchRequestGroup:
        named = shard.offsets.naming_all(requested, ALL_AT_ONCE) if requested.topics is None else None
        return fetch(requested)(shard) if named is None else named

    # one call to the shard for both: between two, offsets might be added, and a small group turn out large
    found = await services.groups.read(requested.group_id, fetch_or_name)
    if isinstance(found, OffsetFetchResponseGroup):
        return found
    assert found.topics is not None
    whole = OffsetFetchResponseGroup(requested.group_id, topics=[])
    way = walk(services, context)
    for topics, continued in cut(found.topics, OFFSETS_OF_GROUP):
        part = OffsetFetchRequestGroup(
            requested.group_id, member_id=requested.member_id, member_epoch=requested.member_epoch, topics=topics
        )
        join(whole, await services.groups.read(requested.group_id, fetch(part)), OFFSETS_OF_GROUP, continued)
        if way.is_over(PART_ELEMENTS):
            await way.give_way()
    return whole


def _known_to_old_clients(code: int) -> int:
    """Translate COORDINATOR_NOT_AVAILABLE to NOT_COORDINATOR, at which clients before 3.9 retry."""
    return ErrorCode.NOT_COORDINATOR if code == ErrorCode.COORDINATOR_NOT_AVAILABLE else code


def _allowed(
    services: Services,
    context: RequestContext,
    topics: list[OffsetFetchRequestTopics],
    refused: list[OffsetFetchResponseTopics],
) -> list[OffsetFetchRequestTopics]:
    """Return the topics, with names, that the client may describe; add the errors of the others to `refused`."""
    uses_ids = context.api_version >= TOPIC_IDS_SINCE
    by_id = services.metadata.image.topics.by_id
    access = TopicAccess(services, context, AclOperation.DESCRIBE, _names(by_id, topics, uses_ids=uses_ids))
    allowed = []
    for topic in topics:
        image = by_id.get(topic.topic_id) if uses_ids else None
        if image is not None:
            topic.name = image.name
        if uses_ids and image is None:
            refused.append(_failed(topic, ErrorCode.UNKNOWN_TOPIC_ID))
        elif not access.allows(topic.name):
            refused.append(_failed(topic, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
        else:
            allowed.append(topic)
    return allowed


def _names(
    by_id: Mapping[Uuid, TopicImage], topics: Iterable[OffsetFetchRequestTopics], *, uses_ids: bool
) -> Iterator[str]:
    for topic in topics:
        image = by_id.get(topic.topic_id) if uses_ids else None
        yield topic.name if image is None else image.name


def _visible(
    services: Services, context: RequestContext, topics: list[OffsetFetchResponseTopics]
) -> list[OffsetFetchResponseTopics]:
    """Return the topics that the client may describe. From v10 on, which has topic ids, only existing topics."""
    access = TopicAccess(services, context, AclOperation.DESCRIBE, (topic.name for topic in topics))
    visible = [topic for topic in topics if access.allows(topic.name)]
    if context.api_version < TOPIC_IDS_SINCE:
        return visible
    by_name = services.metadata.image.topics.by_name
    known = []
    for topic in visible:
        image = by_name.get(topic.name)
        if image is not None:
            topic.topic_id = image.topic_id
            known.append(topic)
    return known


def _failed(topic: OffsetFetchRequestTopics, code: int) -> OffsetFetchResponseTopics:
    partitions = [_no_offset(partition, code) for partition in topic.partition_indexes]
    return OffsetFetchResponseTopics(topic.name, topic_id=topic.topic_id, partitions=partitions)


def _no_offset(partition: int, code: int) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition, committed_offset=-1, committed_leader_epoch=-1, metadata="", error_code=code
    )


def _of_one(requested: OffsetFetchRequestGroup, group: OffsetFetchResponseGroup, version: int) -> OffsetFetchResponse:
    """Return the response of versions before 8. In version 1 each partition has the group's error code."""
    topics = group.topics
    if group.error_code and version < TOP_LEVEL_ERROR_SINCE:
        topics = [_failed(topic, group.error_code) for topic in requested.topics or ()]
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        each.partition_index,
                        committed_offset=each.committed_offset,
                        committed_leader_epoch=each.committed_leader_epoch,
                        metadata=each.metadata,
                        error_code=each.error_code,
                    )
                    for each in topic.partitions
                ],
            )
            for topic in topics
        ],
        error_code=group.error_code,
    )
