"""The driver of one connection: moves bytes between channel and protocol machine, starts handlers, sends responses.

A link reads while its machine can start requests and the broker has request memory left. `Rest` has the states in
which it does not, and what ends each. When reading pauses, the read callback stays registered until it next fires, so
that a short pause costs no system call.
"""

import asyncio
import logging
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.connection import Connection, ConnectionInfo, Login, discard
from kafkapy.reactor.limits import (
    AWAITED_BYTES,
    BYTES_PER_TURN,
    FRAME_RECEIVE_BYTES,
    FRAMES_PER_TURN,
    HALF_CLOSED_LINGER_MS,
    PEEK_BYTES,
    PROBED_BYTES,
    RECEIVE_BYTES,
    SENDFILE_BYTES,
)
from kafkapy.reactor.pending_request import PendingRequest
from kafkapy.reactor.regions import read_small
from kafkapy.seams import Channel, FileRegion

if TYPE_CHECKING:
    from kafkapy.reactor.processor import Processor

logger = logging.getLogger(__name__)

_FRAME_OVERHEAD = 4


class Rest(Enum):
    """Why a link does not read.

        state     entered when                                              ended by
        READING   nothing more has arrived, or BYTES_PER_TURN have          the loop, when bytes arrive: on_readable
        QUEUED    FRAMES_PER_TURN requests have been started                its place in the processor's queue
        ANSWERS   the machine can start no request: too many are not        a response that completes or is sent,
                  answered, a handler holds the connection, it is muted     the end of the throttle
        ROOM      the account of queued requests has no room for it         Processor.wake_waiting

    Any state may follow any other, by a turn: `resume` of a link that still cannot go on leaves it as it is.
    """

    READING = auto()
    QUEUED = auto()
    ANSWERS = auto()
    ROOM = auto()


READING: Final = Rest.READING


class Link:
    """The driver of one connection. All methods run on the loop's thread. Callbacks of the loop never raise."""

    __slots__ = (
        "_awaited_bytes",
        "_channel",
        "_coalesce",
        "_is_admitted",
        "_is_reading",
        "_is_writing",
        "_login",
        "_login_deadline",
        "_loop",
        "_machine",
        "_muted_until_s",
        "_probed",
        "_processor",
        "_read_ahead",
        "_request_memory",
        "_rest",
        "_route",
        "_unmuting",
        "_warm_until",
        "_warming",
        "info",
        "is_closed",
        "is_dirty",
        "is_queued",
        "last_active",
        "unstarted_bytes",
    )

    def __init__(self, processor: "Processor", channel: Channel, info: ConnectionInfo) -> None:
        self._processor = processor
        self._loop = processor.loop
        self._route = processor.route
        self._coalesce = processor.coalesce
        self._request_memory = processor.request_memory
        self._read_ahead = processor.read_ahead
        self._channel = channel
        self.info = info
        self._login: Login | None = None
        self._login_deadline: asyncio.TimerHandle | None = None
        self._unmuting: asyncio.TimerHandle | None = None
        self._muted_until_s = 0.0
        self._is_admitted = info.is_authenticated
        if self._is_admitted:
            self._machine = Connection(processor.limits.connection)
            self._machine.admit()
        else:
            self._begin_login(processor.new_login(info))
        self._is_reading = False
        self._awaited_bytes = 1
        self._rest = READING
        self._is_writing = False  # waiting for the channel to become writable
        self.unstarted_bytes = 0
        self._warming: FileRegion | None = None
        self._probed: FileRegion | None = None
        self._warm_until = 0  # the probed region is in the page cache up to here
        self.is_closed = False
        self.is_dirty = False
        self.is_queued = False
        self.last_active = self._loop.time()

    def _begin_login(self, login: Login) -> None:
        """Route requests to the login until it succeeds; close the connection after its timeout_ms."""
        self._machine = Connection(self._processor.limits.connection, login.max_frame_bytes)
        self._login = login
        self._route, self._coalesce = login.route, login.coalesce
        self._login_deadline = self._loop.call_later(login.timeout_ms / 1000, self._login_is_late)

    def _login_is_late(self) -> None:
        logger.info("Closing connection %s: not authenticated in time", self.info.connection_id)
        self.close()

    def _admit(self) -> None:
        """Lift the limits of an unauthenticated connection after the login has succeeded."""
        assert self._login is not None
        assert self._login_deadline is not None
        self._is_admitted = True
        self._machine.admit()
        self._login_deadline.cancel()
        if not self._login.is_asked_further:
            self._route, self._coalesce = self._processor.route, self._processor.coalesce
            self._login = None

    def open(self) -> None:
        """Start to read."""
        self._is_reading = True
        self._channel.on_readable(self.on_readable)

    @property
    def is_mid_frame(self) -> bool:
        return self._machine.is_mid_frame

    @property
    def begun_frame_bytes(self) -> int:
        """Return the full size of the partially received frame, 0 if there is none."""
        return self._machine.begun_frame_bytes

    @property
    def begun_frame(self) -> int | None:
        """Return the sequence number of the partially received frame, or None."""
        return self._machine.started_count if self._machine.is_mid_frame else None

    @property
    def is_idle(self) -> bool:
        """True if every started request is answered and every response has been sent."""
        machine = self._machine
        return not machine.in_flight_count and not machine.output

    # ---- callbacks of the loop; each catches all exceptions

    def on_readable(self) -> None:
        if self._rest is not READING:  # resume() registers the callback again
            self._is_reading = False
            self._channel.on_readable(None)
            return
        self._guarded(self._turn)

    def on_writable(self) -> None:
        self._guarded(self._continue_writing)

    def resume(self) -> None:
        """Continue reading after a wait: for request memory, for a turn, or for the end of a throttle."""
        self._guarded(self._resume)

    def progress(self) -> None:
        """Send the responses completed outside a turn, then start requests that had to wait for them."""
        self.is_dirty = False
        self._guarded(self._progress)

    def send(self) -> None:
        """Send the responses that are ready."""
        self._guarded(self._flush)

    def _guarded(self, step: Callable[[], None]) -> None:
        if self.is_closed:
            return
        try:
            step()
        except ProtocolError as error:
            self._refuse(None, error)
        except (EOFError, OSError) as error:
            logger.info("Connection %s ended: %s", self.info.connection_id, error)
            self.close()
        except Exception:
            logger.exception("Closing connection %s: unexpected error", self.info.connection_id)
            self.close()

    # ---- in

    def _turn(self) -> None:
        """Start the requests that have arrived, within a turn's budget, then send all ready responses together."""
        machine = self._machine
        frames_left = FRAMES_PER_TURN
        bytes_left = BYTES_PER_TURN
        is_drained = False
        self._rest = READING
        self.last_active = self._loop.time()
        while not self.is_closed:
            frames_started = self._serve_together(frames_left) if machine.input else 0
            if not frames_started and (frame := machine.next_frame()) is not None:
                self._start(frame)
                frames_started = 1
            if frames_started:
                frames_left -= frames_started
                if not frames_left:
                    self._rest = Rest.QUEUED
                    self._processor.enqueue(self)
                    break
            elif not machine.can_start:
                if not self._make_room():
                    break
            elif is_drained or bytes_left <= 0:
                break
            elif not self._request_memory.may_receive(self):
                self._rest = Rest.ROOM
                break
            else:
                count, is_drained = self._receive()
                bytes_left -= count
        self._end_turn()

    def _end_turn(self) -> None:
        """Send, or leave that until after the turns of other connections at the same time: Processor.is_crowded."""
        if not self.is_closed:
            if self._processor.is_crowded(self) and self._machine.output:
                self._processor.send_later(self)
            else:
                self._flush()
            if not self._is_reading and self._rest is READING and not self.is_closed:
                self._is_reading = True
                self._channel.on_readable(self.on_readable)
        if self._request_memory.waiting:
            self._processor.wake_waiting(self)

    def _receive(self) -> tuple[int, bool]:
        """Receive once; return the byte count and whether the channel is drained for now."""
        machine, request_memory = self._machine, self._request_memory
        rest_bytes = machine.large_rest_bytes
        if rest_bytes:
            wanted = min(rest_bytes, FRAME_RECEIVE_BYTES)
        else:
            wanted = RECEIVE_BYTES if request_memory.bytes < request_memory.tight_bytes else PEEK_BYTES
        data = self._channel.receive(wanted)
        if data is None:
            return 0, True
        count = len(data)
        if not count:
            self._end_of_input()
            return 0, True
        if rest_bytes:
            machine.feed_frame(data)
            self._await_rest(min(machine.large_rest_bytes, AWAITED_BYTES) or 1)
        else:
            machine.feed(data)
        self.unstarted_bytes += count
        request_memory.bytes += count
        return count, count < wanted

    def _await_rest(self, byte_count: int) -> None:
        """Read again when so many bytes have come. Only amid a large frame, whose rest the client owes, more than 1."""
        if byte_count != self._awaited_bytes:
            self._awaited_bytes = byte_count
            self._channel.await_bytes(byte_count)

    def _serve_together(self, most: int) -> int:
        """Serve the next buffered requests as one group, if they are small produces; return how many were served."""
        found = self._machine.produces_at_hand()
        if found is None or not self._is_admitted:
            return 0
        data, position, room = found
        served = self._coalesce(self.info, data, position, most if most < room else room)
        if served is None:
            return 0
        served_bytes = served.end_position - position
        self.unstarted_bytes -= served_bytes
        self._request_memory.bytes -= served_bytes
        first = self._machine.take_served(served)
        if served.wait is not None:
            served.wait(partial(self._complete_together, first, served.frame_count))
        return served.frame_count

    def _complete_together(self, first: int, frame_count: int, answers: bytes) -> None:
        """Queue the responses of requests that were served together."""
        if self.is_closed:
            return
        self._machine.answer_together(first, frame_count, answers)
        if not self.is_dirty:
            self._processor.mark_dirty(self)

    def _start(self, frame: memoryview) -> None:
        """Run a request's handler until it returns or first suspends."""
        machine = self._machine
        sequence = machine.started_count
        frame_bytes = len(frame) + _FRAME_OVERHEAD
        self.unstarted_bytes -= frame_bytes
        coroutine = self._route(self.info, frame)
        try:
            awaited = coroutine.send(None)
        except StopIteration as stop:
            self._request_memory.bytes -= frame_bytes
            self._answer(sequence, stop.value)
        except ProtocolError as error:
            self._request_memory.bytes -= frame_bytes
            self._refuse(_api_key(frame), error)
        except (Exception, asyncio.CancelledError):
            self._request_memory.bytes -= frame_bytes
            self._break(_api_key(frame))
        else:
            pending = PendingRequest(
                self,
                coroutine,
                sequence=sequence,
                frame_bytes=frame_bytes,
                api_key=_api_key(frame),
            )
            self._processor.pending_requests[pending] = None
            pending.wait_for(awaited)

    def _make_room(self) -> bool:
        """The machine cannot start a request: try to send; return whether it can start now, otherwise pause reading."""
        if self._machine.output and not self._is_writing:
            self._flush()
            if self.is_closed or self._machine.can_start:
                return not self.is_closed
        self._rest = Rest.ANSWERS
        return False

    def _end_of_input(self) -> None:
        """The peer has closed its sending side: answer its pending requests for HALF_CLOSED_LINGER_MS, then close."""
        self._machine.close_after_started()
        if not self.is_idle:
            self._loop.call_later(HALF_CLOSED_LINGER_MS / 1000, self.close)

    def _resume(self) -> None:
        if self._machine.can_start:
            self._turn()

    # ---- responses

    def complete(self, pending: PendingRequest, response: Any) -> None:
        """A suspended handler has returned `response`."""
        self._let_go(pending)
        if self.is_closed:
            discard(response)
            return
        self._answer(pending.sequence, response)
        if not self.is_dirty and not self.is_closed:
            self._processor.mark_dirty(self)

    def fail(self, pending: PendingRequest, error: BaseException) -> None:
        """A suspended handler has raised `error`."""
        self._let_go(pending)
        if isinstance(error, ProtocolError):
            self._refuse(pending.api_key, error)
        else:
            self._break(pending.api_key, error)

    def _let_go(self, pending: PendingRequest) -> None:
        if pending.holds:
            self._machine.mute_count -= 1
        self._processor.pending_requests.pop(pending, None)
        self._processor.release(pending.frame_bytes)

    def _answer(self, sequence: int, response: Any) -> None:
        info = self.info
        machine = self._machine
        if self.is_closed:
            discard(response)
            return
        if info.close_after_answer:
            machine.close_after(sequence)
        machine.answer(sequence, response)
        if not self._is_admitted and info.is_authenticated:
            self._admit()
        if info.throttle_ms > 0:
            self._mute(info.throttle_ms)

    def _mute(self, throttle_ms: int) -> None:
        """Start no requests for `throttle_ms`; the response that says so is already queued (KIP-219)."""
        self.info.throttle_ms = 0
        until_s = self._loop.time() + throttle_ms / 1000
        if self._unmuting is None:
            self._machine.mute_count += 1
        elif until_s <= self._muted_until_s:
            return
        else:
            self._unmuting.cancel()
        self._muted_until_s = until_s
        self._unmuting = self._loop.call_at(until_s, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        self._machine.mute_count -= 1
        self.resume()

    def maybe_hold(self, pending: PendingRequest) -> None:
        """If the handler has set `is_held`, start no request until it is done: appends stay in request order."""
        if not self.info.is_held:
            return
        self.info.is_held = False
        if not pending.holds:
            pending.holds = True
            self._machine.mute_count += 1

    def resume_soon(self, pending: PendingRequest) -> None:
        """Continue a handler that gave way in the loop's next pass."""
        self._processor.resume_soon(pending)

    def _progress(self) -> None:
        self.last_active = self._loop.time()
        self._flush()
        if self._rest is not READING and not self.is_queued and not self.is_closed:
            self._resume()

    # ---- out

    def _continue_writing(self) -> None:
        self._is_writing = False
        self.last_active = self._loop.time()
        self._flush()
        if self.is_closed:
            return
        if not self._is_writing:
            self._channel.on_writable(None)
        if self._rest is not READING and not self.is_queued:
            self._resume()

    def _flush(self) -> None:
        """Send as much as the channel accepts; continue when it becomes writable."""
        machine = self._machine
        output = machine.output
        bytes_left = BYTES_PER_TURN
        while output and not self._is_writing and self._warming is None:
            buffers, more, wanted = machine.gather(read_small)
            if buffers:
                sent = self._channel.send(buffers, more)
                del buffers
            else:
                wanted, sent = self._send_region()
                if not wanted:
                    return
            machine.sent(sent)
            bytes_left -= sent
            if output and (sent < wanted or bytes_left <= 0):
                self._is_writing = True
                self._channel.on_writable(self.on_writable)
        if machine.is_finished:
            self.close()

    def _send_region(self) -> tuple[int, int]:
        """Send part of the region at the head; return bytes requested and sent; (0, 0) if it must be warmed first."""
        region = self._machine.output[0]
        assert isinstance(region, FileRegion)
        start = self._machine.head_sent
        if region is not self._probed:
            self._probed, self._warm_until = region, 0
        count = min(region.length - start, SENDFILE_BYTES)
        if start + count > self._warm_until:
            first = region.position + max(start, self._warm_until)
            end = region.position + min(start + PROBED_BYTES, region.length)
            self._warm_until = self._read_ahead.warm_end(region.file, first, end) - region.position
            count = min(count, self._warm_until - start)
            if not count:
                self._warm(region, start)
                return 0, 0
        return count, self._channel.send_region(region, start, count)

    def _warm(self, region: FileRegion, start: int) -> None:
        """Have a worker load the region's next bytes into the page cache first: sendfile must not block the loop."""
        self._warming = region

        def warmed(warm_end: int, error: BaseException | None) -> None:
            self._warming = None
            if self.is_closed:
                region.release()  # not released in close(), because the worker was reading the file
            elif error is not None:
                self._guarded(lambda: _raise(error))
            else:
                self._warm_until = max(warm_end - region.position, start)
                self.resume_output()

        self._read_ahead.wait(region.file, region.position + start, warmed)

    def resume_output(self) -> None:
        self._guarded(self._continue_warmed)

    def _continue_warmed(self) -> None:
        self._flush()
        if self._rest is not READING and not self.is_queued and not self.is_closed:
            self._resume()

    # ---- closing

    def _refuse(self, api_key: int | None, error: ProtocolError) -> None:
        """Close the connection because its bytes cannot be parsed; log one line."""
        if not self.is_closed:
            self._flush_quietly()
            asked = "a frame" if api_key is None else f"api {_api_name(api_key)}"
            logger.warning("Closing connection %s: %s cannot be read: %s", self.info.connection_id, asked, error)
            self.close()

    def _break(self, api_key: int, error: BaseException | None = None) -> None:
        logger.error(
            "Closing connection %s: api %s failed unexpectedly",
            self.info.connection_id,
            _api_name(api_key),
            exc_info=error or True,
        )
        self.close()

    def _flush_quietly(self) -> None:
        """Send the ready responses before closing, as far as the channel accepts them at once."""
        try:
            self._flush()
        except (EOFError, OSError):
            self.close()

    def close(self) -> None:
        """Close now and release regions; suspended handlers continue, but their responses are dropped."""
        if self.is_closed:
            return
        self.is_closed = True
        if self._login_deadline is not None:
            self._login_deadline.cancel()
        if self._unmuting is not None:
            self._unmuting.cancel()  # it may be scheduled days ahead
        regions = self._machine.close()
        self._channel.close()
        self._processor.forget(self, self.unstarted_bytes)
        for region in regions:
            if region is not self._warming:
                region.release()


def _api_key(frame: memoryview) -> int:
    return int.from_bytes(frame[:2], "big", signed=True)


def _api_name(api_key: int) -> str:
    from kafkapy.protocol.api import APIS

    api = APIS.get(api_key)
    return str(api_key) if api is None else f"{api.name} ({api_key})"


def _raise(error: BaseException) -> None:
    raise error
