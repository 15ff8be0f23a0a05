"""Tracks which partitions of a follower's session changed, so that the cost of a fetch depends on those only. KIP-227.

A follower's session may have thousands of partitions, of which few change between two fetches. A watch keeps the set of
partitions to read: those named by the request, and those with an append or a new high watermark, log start offset or
role since they were last read. Partitions whose response was incomplete, or whose follower is not in the ISR, stay in
the set. The others need not be read or recorded: their follower fetches at the log end offset again, so it was caught
up when the session last fetched (FollowerState.session).

Code that changes a partition calls `FollowerWatches.notify`. Changes without a call (log start offset raised by
retention) are found when runtime/broker/isr_updates checks all partitions.

A fetch reads READ_AT_ONCE partitions at a time, and all that its request names, until its response is full; the others
wait for the next fetch. So the cost of a fetch does not depend on how many partitions a follower has to catch up with.
A partition that was read early, only because the request named it, returns to its place behind the others: otherwise
the same few would be named, and read before all others, in every fetch. Partitions without new data are requeued at
once, and a response has MAX_CHANGED others at most, so that the work at the end of a fetch is short.

A session that ends may have 100,000 partitions. Its watch is unsubscribed from them by the fetches of other sessions,
UNBOUND_AT_ONCE in a turn. Until then its `times` do not change, so that its follower counts as unsubscribed.
"""

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafkapy.replication.fetch_read import available_bytes
from kafkapy.replication.follower_state import SessionTimes
from kafkapy.replication.partition import Role
from kafkapy.replication.partition_read import PartitionRead
from kafkapy.storage.log.reader import FetchIsolation

if TYPE_CHECKING:
    from kafkapy.replication.fetch_session import FetchedPartition
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.throttle import ReplicationThrottle


UNBOUND_AT_ONCE: Final = 2_000
"""Some 2 ms of work."""
READ_AT_ONCE: Final = 30
"""Some 2 ms of work. Ten partitions with much to read fill a response (replica.fetch.response.max.bytes)."""
MAX_CHANGED: Final = 2_000
"""Partitions after which a response is sent though it has room: 10 ms to requeue and encode. The next one follows."""


class FollowerWatches:
    """The watches on each partition that this broker leads."""

    def __init__(self) -> None:
        self.throttle: ReplicationThrottle | None = None
        """Throttles followers that are not in sync; None without leader.replication.throttled.rate."""
        self.expired_count = 0
        """How many waits of followers ended without enough new data."""
        self._by_partition: dict[HostedPartition, dict[FollowerWatch, FetchedPartition]] = {}
        self._closed: deque[FollowerWatch] = deque()
        """Watches of ended sessions that are still subscribed to partitions."""

    @property
    def subscription_count(self) -> int:
        """The number of partitions watched, each counted once for each session that has or had it."""
        return sum(len(watches) for watches in self._by_partition.values())

    def clean_up(self) -> None:
        """Unsubscribe watches of ended sessions from up to UNBOUND_AT_ONCE partitions."""
        left = UNBOUND_AT_ONCE
        while self._closed and left:
            left -= self._closed[0].unbind_some(left)
            if not self._closed[0].is_subscribed:
                self._closed.popleft()

    def on_closed(self, watch: "FollowerWatch") -> None:
        """Hand a closed session's watch to `clean_up`, which unsubscribes it."""
        assert watch.is_closed, "a session under way would miss the changes of its partitions"
        self._closed.append(watch)

    def notify(self, partition: "HostedPartition") -> None:
        """Report a change of a partition: its followers read it in their next fetch; a waiting fetch ends if due."""
        watches = self._by_partition.get(partition)
        if watches:
            for watch, requested in list(watches.items()):
                watch.on_change(partition, requested)

    def add(self, partition: "HostedPartition", watch: "FollowerWatch", requested: "FetchedPartition") -> None:
        self._by_partition.setdefault(partition, {})[watch] = requested

    def remove(self, partition: "HostedPartition", watch: "FollowerWatch") -> None:
        watches = self._by_partition.get(partition)
        if watches is not None:
            watches.pop(watch, None)
            if not watches:
                del self._by_partition[partition]


class FollowerWatch:
    """The partitions of one follower's session. `times` has the time of its last fetch."""

    def __init__(self, watches: FollowerWatches, replica_id: int, requested: "Iterable[FetchedPartition]") -> None:
        self.replica_id = replica_id
        self.times = SessionTimes()
        self._watches = watches
        self._partitions: dict[FetchedPartition, HostedPartition] = {}
        self._to_read: OrderedDict[FetchedPartition, None] = OrderedDict.fromkeys(requested)
        """In the order in which they are read. Unlike a dict it has no gaps at its begin, and takes entries there."""
        self._named: dict[FetchedPartition, None] = {}
        """Partitions of `_to_read` that the request names."""
        self._popped_early: dict[FetchedPartition, None] = {}
        """Partitions popped since `requeue` because the request names them, although others were next."""
        self._min_bytes = 1
        self._is_closed = False
        self._on_enough: Callable[[], None] | None = None
        """Completes the session's waiting fetch."""

    @property
    def unread_count(self) -> int:
        """The number of partitions to read that were not taken yet."""
        return len(self._to_read)

    def pop(self, most: int | None = None) -> "list[FetchedPartition]":
        """Take up to READ_AT_ONCE partitions to read (or `most`, if less), and those that the request names.

        Changed ones are taken last. Returns none if the session has ended.
        """
        self._watches.clean_up()
        most = READ_AT_ONCE if most is None else min(most, READ_AT_ONCE)
        named, self._named = self._named, {}
        if len(self._to_read) <= most:
            at_once, self._to_read = self._to_read, OrderedDict()
            return list(at_once)
        taken = dict.fromkeys(islice(self._to_read, most))
        for requested in named:
            if requested not in taken:
                taken[requested] = self._popped_early[requested] = None
        for requested in taken:
            del self._to_read[requested]
        return list(taken)

    def on_requested(self, requested: "FetchedPartition") -> None:
        """Read a partition that the request names."""
        self._to_read[requested] = self._named[requested] = None

    def forget(self, requested: "FetchedPartition") -> None:
        """Remove a partition from the session."""
        self._to_read.pop(requested, None)
        self._named.pop(requested, None)
        self._unbind(requested)

    def bind(self, requested: "FetchedPartition", partition: "HostedPartition") -> None:
        """Subscribe to the changes of a partition that the session fetches."""
        if self._is_closed or self._partitions.get(requested) is partition:
            return
        self._unbind(requested)
        self._partitions[requested] = partition
        self._watches.add(partition, self, requested)

    def close(self) -> None:
        """End the session: `FollowerWatches.clean_up` unsubscribes from its partitions."""
        self._is_closed = True
        self._to_read, self._named, self._popped_early = OrderedDict(), {}, {}
        self._watches.on_closed(self)

    @property
    def is_closed(self) -> bool:
        return self._is_closed

    @property
    def is_subscribed(self) -> bool:
        return bool(self._partitions)

    def unbind_some(self, most: int) -> int:
        """Unsubscribe from up to `most` partitions, those bound last first; return their number."""
        taken = list(islice(reversed(self._partitions), most))
        for requested in taken:
            self._unbind(requested)
        return len(taken)

    def requeue_unchanged(
        self, responses: "Iterable[tuple[FetchedPartition, PartitionRead]]"
    ) -> "list[tuple[FetchedPartition, PartitionRead]]":
        """Requeue the partitions that a response omits; return the others, for `requeue` at the end."""
        changed = []
        for requested, response in responses:
            partition = self._partitions.get(requested)
            if (
                partition is None
                or requested.has_changes(response)
                or self._is_crowded_out(requested, partition, response)
            ):
                changed.append((requested, response))
            elif self._must_be_read_again(requested, partition, response):
                self._to_read[requested] = None
        return changed

    def requeue(self, responses: "Iterable[tuple[FetchedPartition, PartitionRead]]") -> None:
        """Keep partitions in the set to read if their response was incomplete or they have changed meanwhile.

        Order: partitions just read that had no room in the response, then those not read yet and those changed
        meanwhile, then those read early that had no room, last those that had records. Responses are limited in size,
        so the others get their turn first.
        """
        early, self._popped_early = self._popped_early, {}
        crowded_out: dict[FetchedPartition, None] = {}
        early_crowded_out: dict[FetchedPartition, None] = {}
        with_records: dict[FetchedPartition, None] = {}
        for requested, response in responses:
            partition = self._partitions.get(requested)
            if response.records:
                with_records[requested] = None
                self._to_read.pop(requested, None)
            elif partition is None or self._must_be_read_again(requested, partition, response):
                has_room = partition is None or not self._is_crowded_out(requested, partition, response)
                if has_room:
                    self._to_read[requested] = None
                else:
                    (early_crowded_out if requested in early else crowded_out)[requested] = None
        # Each is put before all others, so the last one goes first: they keep their order.
        for requested in reversed(crowded_out):
            self._to_read[requested] = None
            self._to_read.move_to_end(requested, last=False)
        self._to_read |= early_crowded_out
        self._to_read |= with_records

    def _is_crowded_out(
        self, requested: "FetchedPartition", partition: "HostedPartition", response: PartitionRead
    ) -> bool:
        """Whether a partition has records that had no room in the response."""
        log, throttle = partition.log, self._watches.throttle
        if response.error_code or response.diverging is not None or log is None:
            return False
        is_held_back = throttle is not None and self._is_held_back(throttle, requested, partition)
        return requested.request.fetch_offset < log.log_end_offset and not is_held_back

    def _must_be_read_again(
        self, requested: "FetchedPartition", partition: "HostedPartition", response: PartitionRead
    ) -> bool:
        log = partition.log
        return (
            response.error_code != 0
            or response.diverging is not None
            or log is None
            or partition.role is not Role.LEADER
            or requested.request.fetch_offset != log.log_end_offset
            or requested.high_watermark != log.high_watermark
            or requested.log_start_offset != log.log_start_offset
            or self.replica_id not in partition.isr
        )

    # -- waiting

    def wait(self, min_bytes: int, on_enough: Callable[[], None]) -> bool:
        """Call on_enough() when min_bytes can be read; return False if they already can."""
        self._min_bytes = min_bytes
        if self._is_enough(self._to_read):
            return False
        self._on_enough = on_enough
        return True

    def expire(self, on_done: Callable[[], None]) -> None:
        """End a wait that has taken as long as it may."""
        self._watches.expired_count += 1
        on_done()

    def end_wait(self) -> None:
        self._on_enough = None

    def on_change(self, partition: "HostedPartition", requested: "FetchedPartition") -> None:
        """Mark a partition as changed: only a fetch that names it shows the follower's progress from now on."""
        if self._is_closed:
            self._unbind(requested)
            return
        self._to_read[requested] = None
        follower = partition.followers.get(self.replica_id)
        if follower is not None:
            follower.leave_session(self.times)
        on_enough = self._on_enough
        if on_enough is not None and self._is_enough((requested,) if self._min_bytes <= 1 else self._to_read):
            self._on_enough = None
            on_enough()

    def _is_enough(self, to_read: "Iterable[FetchedPartition]") -> bool:
        """Whether a read would return min_bytes, or a partition can no longer be served."""
        total, enough, throttle = 0, max(self._min_bytes, 1), self._watches.throttle
        for requested in to_read:
            partition = self._partitions.get(requested)
            if partition is None or partition.log is None:
                return True
            if throttle is not None and self._is_held_back(throttle, requested, partition):
                continue
            if self._min_bytes <= 1:
                request = requested.request
                if partition.check_leader(request.current_leader_epoch):
                    return True
                available: int | None = int(request.fetch_offset != partition.log.log_end_offset)
            else:
                available = available_bytes(partition, requested, FetchIsolation.LOG_END)
            if available is None:
                return True
            total += available
            if total >= enough:
                return True
        return False

    def _is_held_back(
        self, throttle: "ReplicationThrottle", requested: "FetchedPartition", partition: "HostedPartition"
    ) -> bool:
        return partition.check_leader(requested.request.current_leader_epoch) == 0 and throttle.holds_back(
            partition, self.replica_id
        )

    def _unbind(self, requested: "FetchedPartition") -> None:
        partition = self._partitions.pop(requested, None)
        if partition is None:
            return
        self._watches.remove(partition, self)
        follower = partition.followers.get(self.replica_id)
        if follower is not None:
            follower.leave_session(self.times)
