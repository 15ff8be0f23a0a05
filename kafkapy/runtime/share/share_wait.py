"""A ShareFetch that waits for records: new data, a release, the time-out of a lock, or a moved start offset.

Several fetches may wait for one share partition, but only one may acquire at a time. The first that finds records to
acquire holds the share partition, in the same call that wakes it; the others continue to wait. When it ends, the next
one is woken.
"""

from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from kafkapy.runtime.share.in_use import InUse
from kafkapy.runtime.turns import Walk
from kafkapy.storage.log.reader import FetchIsolation

LOOKED_AT_ONCE: Final = 100
"""Share partitions that are checked before other requests get a turn: some tenths of a millisecond."""


class ShareWait:
    """A fetch and its share partitions, in the order in which it reads them.

    `look` checks them in turns. Once one has been checked, its changes call `check`, so that no change is lost between
    two turns, or between the last turn and the wait.
    """

    __slots__ = (
        "_isolation", "_looked_count", "_needs_records", "_on_ready", "_partitions", "_seen", "has_failed", "held",
        "is_enough",
    )  # fmt: skip

    def __init__(
        self,
        partitions: Sequence[InUse],
        isolation: FetchIsolation,
        seen: Mapping[InUse, tuple[int, int]],
        on_ready: Callable[[], None],
        *,
        needs_records: bool = True,
    ) -> None:
        """seen: the readable offsets (InUse.readable) that were too few: the fetch waits for more.

        on_ready: called when a share partition is held, or can no longer be read.
        needs_records: if false, the wait ends as soon as one share partition is loaded.
        """
        self._partitions = partitions
        self._isolation = isolation
        self._on_ready = on_ready
        self._seen = seen
        self._needs_records = needs_records
        self._looked_count = 0
        """How many of the share partitions, from the first one on, may have this registered."""
        self.held: list[InUse] = []
        self.has_failed = False
        self.is_enough = False
        """Whether the fetch needs no records, and a share partition is loaded."""

    @property
    def is_ready(self) -> bool:
        """Whether the wait has ended: a share partition is held, has failed, or is enough without records."""
        return bool(self.held) or self.has_failed or self.is_enough

    async def look(self, way: Walk) -> None:
        """Hold the first share partition with records to acquire, if there is one; register with the others.

        A failed one is recorded; records of other share partitions come first.
        """
        partitions = iter(self._partitions)
        while some := list(islice(partitions, LOOKED_AT_ONCE)):
            if way.is_over(len(some)):
                await way.give_way()
            for in_use in some:
                if self.held:
                    return
                in_use.waiters[self] = None
                self._looked_count += 1
                if in_use.has_failed:
                    self.has_failed = True
                else:
                    self.is_enough |= not self._needs_records and in_use.is_loaded
                    if self._may_acquire(in_use):
                        self._maybe_hold(in_use)

    async def hold_others(self, way: Walk) -> None:
        """Hold the other share partitions with records to acquire, too."""
        mine = set(self.held)
        partitions = iter(self._partitions)
        while some := list(islice(partitions, LOOKED_AT_ONCE)):
            if way.is_over(len(some)):
                await way.give_way()
            for in_use in some:
                if in_use not in mine:
                    self._maybe_hold(in_use)

    def end(self) -> None:
        """End all registrations, and release the held share partitions, which wakes the next fetches."""
        for in_use in islice(self._partitions, self._looked_count):
            in_use.waiters.pop(self, None)
        held, self.held = self.held, []
        for in_use in held:
            in_use.partition.release_fetch(self)
        for in_use in held:
            if in_use.waiters:
                in_use.notify()

    def check(self, in_use: InUse) -> bool:
        """Called when one of the share partitions has changed: hold it, or report that it can no longer be read.

        Return whether it is held now.
        """
        assert not self.is_ready, "a fetch that goes on is not told of changes"
        if in_use.has_failed:
            self.has_failed = True
            self._on_ready()
        elif self._may_acquire(in_use) and self._maybe_hold(in_use):
            self._on_ready()
            return True
        elif not self._needs_records and in_use.is_loaded:
            self.is_enough = True
            self._on_ready()
        return False

    def _may_acquire(self, in_use: InUse) -> bool:
        """Return whether there may be records to acquire: released ones, or new ones."""
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
