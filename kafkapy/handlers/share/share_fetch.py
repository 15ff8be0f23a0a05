"""ShareFetch 1-2: a member of a share group acknowledges what it has acquired, and acquires more. KIP-932.

Acknowledgements come first; records are fetched while they are being written. Records are acquired from the share
partitions of the session that have some, in turn. If none has, the request waits up to MaxWaitMs for new data, a
release, the time-out of a lock, or a moved start offset; with a MinBytes of 0 only until a share partition is loaded.
The session is looked up, the member is not. The response has whole batches, as that of a Fetch; AcquiredRecords says
which of their offsets the member has acquired.

v2  the acquire mode (KIP-1206): batch-optimised, or a record limit; renewal (KIP-1222): a request with IsRenewAck
fetches nothing, and has limits of 0.

Deviation: Apache Kafka answers a throttled request without the records that it has acquired, which stay locked. Here
they are sent with the throttle time, because no other member could read them until their locks time out.
"""

import asyncio
from collections.abc import Iterator
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.handlers.share.acknowledgements import (
    RENEWAL_SINCE,
    Acknowledgements,
    acknowledge,
    acknowledgements_of,
    failures_by_topic,
    max_type_of,
    names_of,
    session_key_of,
)
from kafkapy.handlers.share.share_fetch_wire import Fetched, FetchedShare, respond
from kafkapy.handlers.share.share_reading import BATCH_OPTIMIZED, RECORD_LIMIT, ShareReading
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_fetch_request import ShareFetchRequest
from kafkapy.protocol.messages.share_fetch_response import ShareFetchResponse
from kafkapy.runtime.share.in_use import InUse
from kafkapy.runtime.share.share_partitions import SharePartitions
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.pending_write import Refusal
from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.session import FINAL_EPOCH, SessionContext, SessionKey, SessionRequest
from kafkapy.types import Uuid

FOUND_AT_ONCE: Final = 100
"""Share partitions that are looked up before other requests get a turn: some tenths of a millisecond."""
STEPS_OF_LOAD: Final = 50
"""Loading a share partition counts as so many steps of a turn (Turn.is_over): 0.2 to 0.5 ms, twenty in a turn."""
LOADED_AT_ONCE: Final = 5
"""Loads before a request first gives other requests a turn, so that those of many connections do not add up."""


UNKNOWN_TOPIC: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_ID, None)
DELETED_TOPIC: Final = Refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
"""Of a topic that was known when its partitions were added to the session."""


async def handle(services: Services, context: RequestContext, request: ShareFetchRequest) -> ShareFetchResponse:
    key = session_key_of(services, context, request.group_id, request.member_id)
    is_renewing = context.api_version >= RENEWAL_SINCE and request.is_renew_ack
    if is_renewing:
        _check_renewal(request)
    if request.share_acquire_mode not in (BATCH_OPTIMIZED, RECORD_LIMIT):
        raise ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, None)  # as in Apache Kafka, whose enumeration raises
    shares = services.share_partitions()
    acknowledgements = acknowledgements_of(request.topics)
    has_acknowledgements = any(acknowledgements.values())
    session = await _open_session(services, context, request, key, has_acknowledgements=has_acknowledgements)
    access = TopicAccess(
        services, context, AclOperation.READ, names_of(services, _named(session.partitions, acknowledgements))
    )
    finder = _Finder(services, shares, key, access)  # of this session: it may end while acknowledgements take turns
    way = walk(services, context)
    pending = None
    if has_acknowledgements:
        max_type = max_type_of(context, is_renewing=is_renewing)
        pending = await acknowledge(services, way, shares, key, acknowledgements, access, max_type)
    fetched: Fetched = {}
    if not is_renewing:
        fetched = await _fetch(services, context, request, session, finder, way)
    try:
        outcomes = await pending.outcomes() if pending is not None else {}
        way.begin_anew()  # the writes may have been waited for
        response = await respond(services, context, session, fetched, outcomes, way)
    except BaseException:
        _release(fetched)
        raise
    if request.share_session_epoch == FINAL_EPOCH:
        shares.end_session(key)
    response.acquisition_lock_timeout_ms = shares.settings(key.group_id).partition.record_lock_duration_ms
    return response


def _check_renewal(request: ShareFetchRequest) -> None:
    """Raise ApiError INVALID_REQUEST unless all limits are 0: to fetch could take longer than the renewed locks."""
    if request.max_bytes or request.min_bytes or request.max_records or request.max_wait_ms:
        raise ApiError(ErrorCode.INVALID_REQUEST, None)


async def _open_session(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    key: SessionKey,
    *,
    has_acknowledgements: bool,
) -> SessionContext:
    """Return the session's context. Raises ApiError; without room for a session after MaxWaitMs, as others would.

    No session begins if the connection closed while its request was decoded, because nothing would end it.
    """
    shares = services.share_partitions()
    await shares.session_ends.until_released(key)
    if context.connection.is_closed:
        raise ApiError(ErrorCode.SHARE_SESSION_NOT_FOUND, None)
    named = [
        TopicIdPartition(topic.topic_id, each.partition_index) for topic in request.topics for each in topic.partitions
    ]
    forgotten = [
        TopicIdPartition(topic.topic_id, each) for topic in request.forgotten_topics_data for each in topic.partitions
    ]
    known = services.metadata.image.topics.by_id
    unknown = {topic.topic_id for topic in request.topics if topic.topic_id not in known}
    opening = SessionRequest(key, request.share_session_epoch, named, forgotten, has_acknowledgements, unknown)
    session = shares.sessions.open(opening, context.connection_id)
    # The client repeats the request at once. As in Kafka, it waits here as long as for records.
    if session.error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED:
        await asyncio.sleep(max(request.max_wait_ms, 0) / 1000)
    if session.error_code != ErrorCode.NONE:
        raise ApiError(session.error_code, None)
    return session


async def _fetch(
    services: Services,
    context: RequestContext,
    request: ShareFetchRequest,
    session: SessionContext,
    finder: "_Finder",
    way: Walk,
) -> Fetched:
    """Return the session's partitions with acquired records or errors."""
    fetched: Fetched = {}
    usable: list[InUse] = []
    if session.partitions and request.max_records > 0 and request.max_bytes > 0:
        rotated = _rotated(session.partitions, request.share_session_epoch)
        usable = await _find(rotated, finder, way, fetched)
    if usable:
        reading = ShareReading(services, context, request, finder.key, finder.shares, usable, finder.has_session_ended)
        fetched |= await reading.run(way, must_respond=bool(fetched))
        if session.has_new and not finder.has_session_ended():
            try:
                await _add_new(usable, session, way, fetched)
            except BaseException:
                _release(fetched)
                raise
    _count(services, session.partitions, fetched, finder.access)
    return fetched


async def _add_new(usable: list[InUse], session: SessionContext, way: Walk, fetched: Fetched) -> None:
    """Add share partitions that have no records, but of which the member has had no response yet, as Apache Kafka does.

    Those that are not loaded yet, or have as many records in flight as there may be, are left out.
    """
    async for in_use in way.over(usable):
        partition = in_use.partition.key.topic_partition
        if partition in fetched or not session.must_respond(partition):
            continue
        if in_use.is_loaded and in_use.partition.can_acquire():
            fetched[partition] = FetchedShare()


async def _find(partitions: list[TopicIdPartition], finder: "_Finder", way: Walk, fetched: Fetched) -> list[InUse]:
    """Return the share partitions that can be read, found in turns; add the errors of the others to `fetched`.

    After the session has ended no share partition is loaded or returned, because nothing would free it.
    """
    usable: list[InUse] = []
    if finder.has_session_ended():
        return usable
    shares, find = finder.shares, finder.find
    load_count = shares.load_count
    first_pause = load_count + LOADED_AT_ONCE
    for start in range(0, len(partitions), FOUND_AT_ONCE):
        must_pause = way.is_over(FOUND_AT_ONCE)
        for partition in partitions[start : start + FOUND_AT_ONCE]:
            if must_pause:
                await way.give_way()
                must_pause = False
                if finder.has_session_ended():
                    return []
            found = find(partition)
            if isinstance(found, InUse):
                usable.append(found)
            else:
                fetched[partition] = FetchedShare(found)
            if shares.load_count != load_count:  # only a load is slow enough to pause within a slice
                load_count = shares.load_count
                must_pause = way.is_over(STEPS_OF_LOAD) or load_count == first_pause
    return usable


def _count(services: Services, partitions: list[TopicIdPartition], fetched: Fetched, access: TopicAccess) -> None:
    """Count the request for each topic that it may read, as failed if one of the topic's partitions has an error."""
    traffic = services.replica_manager.traffic
    if traffic is None:
        return
    codes = {each: fetched[each].refusal.error_code if each in fetched else ErrorCode.NONE for each in partitions}
    for name, has_failed in failures_by_topic(services, codes).items():
        if access.allows(name):
            traffic.of_any(name).count_share_fetch(has_failed=has_failed)


def _rotated(partitions: list[TopicIdPartition], epoch: int) -> list[TopicIdPartition]:
    """Return the partitions, beginning with another one in each request, so that none is starved."""
    at = epoch % len(partitions) if epoch >= 1 else 0
    return partitions[at:] + partitions[:at]


def _named(partitions: list[TopicIdPartition], acknowledgements: Acknowledgements) -> Iterator[TopicIdPartition]:
    """Yield the partitions of the session, and those with acknowledgements."""
    yield from {**dict.fromkeys(partitions), **acknowledgements}


class _Finder:
    """Finds the share partitions of one request. Each topic and the group's configuration are looked up once."""

    __slots__ = (
        "_partitions",
        "_services",
        "_session",
        "_settings",
        "_topics",
        "access",
        "key",
        "shares",
    )

    def __init__(self, services: Services, shares: SharePartitions, key: SessionKey, access: TopicAccess) -> None:
        self._services = services
        self.shares = shares
        self.key = key
        self._session = shares.sessions.get(key)
        self.access = access
        self._partitions = services.replica_manager.partitions
        self._settings = shares.settings(key.group_id).partition
        self._topics: dict[Uuid, str | Refusal] = {}
        """The name of each topic, or the error if it cannot be read."""

    def find(self, partition: TopicIdPartition) -> InUse | Refusal:
        """Return the share partition, whose load begins if it is new, or the error if it cannot be read."""
        topic_id, number = partition
        topic = self._topics.get(topic_id)
        if topic is None:
            topic = self._topics[topic_id] = self._find_topic(topic_id)
        if not isinstance(topic, str):
            is_gone = topic is UNKNOWN_TOPIC and self._session is not None and partition not in self._session.unknown
            return DELETED_TOPIC if is_gone else topic
        if not self._partitions.is_behind:
            in_use = self.shares.find(self.key.group_id, partition)
            if in_use is not None:  # what it reads is led here
                in_use.partition.configure(self._settings)
                return in_use if in_use.refusal is None else in_use.failure or in_use
        hosted = self._partitions.find_by_id(topic_id, number)
        code = hosted.check_leader() if hosted is not None else self._partitions.missing_code(topic, number)
        if code or hosted is None:
            return Refusal(ErrorCode(code), None)
        in_use = self.shares.use(self.key.group_id, partition, hosted, self._settings)
        return in_use if in_use.refusal is None else in_use.failure or in_use

    def has_session_ended(self) -> bool:
        """Return whether the session of the request has ended, or begun again, meanwhile."""
        return self.shares.sessions.get(self.key) is not self._session

    def _find_topic(self, topic_id: Uuid) -> str | Refusal:
        topic = self._services.metadata.image.topics.by_id.get(topic_id)
        if topic is None:
            return UNKNOWN_TOPIC
        if not self.access.allows(topic.name):
            return Refusal(ErrorCode.TOPIC_AUTHORIZATION_FAILED, None)
        return topic.name


def _release(fetched: Fetched) -> None:
    for each in fetched.values():
        each.release()
