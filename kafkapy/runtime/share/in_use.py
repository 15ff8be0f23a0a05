"""A share partition in use on this broker: its machine, the partition that it reads, its timer, its waiting fetches."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.fetch_read import end_offset
from kafkapy.replication.partition import Role
from kafkapy.share.partition import PartitionState, SharePartition
from kafkapy.share.pending_write import Refusal
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.timer.wheel import TimerEntry, TimingWheel

if TYPE_CHECKING:
    from kafkapy.replication.delayed_fetch import PartitionsWatch
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager


class Waiter(Protocol):
    """A waiting fetch (share_wait.py)."""

    @property
    def is_ready(self) -> bool:
        """Whether it holds a share partition, or has to respond."""

    def check(self, in_use: "InUse") -> bool:
        """Called when the share partition has changed: hold it if it has records. Return whether it is held."""


NO_LEADER: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
WATCH_MS: Final = 3_600_000
"""For how long a share partition is registered for new data of its partition before it registers again."""


class CallbackTimer(TimerEntry):
    """Calls back when the first lock of a share partition times out, or a fetch has waited for long enough."""

    __slots__ = ("_on_due",)

    def __init__(self, on_due: Callable[[], None]) -> None:
        super().__init__()
        self._on_due = on_due

    def on_timeout(self, now_ms: int) -> None:
        self._on_due()


class Owner(Protocol):
    """What a share partition needs of the object that has all of them (share_partitions.py)."""

    @property
    def wheel(self) -> TimingWheel: ...
    @property
    def replica_manager(self) -> "ReplicaManager": ...

    def on_data(self, in_use: "InUse") -> None:
        """Called when the partition has more records, or another leader."""

    def on_due(self, in_use: "InUse") -> None:
        """Called when locks may have timed out."""


class InUse:
    """A share partition in use: from its first fetch to the end of its group's last session, or of its leadership."""

    __slots__ = ("_follow_count", "_owner", "_timer", "_watch", "hosted", "loading", "partition", "refusal", "waiters")

    def __init__(self, partition: SharePartition, hosted: "HostedPartition", owner: Owner) -> None:
        self.partition = partition
        self.hosted = hosted
        self._follow_count = hosted.follow_count
        self._owner = owner
        self._timer: CallbackTimer | None = None
        """Created when a record is acquired for the first time."""
        self.waiters: dict[Waiter, None] = {}
        self._watch: PartitionsWatch | None = None
        self.loading: asyncio.Future[None] | None = None
        """While the state is being loaded."""
        self.refusal: Refusal | None = None
        """The error of a failed load."""

    def on_loaded(self, _loading: object) -> None:
        """Called at the end of a load; drops its task, to save the memory of idle share partitions."""
        self.loading = None

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition since the share partition was created."""
        hosted = self.hosted
        return hosted.role is Role.LEADER and hosted.follow_count == self._follow_count

    @property
    def is_loaded(self) -> bool:
        """Whether records can be acquired, if there are any."""
        return self.partition.state is PartitionState.ACTIVE

    @property
    def has_failed(self) -> bool:
        """Whether it can no longer be read."""
        return self.partition.state in (PartitionState.FAILED, PartitionState.FENCED) or not self.is_current

    @property
    def failure(self) -> Refusal | None:
        """Why it can no longer be read; None if it can be, or is still being loaded."""
        if not self.has_failed:
            return None
        refusal = self.refusal or self.partition.refusal
        return refusal if refusal is not None and self.is_current else NO_LEADER

    def readable(self, isolation: FetchIsolation) -> tuple[int, int]:
        """Return (first, end): the offsets from which records can be acquired; none if first is not below end."""
        log = self.hosted.log
        if log is None or self.partition.state is not PartitionState.ACTIVE:
            return 0, 0
        first_offset = self.partition.records.next_fetch_offset()
        # as end_offset() for most groups: this is asked for each share partition of a session
        is_uncommitted = isolation is FetchIsolation.HIGH_WATERMARK
        return first_offset, log.high_watermark if is_uncommitted else end_offset(log, isolation)

    def watch(self) -> None:
        """Notify the owner of each append to the partition, and of each change of its leader, until fence()."""
        self._watch = None
        self._watch = self._owner.replica_manager.watch_for_data(
            [self.hosted], max_wait_ms=WATCH_MS, on_data=self._on_event
        )

    def _on_event(self) -> None:
        is_over = self._watch is not None and self._watch.is_completed
        if is_over and self.partition.state is not PartitionState.FENCED:
            self.watch()
        else:
            self._owner.on_data(self)

    def notify(self) -> None:
        """Wake the waiting fetches in order of arrival, up to the first that holds the share partition."""
        for waiter in list(self.waiters):
            if waiter.is_ready:
                del self.waiters[waiter]
            elif waiter.check(self):
                return

    def schedule(self) -> None:
        """Set the timer to the first lock's time-out; call it after each change of locks."""
        deadline_ms = self.partition.deadline_ms
        if deadline_ms is None or self.partition.state is not PartitionState.ACTIVE:
            return
        timer = self._timer
        if timer is None:
            self._timer = timer = CallbackTimer(self._on_due)
        elif timer.is_scheduled:
            if timer.deadline_ms <= deadline_ms:
                return  # an earlier timer is set again when it is due
            timer.cancel()
        self._owner.wheel.add(timer, deadline_ms)

    def _on_due(self) -> None:
        self._owner.on_due(self)

    def fence(self) -> None:
        """End the use: waiting fetches are answered, and locks are dropped."""
        self.partition.fence()
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.abandon()
        self.notify()
