"""A fetch that waits for fetch.min.bytes, or until fetch.max.wait.ms has passed.

`ReplicaManager.complete_waiting` looks at the fetches of a partition after each change of its offsets, role or leader
epoch. So a leader that moves ends the wait; the read that follows finds the error (`Partition.check_leader`). A
follower's fetch within a session waits in follower_watch.py.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from kafkapy.replication.fetch_read import available_bytes, end_offset
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.timer.purgatory import DelayedOperation

if TYPE_CHECKING:
    from kafkapy.replication.fetch_session import FetchedPartition
    from kafkapy.replication.hosted_partitions import HostedPartition


class DelayedFetch(DelayedOperation):
    """Completes when min_bytes can be read, or at once when a partition can no longer be served.

    Bytes count up to the reader's limit (high watermark, last stable offset or log end). The caller reads after
    `on_done`: nothing that was read before is kept.
    """

    __slots__ = ("_is_held_back", "_isolation", "_min_bytes", "_on_done", "_partitions", "_reads_followers")

    def __init__(
        self,
        partitions: Sequence[tuple["FetchedPartition", "HostedPartition"]],
        *,
        isolation: FetchIsolation,
        min_bytes: int,
        on_done: Callable[[], None],
        reads_followers: bool = False,
        is_held_back: "Callable[[HostedPartition], bool] | None" = None,
    ) -> None:
        """`is_held_back(partition)`: whether a throttle denies records of the partition to the reading follower now."""
        super().__init__()
        self._is_held_back = is_held_back
        self._reads_followers = reads_followers
        self._partitions = partitions
        self._isolation = isolation
        self._min_bytes = min_bytes
        self._on_done = on_done

    def try_complete(self) -> bool:
        is_enough = self._has_any() if self._min_bytes <= 1 else self._has_enough()
        return is_enough and self.complete()

    def on_complete(self) -> None:
        self._on_done()

    def _has_any(self) -> bool:
        """The common case, min.bytes 1: one readable offset is enough, without counting bytes."""
        for requested, partition in self._partitions:
            request = requested.request
            check = partition.check_readable if self._reads_followers else partition.check_leader
            if partition.log is None or check(request.current_leader_epoch):
                return True
            if request.fetch_offset < end_offset(partition.log, self._isolation):
                if self._is_held_back is not None and self._is_held_back(partition):
                    continue
                return True
            if request.fetch_offset > partition.log.log_end_offset:
                return True
        return False

    def _has_enough(self) -> bool:
        total = 0
        for requested, partition in self._partitions:
            available = available_bytes(partition, requested, self._isolation, reads_followers=self._reads_followers)
            if available is None:
                return True
            if self._is_held_back is None or not self._is_held_back(partition):
                total += available
            if total >= self._min_bytes:
                return True
        return False


class PartitionsWatch(DelayedOperation):
    """Reports each event of its partitions, and its time-out, until it is abandoned: for a fetch of many partitions.

    `on_data` is called at once when the watch begins: for what came since the partitions were read.
    """

    __slots__ = ("_on_data",)

    def __init__(self, on_data: Callable[[], None]) -> None:
        super().__init__()
        self._on_data = on_data

    def try_complete(self) -> bool:
        self._on_data()
        return False

    def on_complete(self) -> None:
        self._on_data()
