"""The follower's side of a fetch session with one leader: its partitions, and the content of the next Fetch. KIP-227.

The leader remembers the fetch position of each partition. A request names only what changed since the one before:
partitions with a new position, added partitions, and forgotten ones. So the size of request and response depends on
what changed, not on the number of partitions. Pure. (session id, session epoch) of a request:

    (0, 0)        the first request: it names all partitions and asks for a session
    (id, n > 0)   an incremental request of the session
    (id, 0)       after a failure: it names all partitions, closes the old session and asks for a new one

A leader without room for a session answers id 0: then every request names all partitions. Else a request adds
ADDED_PER_REQUEST of them at most, which both sides process within some milliseconds. New positions of partitions that
the session has are all named at once: what is not named, the leader sends again.

After a failure the partitions that the failed session had not named come first, then the others in the order in which
they were named. So each partition gets its turn even if no session lasts until all are named. A failure costs the same
for any number of partitions. Driven by `runtime/followers/replica_fetcher.py`.
"""

import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import length_hint
from typing import Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchTopic, ForgottenTopic
from kafkapy.replication.fetch_session import INITIAL_EPOCH, NO_SESSION_ID, next_epoch
from kafkapy.types import Uuid

PartitionKey: TypeAlias = tuple[Uuid, int]
"""(topic id, partition)."""

ADDED_PER_REQUEST: Final = 250
"""Partitions that a request adds: 10 us each for the follower, up to 50 us for the leader. Apache Kafka adds all."""
SESSION_ID_NOT_FOUND: Final = int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)


@dataclass(slots=True)
class SessionRequest:
    """The session fields of a Fetch request. `is_full`: it begins a session, with the partitions that it names.

    has_more: others are to be named by the next request, so the leader should answer this one at once.
    """

    session_id: int
    session_epoch: int
    topics: list[FetchTopic]
    forgotten: list[ForgottenTopic]
    is_full: bool
    has_more: bool = False


class FollowerSession:
    """The followed partitions, by key, with the fetch position of each."""

    def __init__(self) -> None:
        self._session_id = NO_SESSION_ID
        self._epoch = INITIAL_EPOCH
        self._requested: dict[PartitionKey, FetchPartition] = {}
        self._sent: dict[PartitionKey, FetchPartition] = {}
        """The positions last sent to the leader: the response refers to these."""
        self._added: dict[PartitionKey, None] = {}
        """Partitions to name first; none of them is in `_sent`."""
        self._named_before: deque[Iterator[PartitionKey]] = deque()
        """Partitions that failed sessions named, one iterator a session; some were dropped or named again since."""
        self._changed: dict[PartitionKey, None] = {}
        """Partitions of `_sent` with a new position."""
        self._forgotten: dict[PartitionKey, None] = {}
        self._is_refused = False
        """Whether the leader had no room for a session at the last request for one."""

    def __len__(self) -> int:
        return len(self._requested)

    def __contains__(self, key: PartitionKey) -> bool:
        return key in self._requested

    @property
    def has_request(self) -> bool:
        """Whether there are partitions to fetch, or partitions that the leader has to forget."""
        return bool(self._requested) or (bool(self._forgotten) and self._epoch != INITIAL_EPOCH)

    def sent(self, key: PartitionKey) -> FetchPartition | None:
        """Return a partition's fields in the request in flight, None if that does not fetch it."""
        return self._sent.get(key)

    def request(self, key: PartitionKey, wanted: FetchPartition) -> None:
        """Add a partition, or change its position, from the next request on."""
        if self._requested.get(key) == wanted:
            return
        self._requested[key] = wanted
        (self._changed if key in self._sent else self._added)[key] = None
        self._forgotten.pop(key, None)

    def drop(self, key: PartitionKey) -> None:
        """Stop fetching a partition."""
        if self._requested.pop(key, None) is None:
            return
        if key in self._sent:
            self._changed.pop(key, None)
            self._forgotten[key] = None
        else:
            self._added.pop(key, None)

    def next_request(self) -> SessionRequest:
        """Return the next request. Call on_response or record_failure before the one after it."""
        is_full = self._epoch == INITIAL_EPOCH
        if is_full:
            if self._sent:
                self._named_before.append(iter(self._sent))
            self._sent, self._changed, self._forgotten = {}, {}, {}
        names_all = is_full and self._is_refused
        added = self._pop_added(sys.maxsize if names_all else ADDED_PER_REQUEST)
        named, self._changed = [*self._changed, *added], {}
        forgotten, self._forgotten = self._forgotten, {}
        for key in forgotten:
            self._sent.pop(key, None)
        self._sent.update((key, self._requested[key]) for key in named)
        topics, forgotten_topics = self._topics(named), _forgotten_topics(forgotten)
        has_more = bool(self._added or self._named_before)
        return SessionRequest(self._session_id, self._epoch, topics, forgotten_topics, is_full, has_more)

    def on_response(self, request: SessionRequest, session_id: int) -> None:
        """Record a response without a session error."""
        self._session_id = session_id
        self._is_refused = request.is_full and session_id == NO_SESSION_ID
        if session_id == NO_SESSION_ID:
            self._epoch = INITIAL_EPOCH
        else:
            self._epoch = 1 if request.is_full else next_epoch(request.session_epoch)

    def record_failure(self, error_code: int = 0) -> None:
        """Record a failed request or a session error: the next request names all partitions."""
        self._epoch = INITIAL_EPOCH
        if error_code == SESSION_ID_NOT_FOUND:
            self._session_id = NO_SESSION_ID

    def _pop_added(self, most: int) -> Iterable[PartitionKey]:
        """Return partitions that the leader's session does not have; visit at most `most` of them."""
        taken = dict.fromkeys(islice(self._added, most))
        for key in taken:
            del self._added[key]
        looked_at = len(taken)
        while self._named_before and looked_at < most:
            for key in islice(self._named_before[0], most - looked_at):
                looked_at += 1
                if key in self._requested and key not in self._sent:
                    taken[key] = None
            if not length_hint(self._named_before[0]):
                self._named_before.popleft()
        return taken

    def _topics(self, keys: Iterable[PartitionKey]) -> list[FetchTopic]:
        topics: dict[Uuid, FetchTopic] = {}
        for key in keys:
            topic_id = key[0]
            topic = topics.get(topic_id)
            if topic is None:
                topic = topics[topic_id] = FetchTopic(topic_id=topic_id, partitions=[])
            topic.partitions.append(self._requested[key])
        return list(topics.values())


def _forgotten_topics(keys: Iterable[PartitionKey]) -> list[ForgottenTopic]:
    topics: dict[Uuid, ForgottenTopic] = {}
    for topic_id, partition_id in keys:
        topics.setdefault(topic_id, ForgottenTopic(topic_id=topic_id, partitions=[])).partitions.append(partition_id)
    return list(topics.values())
