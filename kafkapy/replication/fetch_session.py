"""Incremental fetch sessions: a client names its partitions once, then only what changes. KIP-227; pure.

The session epoch of a request determines its kind:

    epoch 0             a full fetch that requests a session; the session that it names, if any, is closed
    epoch -1            a full fetch without a session; the session that it names, if any, is closed
    epoch n > 0         an incremental fetch: the session's partitions, plus those named, minus those forgotten;
                        n must be the next epoch (INVALID_FETCH_SESSION_EPOCH, FETCH_SESSION_ID_NOT_FOUND)

A response in a session omits partitions without new data. Partitions that had records move to the end of the session's
order, so that a full response never starves the last ones. Topics are named by id from version 13 on, by name before; a
session cannot switch (FETCH_SESSION_TOPIC_ID_ERROR).

The cache holds max.incremental.fetch.session.cache.slots sessions. A new session evicts one unused for two minutes;
else the smallest that is older than two minutes and not larger than itself (a follower's session may evict any
consumer's). Apache Kafka splits the cache into eight shards, for locking; here it is one. Driven by
`handlers/data/fetch.py`.

Deviation: Apache Kafka bounds the number of sessions alone. Here a consumer's session holds MAX_SESSION_PARTITIONS, all
of them together MAX_CONSUMER_PARTITIONS, and none keeps more than ten that were refused as unknown or denied, because
one connection could fill the memory. A response that would need more ends the session: it has all partitions and
session id 0, and the client's next fetch is a full one.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol, TypeAlias

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.partition_read import UNKNOWN_OFFSET, FetchPosition, PartitionRead
from kafkapy.types import INT32_MAX, ZERO_UUID, Uuid

NO_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_EPOCH: Final = INT32_MAX
EVICTION_MS: Final = 120_000
"""A session that was not used for so long may be evicted by any new one; one that was in use for so long, by a new one
of higher rank. A follower's session evicts a consumer's of any age. A constant in Apache Kafka, too."""
MAX_SESSION_PARTITIONS: Final = 10_000
"""Partitions of a consumer's session: a request of it takes 20 ms of turns, a partition some 600 bytes."""
MAX_CONSUMER_PARTITIONS: Final = 80_000
"""Partitions of all consumers' sessions: 50 MiB."""

NewWatch: TypeAlias = "Callable[[Iterable[FetchedPartition]], SessionWatch]"
PartitionKey: TypeAlias = tuple[Uuid | str, int]
"""(topic id, or name before version 13; partition)."""


class FetchedPartition:
    """A partition of a fetch request, and the state that a session keeps of its last response."""

    __slots__ = ("high_watermark", "key", "known_topic", "log_start_offset", "request", "topic", "topic_id")

    def __init__(self, topic: str, topic_id: Uuid, request: FetchPosition) -> None:
        """`topic` is empty if the request names the topic by id."""
        self.topic = topic
        self.topic_id = topic_id
        self.known_topic: str | None = None
        """The topic's name when it was last found, in case its id is unknown by now."""
        self.key: PartitionKey = (topic_id if topic_id != ZERO_UUID else topic, request.partition)
        self.request = request
        self.high_watermark = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET

    def has_changes(self, response: PartitionRead) -> bool:
        """Whether a response differs from the one before or has records."""
        return (
            bool(response.records)
            or response.error_code != 0
            or response.high_watermark != self.high_watermark
            or response.log_start_offset != self.log_start_offset
            or response.preferred_read_replica >= 0
            or response.diverging is not None
        )

    def on_read(self, response: PartitionRead) -> None:
        """Keep what the next response is compared with, after a response with new data.

        After an error or a divergence the high watermark counts as unknown, so that the next successful response is
        sent: a follower that truncates its log does not take over the high watermark of a response.
        """
        is_applied = response.error_code == 0 and response.diverging is None
        self.high_watermark = response.high_watermark if is_applied else UNKNOWN_OFFSET
        self.log_start_offset = response.log_start_offset


class FetchSession:
    """One session; `epoch` is the one that the next request must have."""

    __slots__ = (
        "created_ms",
        "epoch",
        "is_privileged",
        "last_used_ms",
        "partitions",
        "session_id",
        "uses_topic_ids",
        "watch",
    )

    def __init__(
        self,
        session_id: int,
        partitions: Iterable[FetchedPartition],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        new_watch: "NewWatch | None" = None,
    ) -> None:
        self.session_id = session_id
        self.epoch = 1
        self.partitions = {partition.key: partition for partition in partitions}
        self.uses_topic_ids = uses_topic_ids
        self.is_privileged = new_watch is not None
        """Whether it is a follower's, which may evict any consumer's."""
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.watch = None if new_watch is None else new_watch(self.partitions.values())
        """For a follower's session: tracks which partitions have changed and must be read."""

    def count_new(self, requested: Iterable[FetchedPartition]) -> int:
        return len({each.key for each in requested if each.key not in self.partitions})

    def update(self, requested: Iterable[FetchedPartition], forgotten: Iterable[PartitionKey]) -> None:
        """Apply a request's changes: partitions added, changed, or forgotten."""
        partitions, watch = self.partitions, self.watch
        for partition in requested:
            known = partitions.setdefault(partition.key, partition)
            before, known.request = known.request, partition.request
            if watch is not None:
                if before.current_leader_epoch != partition.request.current_leader_epoch:
                    # The follower may have dropped what it got for the other epoch.
                    known.high_watermark = UNKNOWN_OFFSET
                watch.on_requested(known)
        for key in forgotten:
            gone = partitions.pop(key, None)
            if watch is not None and gone is not None:
                watch.forget(gone)

    def close(self) -> None:
        """Release the watch after the session was removed from the cache."""
        if self.watch is not None:
            self.watch.close()

    def on_reads(
        self, responses: Iterable[tuple[FetchedPartition, PartitionRead]]
    ) -> list[tuple[FetchedPartition, PartitionRead]]:
        """Return the responses that have to be sent; partitions with records move to the end of the order."""
        changed = []
        for partition, response in responses:
            if self.partitions.get(partition.key) is not partition:
                continue
            if partition.has_changes(response):
                partition.on_read(response)
                changed.append((partition, response))
                if response.records:
                    del self.partitions[partition.key]
                    self.partitions[partition.key] = partition
        return changed


class SessionWatch(Protocol):
    """Tracks which partitions of a session must be read (follower_watch.py)."""

    def pop(self) -> list[FetchedPartition]: ...
    def on_requested(self, requested: FetchedPartition) -> None: ...
    def forget(self, requested: FetchedPartition) -> None: ...
    def requeue(self, responses: Iterable[tuple[FetchedPartition, PartitionRead]]) -> None: ...
    def close(self) -> None: ...


def next_epoch(epoch: int) -> int:
    assert 0 < epoch <= MAX_EPOCH, f"{epoch} is the epoch of no session"
    return epoch + 1 if epoch < MAX_EPOCH else 1


class FetchContext:
    """The partitions that one request fetches, and the session for its response. Made by FetchSessionCache.open."""

    __slots__ = (
        "_cache",
        "_epoch",
        "_new_watch",
        "_session",
        "_uses_topic_ids",
        "error_code",
        "partitions",
    )

    def __init__(
        self,
        partitions: Sequence[FetchedPartition],
        *,
        error_code: int = 0,
        session: FetchSession | None = None,
        new_session_cache: "FetchSessionCache | None" = None,
        uses_topic_ids: bool = False,
        new_watch: "NewWatch | None" = None,
    ) -> None:
        """`partitions`: for a session with a watch, only those that must be read."""
        self.partitions = partitions
        self._new_watch = new_watch
        self.error_code = error_code
        self._session = session
        self._epoch = session.epoch if session is not None else FINAL_EPOCH
        self._cache = new_session_cache
        self._uses_topic_ids = uses_topic_ids

    @property
    def watch(self) -> SessionWatch | None:
        """The watch of a follower's session."""
        return self._session.watch if self._session is not None else None

    def finish_throttled(self) -> tuple[int, int]:
        """Return (error code, session id) for an empty response; the session's partitions are unchanged."""
        session = self._session
        if session is None:
            return 0, NO_SESSION_ID
        if session.epoch != self._epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id
        return 0, session.session_id

    def finish(
        self, responses: list[tuple[FetchedPartition, PartitionRead]], now_ms: int
    ) -> tuple[int, int, list[tuple[FetchedPartition, PartitionRead]]]:
        """Return (error code, session id, the responses to send).

        Omitted responses have no records to release, with one exception: if the session's epoch has changed meanwhile
        (a request sent twice), all are omitted and the caller must release their records.
        """
        session = self._session
        if session is not None:
            if session.epoch != self._epoch:
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, session.session_id, []
            changed = session.on_reads(responses)
            if session.watch is not None:
                session.watch.requeue(responses)
            return 0, session.session_id, changed
        if self._cache is None:
            return self.error_code, NO_SESSION_ID, responses
        session_id = self._cache.maybe_create(
            responses,
            uses_topic_ids=self._uses_topic_ids,
            now_ms=now_ms,
            new_watch=self._new_watch,
        )
        return 0, session_id, responses


class FetchSessionCache:
    """All sessions of a broker. `new_session_id` returns a random int of [1, 2**31)."""

    def __init__(self, max_slots: int, new_session_id: Callable[[], int]) -> None:
        self._max_slots = max_slots
        self._new_session_id = new_session_id
        self._sessions: dict[int, FetchSession] = {}
        """Least recently used first."""
        self.consumer_partition_count = 0
        """Partitions of all sessions that are no follower's."""
        self.eviction_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(len(session.partitions) for session in self._sessions.values())

    def partitions_of(self, session_id: int) -> list[tuple[str, Uuid, int]]:
        """Return the partitions of a session as a request names them: by topic name or topic id; none if it ended."""
        session = self._sessions.get(session_id)
        if session is None:
            return []
        if session.uses_topic_ids:
            return [("", each.topic_id, each.request.partition) for each in session.partitions.values()]
        return [(each.topic, ZERO_UUID, each.request.partition) for each in session.partitions.values()]

    def open(
        self,
        session_id: int,
        epoch: int,
        requested: list[FetchedPartition],
        forgotten: list[PartitionKey],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        new_watch: "NewWatch | None" = None,
    ) -> FetchContext:
        """Return the context of a request, with the partitions in its order; none if it has a session error.

        requested, forgotten: the partitions that the request names. new_watch: creates a session's watch; given only
        for a follower's request, whose session is privileged.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            # A full fetch ends the session that it names, whether it requests a new one or not (KIP-227).
            if session_id != NO_SESSION_ID:
                self._remove(session_id)
            cache = self if epoch == INITIAL_EPOCH else None
            return FetchContext(
                _without_duplicates(requested),
                new_session_cache=cache,
                uses_topic_ids=uses_topic_ids,
                new_watch=new_watch,
            )
        session = self._sessions.get(session_id)
        if session is None:
            return FetchContext((), error_code=ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if session.epoch != epoch:
            return FetchContext((), error_code=ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if session.uses_topic_ids != uses_topic_ids:
            return FetchContext((), error_code=ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        return self._continue(session, requested, forgotten, now_ms)

    def _continue(
        self, session: FetchSession, requested: list[FetchedPartition], forgotten: list[PartitionKey], now_ms: int
    ) -> FetchContext:
        if requested or forgotten:
            before = len(session.partitions)
            if not session.is_privileged and not self._may_grow(before, session.count_new(requested)):
                self._remove(session.session_id)
                session.update(requested, forgotten)
                return FetchContext(list(session.partitions.values()))
            session.update(requested, forgotten)
            if not session.is_privileged:
                self.consumer_partition_count += len(session.partitions) - before
                assert self.consumer_partition_count <= MAX_CONSUMER_PARTITIONS, "_may_grow has said that there is room"
        if not session.partitions:
            self._remove(session.session_id)
            return FetchContext(_without_duplicates(requested))
        del self._sessions[session.session_id]
        self._sessions[session.session_id] = session
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        partitions = list(session.partitions.values()) if session.watch is None else session.watch.pop()
        return FetchContext(partitions, session=session)

    def _may_grow(self, size: int, added: int) -> bool:
        """Whether a consumer's session of `size` partitions may get `added` more."""
        room = MAX_CONSUMER_PARTITIONS - self.consumer_partition_count
        return not added or (size + added <= MAX_SESSION_PARTITIONS and added <= room)

    def end_consumer_session(self, session_id: int) -> int:
        """End a session with many unknown or denied partitions, unless it is a follower's; return the id to send."""
        session = self._sessions.get(session_id)
        if session is None or session.is_privileged:
            return session_id
        self._remove(session_id)
        return NO_SESSION_ID

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is None:
            return
        if not session.is_privileged:
            self.consumer_partition_count -= len(session.partitions)
            assert self.consumer_partition_count >= 0
        session.close()

    def maybe_create(
        self,
        responses: Sequence[tuple[FetchedPartition, PartitionRead]],
        *,
        uses_topic_ids: bool,
        now_ms: int,
        new_watch: "NewWatch | None" = None,
    ) -> int:
        """Create a session with the partitions just answered; return its id, NO_SESSION_ID if there is no room."""
        is_privileged = new_watch is not None
        if not is_privileged:
            self._evict_stale(len(responses), now_ms)
            if not self._may_grow(0, len(responses)):
                return NO_SESSION_ID
        has_room = len(self._sessions) < self._max_slots or self._evict(len(responses), is_privileged, now_ms)
        if not has_room:
            return NO_SESSION_ID
        session_id = self._new_session_id()
        while session_id in self._sessions:
            session_id = self._new_session_id()
        # This response has all partitions; the session's next one omits those that have not changed since.
        for partition, response in responses:
            partition.on_read(response)
        self._sessions[session_id] = FetchSession(
            session_id,
            [partition for partition, _ in responses],
            uses_topic_ids=uses_topic_ids,
            now_ms=now_ms,
            new_watch=new_watch,
        )
        assert len(self._sessions) <= self._max_slots, "a session was evicted for this one"
        if not is_privileged:
            self.consumer_partition_count += len(self._sessions[session_id].partitions)
            assert self.consumer_partition_count <= MAX_CONSUMER_PARTITIONS, "_may_grow has said that there is room"
        return session_id

    def _evict_stale(self, added: int, now_ms: int) -> None:
        """Evict sessions unused for EVICTION_MS while consumers' partitions have no room for `added` more."""
        while self.consumer_partition_count + added > MAX_CONSUMER_PARTITIONS:
            oldest = next(iter(self._sessions.values()), None)
            if oldest is None or now_ms - oldest.last_used_ms <= EVICTION_MS:
                return
            self._remove_evicted(oldest)

    def _evict(self, size: int, is_privileged: bool, now_ms: int) -> bool:
        """Evict a session to make room for one of `size` partitions, if its rank allows; return whether it did."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            return self._remove_evicted(oldest)
        candidates = [session for session in self._sessions.values() if _is_evictable(session, is_privileged)]
        weakest = min(candidates, key=_rank, default=None)
        if weakest is None or (is_privileged, size, 0) < _rank(weakest):
            return False
        return self._remove_evicted(weakest)

    def _remove_evicted(self, session: FetchSession) -> bool:
        self._remove(session.session_id)
        self.eviction_count += 1
        return True


def _rank(session: FetchSession) -> tuple[bool, int, int]:
    """Return the rank of a session: followers' above consumers', then the larger, as in Apache Kafka."""
    return session.is_privileged, len(session.partitions), session.session_id


def _is_evictable(session: FetchSession, is_by_privileged: bool) -> bool:
    is_old = session.last_used_ms - session.created_ms > EVICTION_MS
    return is_old or (is_by_privileged and not session.is_privileged)


def _without_duplicates(requested: list[FetchedPartition]) -> list[FetchedPartition]:
    """Return each partition once: its last entry counts, in the position of its first."""
    if len(requested) < 2:
        return requested
    return list({partition.key: partition for partition in requested}.values())
