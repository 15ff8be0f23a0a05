"""A share partition in use here: the machine, the partition that it reads, its timer, and who waits for it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Final, Protocol

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


class InUse:
    """One share partition. Made at its first fetch, dropped with its group's last session, or its leadership."""

    __slots__ = ("_follow_count", "_timer", "_watch", "_wheel", "hosted", "partition", "refusal", "waiters")

    def __init__(
        self,
        partition: SharePartition,
        hosted: "HostedPartition",
        wheel: TimingWheel,
        on_due: "Callable[[InUse], None]",
    ) -> None:
        """on_due(self) is called when locks may have timed out."""
        self.partition = partition
        self.hosted = hosted
        self._follow_count = hosted.follow_count
        self._wheel = wheel
        self._timer = CallbackTimer(lambda: on_due(self))
        self.waiters: dict[Waiter, None] = {}
        self._watch: PartitionsWatch | None = None
        self.refusal: Refusal | None = None
        """Why it could not be loaded."""

    @property
    def is_current(self) -> bool:
        """Whether this broker has led the partition ever since the share partition was made."""
        return self.hosted.role is Role.LEADER and self.hosted.follow_count == self._follow_count

    @property
    def has_failed(self) -> bool:
        """Whether nothing can be read of it any more."""
        return self.partition.state in (PartitionState.FAILED, PartitionState.FENCED) or not self.is_current

    def readable(self, isolation: FetchIsolation) -> tuple[int, int]:
        """Return from where to where records could be acquired: nothing if the first is not below the second."""
        log = self.hosted.log
        if log is None or self.partition.state is not PartitionState.ACTIVE:
            return 0, 0
        return self.partition.next_fetch_offset(), end_offset(log, isolation)

    def watch(self, replica_manager: "ReplicaManager", on_data: Callable[[], None]) -> None:
        """Call on_data() for each append to the partition, and each change of its leader, until fence()."""

        def on_event() -> None:
            if (
                self._watch is not None
                and self._watch.is_completed
                and self.partition.state is not PartitionState.FENCED
            ):
                self.watch(replica_manager, on_data)
            else:
                on_data()

        self._watch = None
        self._watch = replica_manager.watch_for_data([self.hosted], max_wait_ms=WATCH_MS, on_data=on_event)

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
        if timer.is_scheduled:
            if timer.deadline_ms <= deadline_ms:
                return  # it is set anew when it is due
            timer.cancel()
        self._wheel.add(timer, deadline_ms)

    def fence(self) -> None:
        """Give the share partition up: its waiting fetches are answered, its locks are nobody's any more."""
        self.partition.fence()
        self._timer.cancel()
        if self._watch is not None:
            self._watch.abandon()
        self.notify()
