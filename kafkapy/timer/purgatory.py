"""Delayed operations: each waits for an event on one of its keys or for its time-out, whichever comes first.

An operation completes exactly once. Completion also removes it from the timing wheel and from the watchers of all its
keys. Watchers are therefore only pending operations, and nothing has to be purged. Every step costs one dict operation
per key of the operation, independent of how many operations are pending. Driven by `replication/replica_manager.py`
(events) and `runtime/expirer.py` (time).

A key is any hashable object; partition objects are compared by identity.
"""

from collections.abc import Hashable, Sequence

from kafkapy.native import mypyc_attr
from kafkapy.timer.wheel import TimerEntry, TimingWheel


@mypyc_attr(allow_interpreted_subclasses=True)
class DelayedOperation(TimerEntry):
    """An operation that may have to wait. Subclasses define when it can complete and what happens then."""

    __slots__ = ("_keys", "_purgatory", "is_completed")

    def __init__(self) -> None:
        super().__init__()
        self.is_completed = False
        self._keys: Sequence[Hashable] = ()
        self._purgatory: Purgatory | None = None

    def try_complete(self) -> bool:
        """If the condition holds, call complete() and return True; otherwise return False."""
        raise NotImplementedError

    def on_complete(self) -> None:
        """Carry out the operation. Called exactly once, after it was removed from its keys and the wheel."""
        raise NotImplementedError

    def on_expiration(self) -> None:
        """Called before on_complete() when the time-out, not an event, completes the operation."""

    def complete(self) -> bool:
        """Stop waiting and call on_complete(); return False if the operation was already completed."""
        if not self._leave():
            return False
        self.on_complete()
        return True

    def abandon(self) -> None:
        """Stop waiting without calling on_complete(): the requester has disconnected."""
        self._leave()

    def on_timeout(self, now_ms: int) -> None:
        purgatory = self._purgatory
        if not self._leave():
            return
        if purgatory is not None:
            purgatory.expired_count += 1
        self.on_expiration()
        self.on_complete()

    def _leave(self) -> bool:
        if self.is_completed:
            return False
        self.is_completed = True
        if self._purgatory is not None:
            self._purgatory._forget(self)
        return True


class Purgatory:
    """Holds pending operations by key; times them out with a wheel that other purgatories may share."""

    __slots__ = ("_watchers", "_wheel", "expired_count", "waiting_count")

    def __init__(self, wheel: TimingWheel) -> None:
        self._wheel = wheel
        self._watchers: dict[Hashable, dict[DelayedOperation, None]] = {}
        self.waiting_count = 0
        self.expired_count = 0
        """How many operations their time-out has completed."""

    def try_complete_else_watch(
        self, operation: DelayedOperation, keys: Sequence[Hashable], *, timeout_ms: int, now_ms: int
    ) -> bool:
        """Complete the operation if possible; otherwise watch it under `keys` until now_ms + timeout_ms.

        Returns whether it completed. `now_ms` is from the clock that advances the wheel.
        """
        if operation.try_complete():
            return True
        assert keys, "nothing could ever complete it but its time-out"
        assert operation._purgatory is None, "an operation waits once"
        self._watch(operation, keys)
        self._wheel.add(operation, now_ms + timeout_ms)
        return False

    def check_and_complete(self, key: Hashable) -> int:
        """Call after an event on `key`: complete its watchers that can complete now; return how many did."""
        watchers = self._watchers.get(key)
        if watchers is None:
            return 0
        completed = 0
        for operation in list(watchers):
            if not operation.is_completed and operation.try_complete():
                completed += 1
        return completed

    def expire_all(self) -> int:
        """Complete all pending operations as if they had timed out (for a shutdown); return how many there were."""
        waiting = {operation: None for watchers in self._watchers.values() for operation in watchers}
        for operation in waiting:
            operation.on_timeout(0)
        return len(waiting)

    def postpone(self, by_ms: int) -> None:
        """Postpone the time-outs of all pending operations."""
        for operation in {each: None for watchers in self._watchers.values() for each in watchers}:
            operation.cancel()
            self._wheel.add(operation, operation.deadline_ms + by_ms)

    def watcher_count(self, key: Hashable) -> int:
        return len(self._watchers.get(key, ()))

    def _watch(self, operation: DelayedOperation, keys: Sequence[Hashable]) -> None:
        operation._purgatory = self
        operation._keys = keys
        self.waiting_count += 1
        for key in keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                self._watchers[key] = {operation: None}
            else:
                watchers[operation] = None

    def _forget(self, operation: DelayedOperation) -> None:
        operation.cancel()
        self.waiting_count -= 1
        for key in operation._keys:
            watchers = self._watchers.get(key)
            if watchers is None:
                continue  # the key was named twice
            watchers.pop(operation, None)
            if not watchers:
                del self._watchers[key]
        operation._keys = ()
        operation._purgatory = None
