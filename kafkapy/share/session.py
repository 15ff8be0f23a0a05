"""Share sessions: a member names its partitions once to each broker, then only what changes. KIP-932; pure.

The session epoch of a ShareFetch or ShareAcknowledge determines its kind:

    epoch 0             begin a new session; an existing one of the member is dropped. No acknowledgements
    epoch n > 0         the session's partitions, plus those named, minus those forgotten; n must be the next epoch
    epoch -1            the last one: acknowledge, and end the session, which releases what the member has acquired

A response in a session omits partitions without new data. A session belongs to the connection that began it, and ends
with it. As in Apache Kafka it is not checked whether the member's assignment has the partitions.

Deviation: Apache Kafka bounds only the number of sessions. Here a session has at most MAX_SESSION_PARTITIONS, and all
of them MAX_PARTITIONS, because one connection could fill the memory; more is SHARE_SESSION_LIMIT_REACHED.
Deviation: Apache Kafka ends only the last session that a closing connection began. Here all of them end, because the
others would keep their records until the locks time out, and never end.
Deviation: Apache Kafka forgets the share partitions of a group when the connection of its last session closes. Here
when that session ends, because until then a connection would have to remember every group that it ever named.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import TopicIdPartition
from kafkapy.types import INT32_MAX, Uuid

INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
MAX_SESSION_PARTITIONS: Final = 10_000
"""Partitions of one session; the bound of a fetch session."""
MAX_PARTITIONS: Final = 40_000
"""Partitions of all sessions: some 50 MiB, with a share partition in use for each, which takes 1.2 KB."""


class SessionKey(NamedTuple):
    """A member of a group. Its id was chosen by the client."""

    group_id: str
    member_id: str


class ShareSession:
    """The partitions of one member, in the order in which they are to be read."""

    __slots__ = ("connection", "epoch", "key", "partitions", "unknown")

    def __init__(
        self,
        key: SessionKey,
        connection: object,
        partitions: Iterable[TopicIdPartition],
        unknown_topics: Collection[Uuid] = (),
    ) -> None:
        self.key = key
        self.connection = connection
        self.epoch = next_epoch(INITIAL_EPOCH)
        """The epoch that the next request must have."""
        self.partitions = dict.fromkeys(partitions, False)
        """By partition: must the next response have it, even without acquired records? It is new, or had an error."""
        self.unknown = {partition for partition in self.partitions if partition.topic_id in unknown_topics}
        """The partitions whose topic this broker did not know when they were added."""

    def has_changes(self, partition: TopicIdPartition, *, has_records: bool, error_code: int) -> bool:
        """Return whether a response must have the partition; from then on the session counts it as sent.

        One with records moves to the end of the order, so that a full response never starves the last ones.
        """
        must_respond = self.partitions.get(partition)
        if must_respond is None:
            return True  # removed by a later request while this one waited
        if has_records:
            del self.partitions[partition]
        if has_records or must_respond or error_code != ErrorCode.NONE:
            self.partitions[partition] = error_code != ErrorCode.NONE
            return True
        return False


@dataclass(slots=True)
class SessionRequest:
    """The session fields of a ShareFetch."""

    key: SessionKey
    epoch: int
    named: Sequence[TopicIdPartition]
    forgotten: Sequence[TopicIdPartition] = ()
    has_acknowledgements: bool = False
    unknown_topics: Collection[Uuid] = ()
    """The named topics that this broker does not know."""


@dataclass(slots=True)
class SessionContext:
    """The share partitions that a ShareFetch reads. With an error code the other fields have no meaning."""

    error_code: ErrorCode = ErrorCode.NONE
    partitions: list[TopicIdPartition] = field(default_factory=list)
    session: ShareSession | None = None
    """None for the first request of a session, whose response has all partitions, and for the last one."""
    epoch: int = INITIAL_EPOCH

    @property
    def has_new(self) -> bool:
        """Whether there is a partition that the response must have, even without acquired records."""
        return self.session is None or True in self.session.partitions.values()

    def must_respond(self, partition: TopicIdPartition) -> bool:
        """Return whether the response must have the partition, even without acquired records."""
        return self.session is None or self.session.partitions.get(partition, False)

    @property
    def is_overtaken(self) -> bool:
        """Whether a later request of the session has come while this one waited: INVALID_SHARE_SESSION_EPOCH."""
        return self.session is not None and self.session.epoch != next_epoch(self.epoch)


class EndedSession(NamedTuple):
    """An ended session, whose member's records have to be released."""

    key: SessionKey
    partitions: list[TopicIdPartition]


class ShareSessionCache:
    """The share sessions of this broker, at most group.share.max.share.sessions."""

    __slots__ = ("_by_connection", "_group_sizes", "_sessions", "closed_count", "max_sessions", "partition_count")

    def __init__(self, max_sessions: int) -> None:
        self.max_sessions = max_sessions
        self._sessions: dict[SessionKey, ShareSession] = {}
        self._by_connection: dict[object, dict[SessionKey, None]] = {}
        self._group_sizes: dict[str, int] = {}
        self.partition_count = 0
        """The number of partitions of all sessions."""
        self.closed_count = 0
        """The number of sessions that ended because their connection closed."""

    def __len__(self) -> int:
        return len(self._sessions)

    def get(self, key: SessionKey) -> ShareSession | None:
        return self._sessions.get(key)

    def has_group(self, group_id: str) -> bool:
        """Return whether a member of the group has a session here."""
        return group_id in self._group_sizes

    def members_of(self, group_id: str) -> dict[TopicIdPartition, list[str]]:
        """Return the members of a group that have each partition in their session."""
        members: dict[TopicIdPartition, list[str]] = {}
        for key, session in self._sessions.items():
            if key.group_id == group_id:
                for partition in session.partitions:
                    members.setdefault(partition, []).append(key.member_id)
        return members

    def open(self, request: SessionRequest, connection: object) -> SessionContext:
        """Return a ShareFetch's context. Its epoch says: a new session, the next request of one, or the last."""
        session = self._sessions.get(request.key)
        if request.epoch == INITIAL_EPOCH:
            return self._begin(request, connection)
        if session is None:
            return SessionContext(ErrorCode.SHARE_SESSION_NOT_FOUND)
        if request.epoch == FINAL_EPOCH:
            return SessionContext()
        if session.epoch != request.epoch:
            return SessionContext(ErrorCode.INVALID_SHARE_SESSION_EPOCH)
        added = {partition for partition in request.named if partition not in session.partitions}
        if not self._has_room(len(session.partitions) + len(added), len(added)):
            return SessionContext(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        before = len(session.partitions)
        for partition in request.named:
            session.partitions.setdefault(partition, True)
        if request.unknown_topics:
            session.unknown |= {partition for partition in added if partition.topic_id in request.unknown_topics}
        for partition in request.forgotten:
            session.partitions.pop(partition, None)
            session.unknown.discard(partition)
        self.partition_count += len(session.partitions) - before
        assert 0 <= self.partition_count <= MAX_PARTITIONS, "_has_room has said that there is room"
        session.epoch = next_epoch(session.epoch)
        return SessionContext(ErrorCode.NONE, list(session.partitions), session, request.epoch)

    def acknowledge(self, key: SessionKey, epoch: int) -> ErrorCode:
        """Check the epoch of a ShareAcknowledge, and advance that of its session."""
        if epoch == INITIAL_EPOCH:
            return ErrorCode.INVALID_SHARE_SESSION_EPOCH
        session = self._sessions.get(key)
        if session is None:
            return ErrorCode.SHARE_SESSION_NOT_FOUND
        if epoch != FINAL_EPOCH:
            if session.epoch != epoch:
                return ErrorCode.INVALID_SHARE_SESSION_EPOCH
            session.epoch = next_epoch(session.epoch)
        return ErrorCode.NONE

    def end(self, key: SessionKey) -> EndedSession | None:
        """End and return a session; None if there is none: another request may have ended it."""
        session = self._sessions.get(key)
        if session is None:
            return None
        self._remove(session)
        return EndedSession(key, list(session.partitions))

    def close_connection(self, connection: object) -> list[EndedSession]:
        """End the sessions of a connection that has closed."""
        keys = list(self._by_connection.get(connection, ()))
        self.closed_count += len(keys)
        return [ended for ended in map(self.end, keys) if ended is not None]

    def end_all(self) -> None:
        for session in list(self._sessions.values()):
            self._remove(session)
        assert self.partition_count == 0, "a session is left"

    def _begin(self, request: SessionRequest, connection: object) -> SessionContext:
        if request.has_acknowledgements:
            return SessionContext(ErrorCode.INVALID_REQUEST)
        before = self._sessions.get(request.key)
        partitions = list(dict.fromkeys(request.named))
        added_count = len(partitions) if before is None else len(partitions) - len(before.partitions)
        is_full = before is None and len(self._sessions) >= self.max_sessions
        if is_full or not self._has_room(len(partitions), added_count):
            return SessionContext(ErrorCode.SHARE_SESSION_LIMIT_REACHED)
        if before is not None:
            self._remove(before)
        session = ShareSession(request.key, connection, partitions, request.unknown_topics)
        self._sessions[request.key] = session
        self._by_connection.setdefault(connection, {})[request.key] = None
        self._group_sizes[request.key.group_id] = self._group_sizes.get(request.key.group_id, 0) + 1
        self.partition_count += len(partitions)
        assert self.partition_count <= MAX_PARTITIONS, "_has_room has said that there is room"
        return SessionContext(ErrorCode.NONE, partitions)

    def _has_room(self, session_count: int, added_count: int) -> bool:
        return session_count <= MAX_SESSION_PARTITIONS and self.partition_count + added_count <= MAX_PARTITIONS

    def _remove(self, session: ShareSession) -> None:
        key = session.key
        del self._sessions[key]
        self.partition_count -= len(session.partitions)
        assert self.partition_count >= 0, f"{len(session.partitions)} partitions were not counted"
        keys = self._by_connection[session.connection]
        del keys[key]
        if not keys:
            del self._by_connection[session.connection]
        count = self._group_sizes[key.group_id] - 1
        assert count >= 0, f"a session of {key.group_id} was not counted"
        if count:
            self._group_sizes[key.group_id] = count
        else:
            del self._group_sizes[key.group_id]


def next_epoch(epoch: int) -> int:
    """Return the session epoch after this one: 1 after the greatest, -1 after the last."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == INT32_MAX else epoch + 1
