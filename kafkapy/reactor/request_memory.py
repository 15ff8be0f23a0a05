"""The broker-wide memory bound on received, unanswered requests: the fuller it is, the less is read from connections.

Bytes are counted from arrival until the request is answered, or waits and its frame is not needed any more: what it
takes decoded is counted in runtime/decoded_requests.py. Requests are counted while they wait for their
connection's turn, like those in Kafka's request queue. A started request counts by its
bytes only. Neither requests that wait for others (a long poll, a produce for its replicas) nor peers that do not read
can stop the broker.

A partially received frame holds bytes that are freed only when it is complete. Therefore:

* A partial frame is received further only while its size is at most half of the free bytes. Large frames pause first,
  and always leave room for small requests.
* While little is free, a connection that is between two frames receives little at once: enough for a small request, or
  for the size of a larger one.
* So that partial frames cannot deadlock, one of the waiting readers, the lease holder, may receive whatever its frame's
  size. It keeps the lease until its frame is complete, unless it stalls (stall_watch.py). If its frame has exceeded the
  bound, the next one gets the lease only after requests were answered.

So the bytes never exceed `peak_bytes`: the bound, and one frame. Apache Kafka's memory pool may be exceeded by one
request as well (SimpleMemoryPool, not strict). Memory beside them: a begun frame of up to MAX_WHOLE_BYTES
(protocol/partial_frame.py) has a buffer of its size once half of it has come.
"""

from collections.abc import Callable
from typing import Final, Protocol

from kafkapy.protocol.connection import LARGE_REST_BYTES
from kafkapy.protocol.partial_frame import MAX_COALESCED_FRAME_BYTES

TIGHT_SHARE: Final = 8
"""When less than this fraction (1/8) is free, connections receive little at once, and no lease is passed on."""


LAST_RECEIVE_BYTES: Final = LARGE_REST_BYTES + MAX_COALESCED_FRAME_BYTES
"""The most that one receive returns from a connection that is not within a large frame."""


class Reader(Protocol):
    """A connection as RequestMemory sees it."""

    @property
    def begun_frame_bytes(self) -> int:
        """The full size of the partially received frame, 0 if there is none."""
        ...

    def resume(self) -> None:
        """Try to receive again."""
        ...


class RequestMemory:
    """Counts bytes and requests; keeps the readers that wait for room, in order of arrival."""

    __slots__ = (
        "_max_requests",
        "_on_wait",
        "_roomy_bytes",
        "bytes",
        "lease_holder",
        "max_bytes",
        "peak_bytes",
        "requests",
        "tight_bytes",
        "waiting",
    )

    def __init__(self, *, max_bytes: int, max_requests: int, max_frame_bytes: int, on_wait: Callable[[], None]) -> None:
        """`on_wait` is called whenever a reader has to wait."""
        assert max_bytes > 0
        assert max_requests > 0
        self.max_bytes = max_bytes
        self.peak_bytes = max_bytes + LAST_RECEIVE_BYTES + max_frame_bytes
        """The bytes are never more: the bound, the last receive that fitted, and the lease holder's frame."""
        self._max_requests = max_requests
        self._roomy_bytes = max(0, max_bytes - 2 * max_frame_bytes)  # below this every frame may be received
        self.tight_bytes = max_bytes - max_bytes // TIGHT_SHARE
        """With so many bytes in use, a connection between two frames receives PEEK_BYTES at once, not RECEIVE_BYTES."""
        self._on_wait = on_wait
        self.waiting: dict[Reader, None] = {}
        self.bytes = 0
        self.requests = 0
        self.lease_holder: Reader | None = None

    @property
    def is_full(self) -> bool:
        """Whether only the lease holder may receive."""
        return self.bytes >= self.max_bytes or self.requests >= self._max_requests

    @property
    def may_resume(self) -> bool:
        """Whether a waiting reader may be able to continue."""
        return bool(self.waiting) and (not self.is_full or self._may_lease)

    @property
    def _may_lease(self) -> bool:
        """Whether the lease is free, and no earlier holder's frame exceeds the bound.

        Without such a frame the bytes may all belong to partial frames, of which none would be completed. A holder
        whose frame was complete when no reader waited has not given the lease back: `end_lease` was not called.
        """
        holder = self.lease_holder
        is_free = holder is None or not holder.begun_frame_bytes
        return is_free and self.bytes < self.max_bytes + LAST_RECEIVE_BYTES

    @property
    def waits_for_turns(self) -> bool:
        """Whether the count of queued requests, not of bytes, makes readers wait."""
        return self.requests >= self._max_requests

    def may_receive(self, reader: Reader) -> bool:
        """Return whether `reader` may receive now; if not, it is resumed later."""
        if self.bytes < self._roomy_bytes and self.requests < self._max_requests:
            return True
        if self._has_room_for(reader):
            return True
        if reader.begun_frame_bytes and (self.lease_holder is reader or self._may_lease):
            self.lease_holder = reader
            return True
        self.waiting[reader] = None
        self._on_wait()
        return False

    def _has_room_for(self, reader: Reader) -> bool:
        return not self.is_full and 2 * reader.begun_frame_bytes <= self.max_bytes - self.bytes

    def end_lease(self, reader: Reader) -> bool:
        """Call when `reader` has no partial frame any more; return whether waiting readers should be resumed."""
        if self.lease_holder is not reader:
            return False
        self.lease_holder = None
        return bool(self.waiting)

    def pass_lease_on(self) -> None:
        """Move the lease from a stalled holder to the first waiting reader whose partial frame leaves some room."""
        room_bytes = self.tight_bytes - self.bytes
        for reader in self.waiting:
            if 0 < reader.begun_frame_bytes <= room_bytes:
                self.lease_holder = reader
                del self.waiting[reader]
                reader.resume()
                return

    def forget(self, reader: Reader) -> bool:
        """Remove `reader`, which has closed; return whether waiting readers should be resumed."""
        self.waiting.pop(reader, None)
        return self.end_lease(reader)

    def resume_waiting(self) -> None:
        """Resume the waiting readers that there is room for; the others keep their places in the queue."""
        for reader in list(self.waiting):
            may_lease = self._may_lease
            if self.is_full and not may_lease:
                return
            may_try = self._has_room_for(reader) or (may_lease and reader.begun_frame_bytes > 0)
            if may_try and reader in self.waiting:
                del self.waiting[reader]
                reader.resume()
