"""The broker-wide account of requests that were received and not answered: when it fills up, less is read.

Bytes count from their arrival until their request is answered. Requests count while they wait for their connection's
turn, as those in Kafka's request queue do; a request that has started (a long poll, a produce waiting for replicas)
counts by its bytes only, so that waiting consumers cannot stop the broker, and neither can peers that do not drain.

A frame that has begun to arrive holds bytes that only its completion frees. Therefore:

* A begun frame is received as long as it is no larger than half of what is free. The fuller the account, the smaller
  the frames: those of some MiB stop at some MiB of free room, and never keep small requests out.
* While little is free, a connection between two frames receives little at once: enough for a small request, or to learn
  the size of a larger one.
* So that begun frames cannot block each other for ever, one of those that wait, the lease holder, is received whatever
  its size. It keeps the lease until its frame is whole, unless it stalls (stall_watch.py).
"""

from collections.abc import Callable
from typing import Final, Protocol

TIGHT_SHARE: Final = 8
"""Once less than one part in so many is free, connections receive little at once, and no lease is passed on."""


class Reader(Protocol):
    """A connection as the backlog sees it."""

    @property
    def begun_frame_bytes(self) -> int:
        """The size of the frame that has begun to arrive and is not whole; 0 where none has."""
        ...

    def resume(self) -> None:
        """Try to receive again."""
        ...


class Backlog:
    """The account, and those who wait for it to have room, in the order they came."""

    __slots__ = (
        "_max_requests",
        "_on_wait",
        "_roomy_bytes",
        "bytes",
        "lease_holder",
        "max_bytes",
        "requests",
        "tight_bytes",
        "waiting",
    )

    def __init__(self, *, max_bytes: int, max_requests: int, max_frame_bytes: int, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called whenever somebody has to wait."""
        assert max_bytes > 0
        assert max_requests > 0
        self.max_bytes = max_bytes
        self._max_requests = max_requests
        self._roomy_bytes = max(0, max_bytes - 2 * max_frame_bytes)  # up to here every frame may be received
        self.tight_bytes = max_bytes - max_bytes // TIGHT_SHARE
        """From here on a connection between two frames receives PEEK_BYTES at once, not RECEIVE_BYTES."""
        self._on_wait = on_wait
        self.waiting: dict[Reader, None] = {}
        self.bytes = 0
        self.requests = 0
        self.lease_holder: Reader | None = None

    @property
    def is_full(self) -> bool:
        """Whether nobody but the lease holder may receive."""
        return self.bytes >= self.max_bytes or self.requests >= self._max_requests

    @property
    def waits_for_turns(self) -> bool:
        """Whether it is queued requests that keep others waiting, not bytes."""
        return self.requests >= self._max_requests

    def may_receive(self, reader: Reader) -> bool:
        """Return whether `reader` may receive now; if not, it is resumed once it may."""
        if self.bytes < self._roomy_bytes and self.requests < self._max_requests:
            return True
        if self._has_room_for(reader):
            return True
        if reader.begun_frame_bytes and self.lease_holder in (None, reader):
            self.lease_holder = reader
            return True
        self.waiting[reader] = None
        self._on_wait()
        return False

    def _has_room_for(self, reader: Reader) -> bool:
        return not self.is_full and 2 * reader.begun_frame_bytes <= self.max_bytes - self.bytes

    def end_lease(self, reader: Reader) -> bool:
        """Say that `reader` holds no begun frame any more; return whether somebody should be resumed for it."""
        if self.lease_holder is not reader:
            return False
        self.lease_holder = None
        return bool(self.waiting)

    def pass_lease_on(self) -> None:
        """Take the lease from a holder that stalls, and give it to the first who waits and would leave some room."""
        room_bytes = self.tight_bytes - self.bytes
        for reader in self.waiting:
            if 0 < reader.begun_frame_bytes <= room_bytes:
                self.lease_holder = reader
                del self.waiting[reader]
                reader.resume()
                return

    def forget(self, reader: Reader) -> bool:
        """`reader` is gone; return whether somebody should be resumed for it."""
        self.waiting.pop(reader, None)
        return self.end_lease(reader)

    def resume_waiting(self) -> None:
        """Let those who wait try again, as far as there is room for them; the others keep their places."""
        for reader in list(self.waiting):
            is_lease_free = self.lease_holder is None
            if self.is_full and not is_lease_free:
                return
            may_try = self._has_room_for(reader) or (is_lease_free and reader.begun_frame_bytes > 0)
            if may_try and reader in self.waiting:
                del self.waiting[reader]
                reader.resume()
