"""A ShareFetch that waits for records: for new data, a release, a time-out of a lock, or a moved start.

Members that wait for one partition do not all read what one gets: whoever finds something to acquire holds the share
partition, in the same call in which it is woken, and the others go on waiting. When it lets go, the next is woken.
"""

from collections.abc import Callable, Mapping, Sequence

from kafkapy.runtime.share.in_use import InUse
from kafkapy.storage.log.reader import FetchIsolation


class ShareWait:
    """One fetch and its share partitions, in the order in which it reads them."""

    __slots__ = ("_isolation", "_on_ready", "_partitions", "_seen", "has_failed", "held")

    def __init__(
        self,
        partitions: Sequence[InUse],
        isolation: FetchIsolation,
        seen: Mapping[InUse, tuple[int, int]] | None = None,
    ) -> None:
        """seen: what could be read (InUse.readable) when that was not enough, so that more is waited for."""
        self._partitions = partitions
        self._isolation = isolation
        self._on_ready: Callable[[], None] | None = None
        """Called when something is held, or a share partition can no longer be read. None until the wait begins."""
        self._seen = {} if seen is None else seen
        self.held: list[InUse] = []
        self.has_failed = False

    def begin(self, on_ready: Callable[[], None]) -> None:
        """Be woken from now on."""
        self._on_ready = on_ready
        for in_use in self._partitions:
            in_use.waiters[self] = None

    def end(self) -> None:
        """Be woken no more, and let go of what is held; the next one is woken for that."""
        if self._on_ready is not None:
            for in_use in self._partitions:
                in_use.waiters.pop(self, None)
        self.let_go()

    def try_hold(self) -> bool:
        """Hold what has something to acquire, if there is more than has been seen; return whether something is held."""
        if not self._seen or any(self._may_acquire(in_use) for in_use in self._partitions):
            for in_use in self._partitions:
                self._maybe_hold(in_use)
        return bool(self.held)

    def _may_acquire(self, in_use: InUse) -> bool:
        """Return whether there may be something to acquire: a released record, or one after the end."""
        readable = in_use.readable(self._isolation)
        return readable[0] < readable[1] and readable != self._seen.get(in_use)

    def _maybe_hold(self, in_use: InUse) -> bool:
        first_offset, end_offset = in_use.readable(self._isolation)
        if first_offset >= end_offset or not in_use.partition.maybe_hold_fetch(self):
            return False
        if not in_use.partition.can_acquire():
            in_use.partition.release_fetch(self)
            return False
        self.held.append(in_use)
        return True

    def let_go(self) -> None:
        held, self.held = self.held, []
        for in_use in held:
            in_use.partition.release_fetch(self)
        for in_use in held:
            if in_use.waiters:
                in_use.notify()

    def check(self, in_use: InUse) -> None:
        """Something has changed in one of the share partitions: hold it, or report that it cannot be read any more."""
        if self.held or self.has_failed:
            return
        assert self._on_ready is not None, "only a wait that has begun is told of changes"
        if in_use.has_failed:
            self.has_failed = True
            self._on_ready()
        elif self._may_acquire(in_use) and self._maybe_hold(in_use):
            self._on_ready()

    def hold_others(self) -> None:
        """Hold also what else has something to acquire, when the wait has ended."""
        mine = set(self.held)
        for in_use in self._partitions:
            if in_use not in mine:
                self._maybe_hold(in_use)
