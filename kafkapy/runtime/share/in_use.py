"""A share partition in use here: the machine, the partition that it reads, its timer, and who waits for it."""

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
    """A fetch that waits (share_wait.py). `held`: what it reads now, alone."""

    held: "list[InUse]"

    def check(self, in_use: "InUse") -> None:
        """Something has changed there: take it, or go on waiting."""


NO_LEADER: Final = Refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
WATCH_MS: Final = 3_600_000
"""For how long a share partition asks for news of its partition before it asks again."""


class CallbackTimer(TimerEntry):
    """Calls back when the first lock of a share partition times out, or a fetch has waited for long enough."""

    __slots__ = ("_on_due",)

    def __init__(self, on_due: Callable[[], None]) -> None:
        super().__init__()
        self._on_due = on_due

    def on_timeout(self, now_ms: int) -> None:
        self._on_due()


class Owner(Protocol):
    """All share partitions (share_partitions.py)."""

    @property
    def wheel(self) -> TimingWheel: ...
    @property
    def replica_manager(self) -> "ReplicaManager": ...

    def on_data(self, in_use: "InUse") -> None:
        """The partition has more records, or another leader."""

    def on_due(self, in_use: "InUse") -> None:
        """Locks may have timed out."""


class InUse:
    """One share partition. Made at its first fetch, dropped with its group's last session, or its leadership."""

    __slots__ = ("_follow_count", "_owner", "_timer", "_watch", "hosted", "loading", "partition", "refusal", "waiters")

    def __init__(self, partition: SharePartition, hosted: "HostedPartition", owner: Owner) -> None:
        self.partition = partition
        self.hosted = hosted
        self._follow_count = hosted.follow_count
        self._owner = owner
        self._timer: CallbackTimer | None = None
        """Made when something is acquired first."""
        self.waiters: dict[Waiter, None] = {}
        self._watch: PartitionsWatch | None = None
        self.loading: asyncio.Future[None] | None = None
        """While the state is being loaded."""
        self.refusal: Refusal | None = None
        """Why it could not be loaded."""

    def on_loaded(self, _loading: object) -> None:
        """The load has ended: its task is dropped, because an idle share partition is to take little memory."""
        self.loading = None

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition ever since the share partition was made."""
        return self.hosted.role is Role.LEADER and self.hosted.follow_count == self._follow_count

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be read of it any more."""
        return self.partition.state in (PartitionState.FAILED, PartitionState.FENCED) or not self.is_current

    @property
    def failure(self) -> Refusal | None:
        """Why nothing can be read of it any more; None if it can be read, or is still being loaded."""
        if not self.has_failed:
            return None
        refusal = self.refusal or self.partition.refusal
        return refusal if refusal is not None and self.is_current else NO_LEADER

    def readable(self, isolation: FetchIsolation) -> tuple[int, int]:
        """Return from where to where records could be acquired: nothing if the first is not below the second."""
        log = self.hosted.log
        if log is None or self.partition.state is not PartitionState.ACTIVE:
            return 0, 0
        return self.partition.next_fetch_offset(), end_offset(log, isolation)

    def watch(self) -> None:
        """Tell the owner of each append to the partition, and of each change of its leader, until fence()."""
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
        """Wake those who wait, in the order in which they came, up to the one that takes what there is."""
        for waiter in list(self.waiters):
            waiter.check(self)
            if self in waiter.held:
                return

    def schedule(self) -> None:
        """Set the timer to the first lock's time-out. To be called after each change of locks."""
        deadline_ms = self.partition.deadline_ms
        if deadline_ms is None or self.partition.state is not PartitionState.ACTIVE:
            return
        timer = self._timer
        if timer is None:
            self._timer = timer = CallbackTimer(self._on_due)
        elif timer.is_scheduled:
            if timer.deadline_ms <= deadline_ms:
                return  # it is set anew when it is due
            timer.cancel()
        self._owner.wheel.add(timer, deadline_ms)

    def _on_due(self) -> None:
        self._owner.on_due(self)

    def fence(self) -> None:
        """Give the share partition up: its waiting fetches are answered, its locks are nobody's any more."""
        self.partition.fence()
        if self._timer is not None:
            self._timer.cancel()
        if self._watch is not None:
            self._watch.abandon()
        self.notify()
