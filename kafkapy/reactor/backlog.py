"""The broker-wide account of requests that were received and not answered: when it is full, nobody is read from.

Bytes count from their arrival until their request is answered. Requests count while they wait for their connection's
turn, as those in Kafka's request queue do; a request that has started (a long poll, a produce waiting for replicas)
counts by its bytes only, so that waiting consumers cannot stop the broker, and neither can peers that do not drain.

A frame that has begun to arrive holds bytes that only its completion frees. So that begun frames cannot block each
other for ever, one of them at a time, the lease holder, is read from while the account is full.
"""

from collections.abc import Callable
from typing import Protocol


class Reader(Protocol):
    """A connection as the backlog sees it."""

    @property
    def is_mid_frame(self) -> bool: ...

    def resume(self) -> None:
        """Try to receive again."""
        ...


class Backlog:
    """The account, and those who wait for it to have room, in the order they came."""

    __slots__ = ("_max_bytes", "_max_requests", "_on_wait", "bytes", "lease_holder", "requests", "waiting")

    def __init__(self, *, max_bytes: int, max_requests: int, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called whenever somebody has to wait."""
        assert max_bytes > 0
        assert max_requests > 0
        self._max_bytes = max_bytes
        self._max_requests = max_requests
        self._on_wait = on_wait
        self.waiting: dict[Reader, None] = {}
        self.bytes = 0
        self.requests = 0
        self.lease_holder: Reader | None = None

    @property
    def is_full(self) -> bool:
        return self.bytes >= self._max_bytes or self.requests >= self._max_requests

    def may_receive(self, reader: Reader) -> bool:
        """Return whether `reader` may receive now; if not, it is resumed once it may."""
        if not self.is_full:
            return True
        if reader.is_mid_frame and self.lease_holder in (None, reader):
            self.lease_holder = reader
            return True
        self.waiting[reader] = None
        self._on_wait()
        return False

    def end_lease(self, reader: Reader) -> bool:
        """Say that `reader` holds no begun frame any more; return whether somebody should be resumed for it."""
        if self.lease_holder is not reader:
            return False
        self.lease_holder = None
        return bool(self.waiting)

    def forget(self, reader: Reader) -> bool:
        """`reader` is gone; return whether somebody should be resumed for it."""
        self.waiting.pop(reader, None)
        return self.end_lease(reader)

    def resume_waiting(self) -> None:
        """Let all who wait try again; who may not yet comes back to the queue."""
        waiting, self.waiting = self.waiting, {}
        for reader in waiting:
            reader.resume()
