"""The state machine of one connection: received bytes become request frames, responses become ordered output bytes.

Driven by `reactor/link.py`. A frame on the wire is a 4-byte big-endian size and that many bytes. Invariants:

* Memory is never allocated for the size that a frame claims, only for what has arrived (partial_frame.py). Each frame
  is returned in its own bytearray, which is never reused: the receiver may keep it or modify it.
* Responses are sent in the order of the requests, whatever the order they complete in. A request without a response
  (acks=0) keeps its place in that order and sends nothing.
* No request starts while the connection is muted, has `max_in_flight` unanswered requests, or has `max_output_bytes`
  of unsent output, with the responses that wait for earlier ones (`ready_bytes`): a request that is parked for minutes
  would let the others fill the memory. The driver does not receive then, so TCP flow control stops the peer.
* Until the connection is admitted (authenticated, if its listener requires a login) a frame is at most
  `unadmitted_frame_bytes`, and requests run one at a time.
* Each FileRegion of a response is released exactly once: when it has been sent, or by the caller of `close`.
"""

import struct
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kafkapy.errors import ProtocolError
from kafkapy.protocol.kept_responses import Together, discard, memory_of, regions_of
from kafkapy.protocol.partial_frame import MAX_COALESCED_FRAME_BYTES, MAX_JOINED_FRAME_BYTES, JoinedFrames, PartialFrame
from kafkapy.protocol.serving import ConnectionLimits, Served
from kafkapy.seams import FileRegion, ReadableBuffer
from kafkapy.types import MIN_VIEW_BYTES

if TYPE_CHECKING:
    from kafkapy.protocol.primitives import Writer

_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from
_pack_size = _SIZE.pack

COALESCED_BYTES = 16 * 1024
"""Responses up to this size are copied into one buffer with their neighbours; larger ones cost more than that saves."""

LARGE_REST_BYTES = 16 * 1024
"""If at least this many bytes of a frame are missing, receive only this frame's bytes, not those that follow."""

MIN_SHARED_BYTES = 1024
"""Payloads of this size are not copied: a buffer of its own for what precedes each takes some 100 bytes."""

RECEIVE_BYTES = 64 * 1024
"""The size of one receive call while no large frame is partially received."""

MAX_WRITE_BYTES = 1024 * 1024
MAX_WRITE_BUFFERS = 64
"""Limits of one gathering write. Linux allows 1,024 buffers; a socket seldom accepts more bytes than this."""
MAX_READ_AHEAD_BYTES = 256 * 1024
"""Small regions are read for a write with fewer bytes: what a socket does not accept of them is kept in memory."""
MAX_TAKEN_BYTES = 64 * 1024
"""Where no request may start, at most this many bytes of those that have started are kept with the rest."""


class Connection:
    """The machine. The driver receives while `can_start`, starts the frames of `next_frame`, and passes responses in.

    Responses are matched by sequence number: that of a frame is `started_count` right after `next_frame` returned it.
    """

    __slots__ = (
        "_answered_count",
        "_coalesced_key",
        "_joined",
        "_last_sequence",
        "_limits",
        "_max_frame_bytes",
        "_max_in_flight",
        "_max_output_bytes",
        "_partial",
        "_position",
        "_ready",
        "_tail",
        "head_sent",
        "input",
        "mute_count",
        "output",
        "output_bytes",
        "ready_bytes",
        "receive_bytes",
        "started_count",
    )

    def __init__(self, limits: ConnectionLimits, unadmitted_frame_bytes: int | None = None) -> None:
        """`unadmitted_frame_bytes` replaces the value in `limits` if given."""
        self._limits = limits
        bound = limits.unadmitted_frame_bytes if unadmitted_frame_bytes is None else unadmitted_frame_bytes
        self._max_frame_bytes = min(bound, limits.max_frame_bytes)
        self._max_in_flight = 1
        self._max_output_bytes = limits.max_output_bytes
        self._coalesced_key = limits.coalesced_key
        self._joined = JoinedFrames(limits.coalesced_key)
        self.input: bytes = b""
        self.receive_bytes = RECEIVE_BYTES
        """How many bytes to receive between two frames: RECEIVE_BYTES, if no recent frame was large."""
        self._position = 0
        self._partial: PartialFrame | None = None
        """The frame that is not whole yet, or may not start yet."""
        self._ready: dict[int, Writer | Together | None] = {}
        """Responses that wait for earlier ones, by sequence number."""
        self.ready_bytes = 0
        """The memory of those responses; `output_bytes` includes it."""
        self._tail: bytearray | None = None
        self._answered_count = 0
        self._last_sequence = -1
        self.started_count = 0
        self.mute_count = 0
        self.output: deque[ReadableBuffer | FileRegion] = deque()
        self.output_bytes = 0
        self.head_sent = 0

    def admit(self) -> None:
        """Apply the limits of an authenticated connection: full frame size, several requests at once. Idempotent."""
        self._max_frame_bytes = self._limits.max_frame_bytes
        self._max_in_flight = self._limits.max_in_flight

    def close_after(self, sequence: int) -> None:
        """Start no more requests; the response to `sequence`, which is not answered yet, is the last to be sent."""
        if not 0 <= self._last_sequence < sequence:
            self._last_sequence = sequence

    def close_after_started(self) -> None:
        """Start no more requests; the started ones are still answered (the peer has closed its sending side)."""
        self.close_after(self.started_count)

    # ---- bytes in

    @property
    def can_start(self) -> bool:
        """Whether the next request may start. If next_frame still returns None, more bytes must be received."""
        return not (
            self.mute_count
            or self.started_count - self._answered_count >= self._max_in_flight
            or self.output_bytes >= self._max_output_bytes
            or self._last_sequence >= 0
        )

    @property
    def is_mid_frame(self) -> bool:
        """Whether a frame is partially received (an incomplete size prefix does not count)."""
        return self._partial is not None and self._partial.missing_bytes > 0

    @property
    def begun_frame_bytes(self) -> int:
        """The full size of the partially received frame, 0 if there is none."""
        partial = self._partial
        return partial.size_bytes if partial is not None and partial.missing_bytes else 0

    def feed(self, data: bytes) -> None:
        """Take received bytes. Call only after next_frame has returned None for lack of bytes."""
        partial = self._partial
        if partial is None:
            rest = self.input[self._position :]
            assert len(rest) < _SIZE.size, "bytes were fed before the frames at hand were taken"
            self.input = rest + data if rest else data
            self._position = 0
            return
        missing = partial.missing_bytes
        if len(data) >= missing and self._joined.has(partial):
            self._rejoin(partial, data)
        elif len(data) > missing:
            partial.add(data[:missing])
            self.input, self._position = data, missing
        else:
            partial.add(data)
            self.input, self._position = b"", 0

    @property
    def rest_bytes(self) -> int:
        """The missing bytes of the partial frame.

        From LARGE_REST_BYTES on receive no more than these, into `room` if there is one, else for `feed_frame`.
        """
        partial = self._partial
        return 0 if partial is None else partial.missing_bytes

    def room(self) -> memoryview | None:
        """Return the place to receive the rest of the partial large frame into, if there is one yet."""
        partial = self._partial
        assert partial is not None, "no frame is partially received"
        return None if self._joined.has(partial) else partial.room()

    def received(self, count: int) -> None:
        """Take `count` bytes that were received into `room`."""
        partial = self._partial
        assert partial is not None, "no frame is partially received"
        partial.received(count)

    def feed_frame(self, part: bytes) -> None:
        """Take received bytes of the partial large frame."""
        partial = self._partial
        assert partial is not None, "no frame is partially received"
        partial.add(part)
        if not partial.missing_bytes and self._joined.has(partial):
            self._rejoin(partial, b"")

    def next_frame(self) -> memoryview | None:
        """Return the next complete frame (without its size prefix) if it may start now, otherwise None.

        Raises ProtocolError for a size that is negative or above the limit; the rest of the stream cannot be parsed.
        """
        partial = self._partial
        if not self.input and partial is None:
            return None
        if (
            self.started_count - self._answered_count >= self._max_in_flight
            or self.output_bytes >= self._max_output_bytes
            or self.mute_count
            or self._last_sequence >= 0
        ):
            if self._position >= MAX_TAKEN_BYTES:
                self._drop_taken()
            return None
        if partial is not None:
            return self._pop_joined_frame(partial)
        data, position = self.input, self._position
        start = position + 4
        if len(data) < start:
            self._drop_taken()
            return None
        (size,) = _unpack_size(data, position)
        if not 0 <= size <= self._max_frame_bytes:
            from kafkapy.protocol.foreign import describe_size  # imported only for this error

            raise ProtocolError(describe_size(size, self._max_frame_bytes))
        end = start + size
        if end < len(data):
            self._position = end
        elif end == len(data):
            self.input, self._position = b"", 0
        else:
            self._begin_frame(size, position)
            return None
        self.started_count += 1
        if size >= MIN_VIEW_BYTES:
            self._joined.on_served_alone(size)
            return memoryview(bytearray(memoryview(data)[start:end]))
        return memoryview(bytearray(data[start:end]))

    def requests_at_hand(self) -> tuple[bytes, int, int] | None:
        """If the next frame may be coalesced, return (received bytes, its position, how many requests may start).

        The caller reports what it served to `pop_served`, before any other call.
        """
        position = self._position
        if (
            not self.input.startswith(self._coalesced_key, position + 4)
            or self._partial is not None
            or self.output_bytes >= self._max_output_bytes
            or self.mute_count
            or self._last_sequence >= 0
            or self._max_frame_bytes < MAX_JOINED_FRAME_BYTES
        ):
            return None
        room = self._max_in_flight - self.started_count + self._answered_count
        if room <= 0:
            return None
        return self.input, position, room

    def pop_served(self, served: Served) -> int:
        """Consume the frames that were served of `requests_at_hand`; return the sequence number of the first.

        Responses that were not ready are passed to `respond_together` later.
        """
        if served.end_position < len(self.input):
            self._position = served.end_position
        else:
            self.input, self._position = b"", 0
        started, responses = self.started_count, served.responses
        self.started_count = started + served.frame_count
        if responses is None:
            return started + 1
        if started != self._answered_count:
            self._keep(started + 1, Together(served.frame_count, responses))
            return started + 1
        self._answered_count = self.started_count
        self.output_bytes += len(responses)
        self._append(responses)
        return started + 1

    def _begin_frame(self, size: int, position: int) -> None:
        """Keep a frame's received part. Requests of one size are received whole from now on, without joining."""
        self._joined.begin(size)
        self._partial = PartialFrame(size, self.input[position:])
        self.input = b""
        self._position = 0
        frame_bytes = _SIZE.size + size
        if size < LARGE_REST_BYTES:
            self.receive_bytes = RECEIVE_BYTES
        elif size <= MAX_COALESCED_FRAME_BYTES:
            self.receive_bytes = max(RECEIVE_BYTES // frame_bytes, 1) * frame_bytes
        else:
            self.receive_bytes = MAX_COALESCED_FRAME_BYTES

    def _drop_taken(self) -> None:
        """Release the input's started frames: the client decides when the rest goes on."""
        self.input = self.input[self._position :]
        self._position = 0

    def _rejoin(self, partial: PartialFrame, data: bytes) -> None:
        """Put a partial frame back before the bytes that complete it: a copy costs less than serving it alone."""
        self.input = b"".join((*partial.parts, data))
        self._position = 0
        self._partial = None

    def _pop_joined_frame(self, partial: PartialFrame) -> memoryview | None:
        if partial.missing_bytes:
            return None
        self._partial = None
        self.started_count += 1
        return partial.whole()

    # ---- responses in

    def respond(self, sequence: int, response: "Writer | None") -> None:
        """Take the response to a request (None: it has none); queue all responses that may now be sent."""
        if sequence != self._answered_count + 1:
            self._keep(sequence, response)
            return
        self._answered_count = sequence
        if response is not None:
            self._emit(response)
        if self._ready:
            self._emit_ready()

    def respond_together(self, first: int, frame_count: int, responses: bytes) -> None:
        """Take the responses (with size prefixes) to `frame_count` requests, starting at sequence number `first`."""
        if first != self._answered_count + 1:
            self._keep(first, Together(frame_count, responses))
            return
        self._emit_together(frame_count, responses)
        if self._ready:
            self._emit_ready()

    def _keep(self, sequence: int, response: "Writer | Together | None") -> None:
        """Keep a response until the earlier ones have come."""
        self._ready[sequence] = response
        self._count_ready(memory_of(response))

    def _count_ready(self, byte_count: int) -> None:
        self.ready_bytes += byte_count
        self.output_bytes += byte_count
        assert self.ready_bytes >= 0

    def _emit_ready(self) -> None:
        """Queue the responses that are next in order."""
        ready = self._ready
        while (sequence := self._answered_count + 1) in ready:
            held = ready.pop(sequence)
            self._count_ready(-memory_of(held))
            if isinstance(held, Together):
                self._emit_together(held.frame_count, held.responses)
                continue
            self._answered_count = sequence
            if held is not None:
                self._emit(held)

    def _emit_together(self, frame_count: int, responses: bytes) -> None:
        is_after_last = 0 <= self._last_sequence <= self._answered_count
        self._answered_count += frame_count
        if not is_after_last:
            self.output_bytes += len(responses)
            self._append(responses)

    def _emit(self, response: "Writer") -> None:
        if 0 <= self._last_sequence < self._answered_count:
            discard(response)
            return
        if response.splices:
            self._emit_spliced(response)
            return
        size = len(response)
        self.output_bytes += size + 4
        if size > COALESCED_BYTES:
            self._append(_pack_size(size))
            self._append(response)
            return
        tail = self._tail
        if tail is None:
            self._tail = tail = bytearray(_pack_size(size))
            self.output.append(tail)
        else:
            tail += _pack_size(size)
        tail += response

    def _append(self, data: ReadableBuffer) -> None:
        if len(data) > COALESCED_BYTES:
            self.output.append(data)
            self._tail = None
        elif self._tail is None:
            self._tail = bytearray(data)
            self.output.append(self._tail)
        else:
            self._tail += data

    def _emit_spliced(self, response: "Writer") -> None:
        size = response.wire_length
        self.output_bytes += size + 4
        self._append(_pack_size(size))
        done = 0
        with memoryview(response) as whole:
            for position, payload in response.splices:
                if position > done:
                    self._append(bytes(whole[done:position]))
                    done = position
                self._append_payload(payload)
            if done < len(whole):
                self._append(bytes(whole[done:]))

    def _append_payload(self, payload: Any) -> None:
        if not isinstance(payload, FileRegion):
            if len(payload) >= MIN_SHARED_BYTES:  # others may have it, too: a copy would be one for each
                self.output.append(payload)
                self._tail = None
            else:
                self._append(payload)
        elif payload.length:
            self.output.append(payload)
            self._tail = None
        else:
            payload.release()

    # ---- ordered bytes out

    @property
    def is_finished(self) -> bool:
        """True once the last response has been sent after close_after: the driver then closes the connection."""
        return 0 <= self._last_sequence <= self._answered_count and not self.output

    @property
    def in_flight_count(self) -> int:
        return self.started_count - self._answered_count

    def gather(self, read_small: Callable[[FileRegion], bytes | None]) -> tuple[list[ReadableBuffer], bool, int]:
        """Return (buffers to send next, whether a region follows them, their total bytes).

        A region ends the list, unless `read_small` returns its bytes, which then replace it. An empty list means that
        a region is at the head.
        """
        output = self.output
        head = output[0]
        # The most frequent output: one response that is whole, sent without a list of views.
        if len(output) == 1 and not self.head_sent and head.__class__ is bytearray:
            return [head], False, len(head)
        buffers: list[ReadableBuffer] = []
        write_bytes = 0
        for index, item in enumerate(output):
            start = 0 if index else self.head_sent
            if isinstance(item, FileRegion):
                data = None if start or write_bytes >= MAX_READ_AHEAD_BYTES else read_small(item)
                if data is None:
                    return buffers, True, write_bytes
                output[index] = data
                item.release()
                item = data
            if start or len(item) > MAX_WRITE_BYTES:
                item = memoryview(item)[start : start + MAX_WRITE_BYTES]  # TLS joins the buffers
            buffers.append(item)
            write_bytes += len(item)
            if write_bytes >= MAX_WRITE_BYTES or len(buffers) >= MAX_WRITE_BUFFERS:
                break
        return buffers, False, write_bytes

    def sent(self, count: int) -> None:
        """Remove `count` sent bytes from the head of the output."""
        self.output_bytes -= count
        output = self.output
        if not self.output_bytes and len(output) == 1:  # by far the most common case, handled separately for speed
            item = output.pop()
            if isinstance(item, FileRegion):
                item.release()
            self.head_sent = 0
            self._tail = None
            return
        count += self.head_sent
        while output and count >= len(output[0]):
            item = output.popleft()
            count -= len(item)
            if isinstance(item, FileRegion):
                item.release()
        self.head_sent = count
        if count or not output:
            self._tail = None  # never append to a partially sent buffer

    def close(self) -> list[FileRegion]:
        """Drop all input and output; return the regions, which the caller must release."""
        regions = [item for item in self.output if isinstance(item, FileRegion)]
        for response in self._ready.values():
            regions += regions_of(response)
        self.output.clear()
        self._ready.clear()
        self.input, self._position, self._tail = b"", 0, None
        self._partial = None
        self.output_bytes = self.ready_bytes = self.head_sent = 0
        self._last_sequence = 0
        return regions
