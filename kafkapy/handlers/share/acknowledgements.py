"""Acknowledgements in a ShareFetch or ShareAcknowledge: checks, then the outcome of each partition."""

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from typing import Final, Protocol

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.data_plane import Leaders, TopicAccess
from kafkapy.handlers.share.gate import check_share_groups, is_member_id
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.share.acknowledging import Acknowledging
from kafkapy.runtime.share.share_partitions import SharePartitions
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation, ResourceType
from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.pending_write import Refusal
from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.record_state import ACK_GAP, ACK_REJECT, ACK_RENEW
from kafkapy.share.session import SessionKey

RENEWAL_SINCE: Final = 2
"""The version of both requests from which on locks can be renewed (KIP-1222)."""
CODES_WITH_LEADER: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH))
NONE: Final = Refusal(ErrorCode.NONE, None)
UNKNOWN_LEADER: Final = (-1, -1)
"""Leader id and epoch; clients ignore a leader with this id."""

Acknowledgements = dict[TopicIdPartition, list[AcknowledgementBatch]]
Outcomes = dict[TopicIdPartition, Refusal]


class _Batch(Protocol):
    first_offset: int
    last_offset: int
    acknowledge_types: list[int]


class _Partition(Protocol):
    partition_index: int

    @property
    def acknowledgement_batches(self) -> Sequence[_Batch]: ...


class _Topic(Protocol):
    topic_id: bytes

    @property
    def partitions(self) -> Sequence[_Partition]: ...


def session_key_of(
    services: Services, context: RequestContext, group_id: str | None, member_id: str | None
) -> SessionKey:
    """Return the group and member of a request's session. Raises ApiError, for the whole request."""
    check_share_groups(services)
    if group_id is None:
        raise ApiError(ErrorCode.INVALID_REQUEST, None)
    if not services.authorizer.authorize(context, AclOperation.READ, ResourceType.GROUP, group_id):
        raise ApiError(ErrorCode.GROUP_AUTHORIZATION_FAILED, None)
    if member_id is None or not is_member_id(member_id):
        raise ApiError(ErrorCode.INVALID_REQUEST, None)
    return SessionKey(group_id, member_id)


def acknowledgements_of(topics: Iterable[_Topic]) -> Acknowledgements:
    """Return the acknowledgements of a request, also of partitions without any."""
    return {
        TopicIdPartition(topic.topic_id, partition.partition_index): [
            AcknowledgementBatch(batch.first_offset, batch.last_offset, batch.acknowledge_types)
            for batch in partition.acknowledgement_batches
        ]
        for topic in topics
        for partition in topic.partitions
    }


class PendingAcknowledgements:
    """The acknowledgements of a request, applied or refused; their outcomes are known when their writes have ended."""

    __slots__ = ("_applied", "_nothing", "_refused", "_services")

    def __init__(
        self,
        services: Services,
        refused: Outcomes,
        nothing: list[TopicIdPartition],
        applied: "Acknowledging | None",
    ) -> None:
        """nothing: the partitions without acknowledgements."""
        self._services = services
        self._refused = refused
        self._nothing = nothing
        self._applied = applied

    async def outcomes(self) -> Outcomes:
        """Return the outcome of each partition, once all states are written."""
        if self._applied is None:
            return self._refused
        outcomes = {partition: refusal or NONE for partition, refusal in (await self._applied.outcomes()).items()}
        _count(self._services, outcomes)
        return outcomes | self._refused | dict.fromkeys(self._nothing, NONE)


async def acknowledge(
    services: Services,
    way: Walk,
    shares: SharePartitions,
    key: SessionKey,
    acknowledgements: Acknowledgements,
    access: TopicAccess,
    max_type: int,
) -> PendingAcknowledgements:
    """Apply acknowledgements and begin to write them. Later steps of the request see them before they are written."""

    def give_way(steps: int) -> Awaitable[None] | None:
        return way.give_way() if way.is_over(steps) else None

    refused: Outcomes = {}
    accepted: Acknowledgements = {}
    nothing: list[TopicIdPartition] = []
    async for partition, batches in way.over(acknowledgements.items()):
        code = _refusal(services, partition, batches, access, max_type)
        if code != ErrorCode.NONE:
            refused[partition] = Refusal(code, None)
        elif batches:
            accepted[partition] = batches
        else:
            nothing.append(partition)
    applied = await shares.acknowledge(key, accepted, give_way) if accepted else None
    return PendingAcknowledgements(services, refused, nothing, applied)


def _count(services: Services, outcomes: Outcomes) -> None:
    """Count the request for each topic, and as failed if one of its partitions was refused."""
    traffic = services.replica_manager.traffic
    if traffic is None:
        return
    codes = {partition: outcome.error_code for partition, outcome in outcomes.items()}
    for name, has_failed in failures_by_topic(services, codes).items():
        traffic.of_any(name).count_share_acknowledgement(has_failed=has_failed)


def failures_by_topic(services: Services, codes: Mapping[TopicIdPartition, int]) -> dict[str, bool]:
    """Return by topic, of those that exist, whether one of its partitions has an error code."""
    by_id = services.metadata.image.topics.by_id
    failed: dict[str, bool] = {}
    for partition, code in codes.items():
        topic = by_id.get(partition.topic_id)
        if topic is not None:
            failed[topic.name] = failed.get(topic.name, False) or code != ErrorCode.NONE
    return failed


def _refusal(
    services: Services,
    partition: TopicIdPartition,
    batches: Sequence[AcknowledgementBatch],
    access: TopicAccess,
    max_type: int,
) -> ErrorCode:
    topic = services.metadata.image.topics.by_id.get(partition.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    if not are_valid(batches, max_type):
        return ErrorCode.INVALID_REQUEST
    if not access.allows(topic.name):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    if services.metadata.image.topics.partition(topic.name, partition.partition) is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def max_type_of(context: RequestContext, *, is_renewing: bool) -> int:
    """Return the highest allowed type: a renewal needs IsRenewAck, with which a request fetches nothing."""
    return ACK_RENEW if is_renewing and context.api_version >= RENEWAL_SINCE else ACK_REJECT


def are_valid(batches: Sequence[AcknowledgementBatch], max_type: int) -> bool:
    """Return whether batches are in order, with one type or one for each offset, and of known types."""
    previous_last_offset = -1
    for batch in batches:
        types = batch.types
        count = batch.last_offset - batch.first_offset + 1
        if count < 1 or batch.first_offset < previous_last_offset or not types:
            return False
        if len(types) not in (1, count) or min(types) < ACK_GAP or max(types) > max_type:
            return False
        previous_last_offset = batch.last_offset
    return True


def names_of(services: Services, partitions: Iterable[TopicIdPartition]) -> Iterator[str]:
    """Yield the topic of each partition, without unknown ids. Not called without an authorizer."""
    by_id = services.metadata.image.topics.by_id
    for each in partitions:
        topic = by_id.get(each.topic_id)
        if topic is not None:
            yield topic.name


def leaders_of(
    services: Services, context: RequestContext, codes: Mapping[TopicIdPartition, int]
) -> tuple[dict[TopicIdPartition, tuple[int, int]], Leaders | None]:
    """Return (leader id, leader epoch) for each partition with an error, and the endpoints of those led elsewhere.

    Deviation: Apache Kafka names broker 0 at epoch 0 as the leader if the error has nothing to do with the leader.
    Here it is UNKNOWN_LEADER, because franz-go moves the partition to broker 0, and never fetches it again if there is
    none.
    """
    found = {partition: UNKNOWN_LEADER for partition, code in codes.items() if code}
    moved = [partition for partition in found if codes[partition] in CODES_WITH_LEADER]
    if not moved:
        return found, None
    leaders = Leaders(services, context)
    by_id = services.metadata.image.topics.by_id
    for partition in moved:
        topic = by_id.get(partition.topic_id)
        if topic is not None:
            found[partition] = leaders.leader_of(topic.name, partition.partition)
    return found, leaders
