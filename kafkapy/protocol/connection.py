"""One connection's bytes as a pure machine: bytes in -> whole request frames out, answers in -> ordered bytes out.

A frame on the wire is a 4-byte big-endian size and that many bytes. Invariants held here:

* A frame's buffer grows with what has arrived, never to what its size claims, nor ahead of it but by the eighth that a
  bytearray takes in reserve. Each frame is handed out over a bytearray of its own that is never reused, so that whoever
  is given it may keep it or patch it.
* Answers leave in the order of the requests, whatever order they come in. A request without an answer (acks=0) holds
  its place and sends nothing.
* No request starts while the connection is muted, has `max_in_flight` requests unanswered, or has `max_output_bytes`
  waiting for a peer that does not drain. The driver does not receive then, so that the peer's own buffers fill up.
* Until the connection is admitted (authenticated, where its listener asks for a login) a frame is at most
  `unadmitted_frame_bytes`, and requests go one at a time.
* A FileRegion of an answer is released exactly once: when it was sent, or through what `close` returns.
"""

import struct
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.seams import FileRegion, ReadableBuffer

if TYPE_CHECKING:
    from kafkapy.protocol.primitives import Writer

_PRODUCE_KEY = b"\0\0"
_SIZE = struct.Struct(">i")
_unpack_size = _SIZE.unpack_from
_pack_size = _SIZE.pack

COALESCED_BYTES = 16 * 1024
"""An answer up to this size is copied behind its neighbours (a larger one costs more to copy than to send apart)."""

LARGE_REST_BYTES = 16 * 1024
"""From this many missing bytes on, the rest of a frame is received without what follows it."""

GATHERED_BYTES = 1024 * 1024
GATHERED_BUFFERS = 64
"""What one gathering write takes; Linux allows 1,024 buffers, a socket seldom takes more bytes than this."""

MAX_GATHERED_FRAME_BYTES = 16 * 1024
"""Larger Produce requests have more to do than what serving them together saves, and batch lengths of three bytes."""


@dataclass(slots=True, frozen=True)
class ConnectionLimits:
    """The bounds of one connection. Kafka's keys where it has them, else constants with their reason."""

    max_frame_bytes: int = 104_857_600
    """socket.request.max.bytes."""
    unadmitted_frame_bytes: int = 524_288
    """Before a login no request needs more (SASL tokens are the largest); Kafka's own bound for SASL frames."""
    max_in_flight: int = 64
    """Requests of one connection that may wait for their answers at a time. Java's clients keep 5."""
    max_output_bytes: int = 1_048_576
    """Answer bytes that wait for the peer before no further request of it is started."""


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """Who is at the other end: what a handler may know of, and order for, the connection that a request came on."""

    connection_id: str
    """`local host:port-peer host:port-processor-index`, as Kafka prints it."""
    listener_name: str
    security_protocol: str
    peer_host: str
    peer_port: int
    principal: str = "User:ANONYMOUS"
    software_name: str = "unknown"
    software_version: str = "unknown"
    is_authenticated: bool = True
    """False on SASL listeners until the login has succeeded."""
    is_by_token: bool = False
    """Whether it has logged in with a delegation token (KIP-48)."""
    is_forwarded: bool = False
    """Whether this is not the connection that the request came on: a broker passed it on, in an Envelope."""
    is_held: bool = False
    """Set by a handler that is about to wait: until it is answered no further request is started; then False again."""
    throttle_ms: int = 0
    """Set by a handler: once its answer is on its way, the connection is muted for so long (KIP-219); then 0 again."""
    close_after_answer: bool = False
    """Set by a handler: the connection closes once its answer has left (failed login; a failed acks=0 produce)."""


Route: TypeAlias = "Callable[[ConnectionInfo, memoryview], Coroutine[Any, Any, Writer | None]]"
"""Takes a request frame without its size, returns the answer's frame without its size, or None for no answer.

A ProtocolError out of it closes the connection."""


class Served(NamedTuple):
    """Requests that were served together: their answers as they are sent, sizes included, in their order.

    Where the answers have to be waited for they are None, and `wait(on_answers)` calls on_answers(answers) once they
    are there, perhaps before it returns.
    """

    frame_count: int
    end_position: int
    answers: bytes | None
    wait: "Callable[[Callable[[bytes], None]], None] | None" = None


class _Together(NamedTuple):
    """Answers to requests that were served together, until those before them have left."""

    frame_count: int
    answers: bytes


Gather: TypeAlias = "Callable[[ConnectionInfo, bytes, int, int], Served | None]"
"""Takes bytes that arrived, where in them a Produce request starts (with its size), and how many frames it may serve.

It serves at once what it can of them, from that one on; None where that one goes by `Route`."""


def gather_nothing(_info: ConnectionInfo, _data: bytes, _position: int, _most: int) -> None:
    """The Gather that leaves every request to Route."""


class Login(Protocol):
    """What a connection's requests go by until it is authenticated; by its Route and Gather if `is_asked_further`."""

    @property
    def max_frame_bytes(self) -> int:
        """The bound of a frame until then."""
        ...

    @property
    def timeout_ms(self) -> int:
        """How long it may take."""
        ...

    @property
    def is_asked_further(self) -> bool:
        """Whether requests still go by it after the login, because the session ends at some time."""
        ...

    @property
    def route(self) -> Route: ...

    @property
    def gather(self) -> Gather: ...


NewLogin: TypeAlias = "Callable[[ConnectionInfo], Login]"


def no_login(_info: ConnectionInfo) -> Login:
    """The NewLogin of a reactor without SASL listeners."""
    raise AssertionError("a connection has to log in where nothing asks for it")


class Connection:
    """The machine. A driver receives while it `can_start`, starts what `next_frame` gives, answers by sequence number.

    `sequence` of a frame is `started_count` right after `next_frame` returned it.
    """

    __slots__ = (
        "_answered_count",
        "_frame",
        "_frame_bytes",
        "_last_sequence",
        "_limits",
        "_max_frame_bytes",
        "_max_in_flight",
        "_max_output_bytes",
        "_position",
        "_ready",
        "_tail",
        "head_sent",
        "input",
        "mute_count",
        "output",
        "output_bytes",
        "started_count",
    )

    def __init__(self, limits: ConnectionLimits, unadmitted_frame_bytes: int | None = None) -> None:
        """`unadmitted_frame_bytes`: another bound than that of `limits` until it is admitted."""
        self._limits = limits
        bound = limits.unadmitted_frame_bytes if unadmitted_frame_bytes is None else unadmitted_frame_bytes
        self._max_frame_bytes = min(bound, limits.max_frame_bytes)
        self._max_in_flight = 1
        self._max_output_bytes = limits.max_output_bytes
        self.input: bytes = b""
        self._position = 0
        self._frame: bytearray | None = None
        self._frame_bytes = 0
        self._ready: dict[int, Writer | _Together | None] = {}
        self._tail: bytearray | None = None
        self._answered_count = 0
        self._last_sequence = -1
        self.started_count = 0
        self.mute_count = 0
        self.output: deque[ReadableBuffer | FileRegion] = deque()
        self.output_bytes = 0
        self.head_sent = 0

    def admit(self) -> None:
        """Lift the bounds of a stranger: whole frames, several requests at a time. Idempotent."""
        self._max_frame_bytes = self._limits.max_frame_bytes
        self._max_in_flight = self._limits.max_in_flight

    def close_after(self, sequence: int) -> None:
        """Start nothing more; the answer of `sequence`, not given yet, is the last to leave."""
        if not 0 <= self._last_sequence < sequence:
            self._last_sequence = sequence

    def close_after_started(self) -> None:
        """Start nothing more; what was started is still answered (the peer has ended its side)."""
        self.close_after(self.started_count)

    # ---- bytes in

    @property
    def can_start(self) -> bool:
        """True where the next request may start: if it has not arrived (next_frame gave None), receive."""
        return not (
            self.mute_count
            or self.started_count - self._answered_count >= self._max_in_flight
            or self.output_bytes >= self._max_output_bytes
            or self._last_sequence >= 0
        )

    @property
    def is_mid_frame(self) -> bool:
        """True while a frame has begun to arrive and is not whole (a split size prefix is too little to count)."""
        return self._frame is not None and len(self._frame) < self._frame_bytes

    @property
    def begun_frame_bytes(self) -> int:
        """The size of the frame that has begun to arrive and is not whole, 0 where there is none."""
        return self._frame_bytes if self.is_mid_frame else 0

    def feed(self, data: bytes) -> None:
        """Take bytes that have arrived. Only after next_frame has returned None for want of bytes."""
        frame = self._frame
        if frame is None:
            rest = self.input[self._position :]
            assert len(rest) < _SIZE.size, "bytes were fed before the frames at hand were taken"
            self.input = rest + data if rest else data
            self._position = 0
            return
        missing = self._frame_bytes - len(frame)
        if len(data) > missing:
            frame += data[:missing]
            self.input, self._position = data, missing
        else:
            frame += data
            self.input, self._position = b"", 0

    @property
    def large_rest_bytes(self) -> int:
        """How many bytes a large frame lacks: receive no more than those, then `feed_frame`. 0: receive, then `feed`.

        What is received into a small buffer that stays in the processor's cache and copied to the frame's end costs no
        more than zeroing the frame's memory beforehand, which receiving straight into it would take.
        """
        frame = self._frame
        if frame is None:
            return 0
        missing = self._frame_bytes - len(frame)
        return missing if missing >= LARGE_REST_BYTES else 0

    def feed_frame(self, part: ReadableBuffer) -> None:
        """Take bytes of the large frame that is under way. They are copied."""
        assert self._frame is not None
        self._frame += part
        assert len(self._frame) <= self._frame_bytes, "more than the frame lacks"

    def next_frame(self) -> memoryview | None:
        """Return the next whole frame (without its size) that may start now, or None.

        Raises ProtocolError for a size that is negative or above the bound; the connection cannot be read any further.
        """
        if not self.input and self._frame is None:
            return None
        if (
            self.started_count - self._answered_count >= self._max_in_flight
            or self.output_bytes >= self._max_output_bytes
            or self.mute_count
            or self._last_sequence >= 0
        ):
            return None
        if self._frame is not None:
            return self._take_grown_frame()
        data, position = self.input, self._position
        start = position + 4
        if len(data) < start:
            return None
        (size,) = _unpack_size(data, position)
        if not 0 <= size <= self._max_frame_bytes:
            raise ProtocolError(_describe_size(size, self._max_frame_bytes))
        end = start + size
        if end < len(data):
            self._position = end
        elif end == len(data):
            self.input, self._position = b"", 0
        else:
            self._begin_frame(size, start)
            return None
        self.started_count += 1
        return memoryview(bytearray(data[start:end]))

    def produces_at_hand(self) -> tuple[bytes, int, int] | None:
        """Return the bytes at hand, where in them the next frame starts, and how many may start, if it is a Produce.

        What is served of them is told to `take_served`, before anything else.
        """
        position = self._position
        if (
            not self.input.startswith(_PRODUCE_KEY, position + 4)
            or self._frame is not None
            or self.output_bytes >= self._max_output_bytes
            or self.mute_count
            or self._last_sequence >= 0
            or self._max_frame_bytes < MAX_GATHERED_FRAME_BYTES
        ):
            return None
        room = self._max_in_flight - self.started_count + self._answered_count
        if room <= 0:
            return None
        return self.input, position, room

    def take_served(self, served: Served) -> int:
        """Take note of what was served of what `produces_at_hand` returned; return the first one's sequence number.

        Answers that have to be waited for are told to `answer_together`.
        """
        if served.end_position < len(self.input):
            self._position = served.end_position
        else:
            self.input, self._position = b"", 0
        started, answers = self.started_count, served.answers
        self.started_count = started + served.frame_count
        if answers is None:
            return started + 1
        if started != self._answered_count:
            self._ready[started + 1] = _Together(served.frame_count, answers)
            return started + 1
        self._answered_count = self.started_count
        self.output_bytes += len(answers)
        self._append(answers)
        return started + 1

    def _begin_frame(self, size: int, start: int) -> None:
        self._frame = bytearray(memoryview(self.input)[start:])
        self._frame_bytes = size
        self.input = b""
        self._position = 0

    def _take_grown_frame(self) -> memoryview | None:
        frame = self._frame
        assert frame is not None
        if len(frame) < self._frame_bytes:
            return None
        self._frame = None
        self.started_count += 1
        return memoryview(frame)

    # ---- answers in

    def answer(self, sequence: int, response: "Writer | None") -> None:
        """Take the answer of a request (None: it has none) and line up all that may leave by it."""
        if sequence != self._answered_count + 1:
            self._ready[sequence] = response
            return
        self._answered_count = sequence
        if response is not None:
            self._emit(response)
        if self._ready:
            self._emit_ready()

    def answer_together(self, first: int, frame_count: int, answers: bytes) -> None:
        """Take the answers of `frame_count` requests from the sequence number `first` on, as they are sent."""
        if first != self._answered_count + 1:
            self._ready[first] = _Together(frame_count, answers)
            return
        self._emit_together(frame_count, answers)
        if self._ready:
            self._emit_ready()

    def _emit_ready(self) -> None:
        """Line up the answers that waited for those before them."""
        ready = self._ready
        while (sequence := self._answered_count + 1) in ready:
            held = ready.pop(sequence)
            if isinstance(held, _Together):
                self._emit_together(held.frame_count, held.answers)
                continue
            self._answered_count = sequence
            if held is not None:
                self._emit(held)

    def _emit_together(self, frame_count: int, answers: bytes) -> None:
        is_after_last = 0 <= self._last_sequence <= self._answered_count
        self._answered_count += frame_count
        if not is_after_last:
            self.output_bytes += len(answers)
            self._append(answers)

    def _emit(self, response: "Writer") -> None:
        if 0 <= self._last_sequence < self._answered_count:
            _release(response)
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
            self._append(payload)
        elif payload.length:
            self.output.append(payload)
            self._tail = None
        else:
            payload.release()

    # ---- ordered bytes out

    @property
    def is_finished(self) -> bool:
        """True once the last answer to be sent has left: the driver closes."""
        return 0 <= self._last_sequence <= self._answered_count and not self.output

    @property
    def in_flight_count(self) -> int:
        return self.started_count - self._answered_count

    def gather(self, read_small: Callable[[FileRegion], bytes | None]) -> tuple[list[ReadableBuffer], bool, int]:
        """Return the buffers to send next, whether a region follows them directly, and how many bytes they are.

        A region ends the list unless `read_small` gives its bytes, which then take its place. An empty list means that
        a region is at the head.
        """
        output = self.output
        head = output[0]
        if len(output) == 1 and not self.head_sent and head.__class__ is bytearray:
            return [head], False, len(head)
        buffers: list[ReadableBuffer] = []
        gathered_bytes = 0
        for index, item in enumerate(output):
            start = 0 if index else self.head_sent
            if isinstance(item, FileRegion):
                data = None if start else read_small(item)
                if data is None:
                    return buffers, True, gathered_bytes
                output[index] = data
                item.release()
                item = data
            buffers.append(memoryview(item)[start:] if start else item)
            gathered_bytes += len(item) - start
            if gathered_bytes >= GATHERED_BYTES or len(buffers) >= GATHERED_BUFFERS:
                break
        return buffers, False, gathered_bytes

    def sent(self, count: int) -> None:
        """Take away what has left: `count` bytes from the head of the output."""
        self.output_bytes -= count
        output = self.output
        if not self.output_bytes and len(output) == 1:  # the commonest by far, and cheaper said apart
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
            self._tail = None  # nothing is added to a buffer that is on its way

    def close(self) -> list[FileRegion]:
        """Forget everything; return the regions that the caller releases now."""
        regions = [item for item in self.output if isinstance(item, FileRegion)]
        for response in self._ready.values():
            if response is not None and not isinstance(response, _Together):
                regions += _regions(response)
        self.output.clear()
        self._ready.clear()
        self.input, self._position, self._frame, self._tail = b"", 0, None, None
        self.output_bytes = self.head_sent = 0
        self._last_sequence = 0
        return regions


def _regions(response: "Writer") -> list[FileRegion]:
    return [payload for _, payload in response.splices if isinstance(payload, FileRegion)]


def _release(response: "Writer") -> None:
    for region in _regions(response):
        region.release()


def discard(response: "Writer | None") -> None:
    """Release the regions of an answer whose connection is gone."""
    if response is not None:
        _release(response)


def _describe_size(size: int, max_frame_bytes: int) -> str:
    """Return what to say of a frame size out of bounds."""
    from kafkapy.protocol.foreign import foreign_protocol  # only mistakes pay for it

    spoken = foreign_protocol(size)
    told = f"frame size {size} is not within 0 and {max_frame_bytes}"
    return told if spoken is None else f"the client speaks {spoken} to a port of Kafka's plain protocol ({told})"
