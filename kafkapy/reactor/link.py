"""The driver of one connection: moves bytes between channel and protocol machine, starts handlers, sends responses.

A link reads while its machine can start requests and the broker has request memory left. `Rest` has the other states.
When reading pauses, the callback stays registered until it next fires: a short pause costs no system call.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import api_key_of, api_name
from kafkapy.protocol.connection import LARGE_REST_BYTES, Connection
from kafkapy.protocol.kept_responses import discard
from kafkapy.protocol.serving import ConnectionInfo, Login, Serving
from kafkapy.reactor.limits import BYTES_PER_TURN, FRAMES_PER_TURN, HALF_CLOSED_LINGER_MS, PEEK_BYTES
from kafkapy.reactor.pending_request import PendingRequest
from kafkapy.reactor.receiving import ANY_BYTES, bytes_to_await, receive_rest
from kafkapy.reactor.region_sender import RegionSender
from kafkapy.reactor.regions import read_small
from kafkapy.reactor.rest import Rest
from kafkapy.reactor.throttle import Throttle
from kafkapy.seams import Channel, FileRegion

if TYPE_CHECKING:
    from kafkapy.reactor.processor import Processor

logger = logging.getLogger(__name__)
_FRAME_OVERHEAD = 4
READING: Final = Rest.READING


class Link:
    """The driver of one connection. All methods run on the loop's thread. Callbacks of the loop never raise."""

    __slots__ = (
        "_channel",
        "_coalesce",
        "_is_admitted",
        "_is_reading",
        "_is_writing",
        "_login",
        "_login_deadline",
        "_loop",
        "_machine",
        "_regions",
        "_request_memory",
        "_rest",
        "_route",
        "_throttle",
        "_turns",
        "awaited_bytes",
        "info",
        "is_closed",
        "is_dirty",
        "is_queued",
        "last_active",
        "processor",
        "unsent_bytes",
        "unstarted_bytes",
    )

    def __init__(self, processor: "Processor", channel: Channel, info: ConnectionInfo) -> None:
        self.processor, self._loop = processor, processor.loop
        self._route, self._coalesce = processor.serving.route, processor.serving.coalesce
        self._request_memory, self._turns = processor.shared.request_memory, processor.shared.turns
        self._channel, self.info = channel, info
        self._login: Login | None = None
        self._login_deadline: asyncio.TimerHandle | None = None
        self._throttle: Throttle | None = None
        self._is_admitted = info.is_authenticated
        if self._is_admitted:
            self._machine = Connection(processor.limits.connection)
            self._machine.admit()
        else:
            self._begin_login(processor.serving.new_login(info))
        self._is_reading = self._is_writing = False  # writing: waiting for the channel to become writable
        self._rest = READING
        self.unstarted_bytes = self.unsent_bytes = 0
        self.awaited_bytes = ANY_BYTES  # how many have to arrive for the next call of on_readable
        self._regions = RegionSender(channel, processor.shared.read_ahead)
        self.is_closed = self.is_dirty = self.is_queued = False
        self.last_active = self._loop.time()

    def _begin_login(self, login: Login) -> None:
        """Route requests to the login until it succeeds; close the connection after its timeout_ms."""
        self._machine = Connection(self.processor.limits.connection, login.max_frame_bytes)
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
        if not self._login.is_used_further:
            self._login = None
            self.use_router(self.processor.serving)

    def use_router(self, serving: Serving) -> None:
        """From now on let this router serve the requests, once a login is over."""
        if self._login is None:
            self._route, self._coalesce = serving.route, serving.coalesce

    def open(self) -> None:
        """Start to read, or do so again."""
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
        return not self._machine.in_flight_count and not self._machine.output

    # ---- callbacks of the loop; each catches all exceptions

    def on_readable(self) -> None:
        if self._rest is not READING:  # resume() registers the callback again
            self._is_reading = False
            self._channel.on_readable(None)
            return
        self.last_active = now = self._loop.time()
        if now >= self._turns.due and self._turns.maybe_postpone(self, now):
            self._rest = Rest.QUEUED
        else:
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
        """Send the responses that are ready, then go on with requests that waited for that."""
        self._guarded(self._flush)
        if self._rest is not READING:
            self._guarded(self._resume_rest)

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
        """Start the requests that have arrived, within a turn's budget, then send all ready responses together.

        step       when                               the turn ends, in this state, if
        start      a whole frame may start            QUEUED: FRAMES_PER_TURN have
        send       no request may start               RESPONSES: none may afterwards
        receive    more bytes are needed              READING: none are there, or BYTES_PER_TURN have come
                                                      ROOM: no request memory is left
        """
        machine = self._machine
        frames_left, bytes_left = FRAMES_PER_TURN, BYTES_PER_TURN
        self._rest = READING
        while not self.is_closed:
            frames_started = self._serve_together(frames_left) if machine.input else 0
            if not frames_started and (frame := machine.next_frame()) is not None:
                self._start(frame)
                frames_started = 1
            if frames_started:
                frames_left -= frames_started
                if not frames_left:
                    self._rest = Rest.QUEUED
                    self._turns.enqueue(self)
                    break
            elif not machine.can_start:
                if not self._make_room():
                    break
            elif bytes_left <= 0:
                # the loop is woken for the rest of a large frame, not for each of its segments
                if machine.rest_bytes or self.awaited_bytes != ANY_BYTES:
                    self._await_rest(machine.rest_bytes)
                break
            elif not self._request_memory.may_receive(self):
                self._rest = Rest.ROOM
                break
            else:
                bytes_left = self._receive(bytes_left)
        self._end_turn()

    def _end_turn(self) -> None:
        """Send, or leave that until after the turns of other connections at the same time: Processor.is_crowded."""
        if not self.is_closed:
            if self.processor.is_crowded(self) and self._machine.output:
                self.processor.send_later(self)
            else:
                self._flush()
            if not self._is_reading and self._rest is READING and not self.is_closed:
                self.open()
        if self._request_memory.waiting:
            self.processor.wake_waiting(self)

    def _await_rest(self, rest_bytes: int) -> None:
        """Before waiting for the rest of a frame: let the channel say how much of it has to arrive."""
        self.awaited_bytes = bytes_to_await(0 if self._request_memory.waiting else rest_bytes)
        self._channel.await_bytes(self.awaited_bytes)

    def await_any_bytes(self) -> None:
        """Read what has arrived of a frame whose rest was awaited."""
        self._guarded(partial(self._await_rest, 0))

    def _receive(self, bytes_left: int) -> int:
        """Receive once; return how many bytes are left of the turn's, 0 if the channel is drained for now."""
        machine, request_memory = self._machine, self._request_memory
        rest_bytes = machine.rest_bytes
        if rest_bytes >= LARGE_REST_BYTES:
            wanted, count = receive_rest(self._channel, machine, rest_bytes)
        else:
            is_tight = request_memory.bytes >= request_memory.tight_bytes
            wanted = PEEK_BYTES if is_tight else rest_bytes + machine.receive_bytes
            data = self._channel.receive(wanted)
            count = -1 if data is None else len(data)
            if data:
                machine.feed(data)
        if count <= 0:
            if not count:
                self._end_of_input()
            return 0
        self.unstarted_bytes += count
        request_memory.bytes += count
        if not self._is_admitted:
            self.processor.shared.logins.count(self, self.unstarted_bytes)
        return bytes_left - count if count == wanted else 0

    def _serve_together(self, most: int) -> int:
        """Serve the next buffered requests as one group, if they are small produces; return how many were served."""
        found = self._machine.requests_at_hand()
        if found is None or not self._is_admitted:
            return 0
        data, position, room = found
        served = self._coalesce(self.info, data, position, most if most < room else room)
        if served is None:
            return 0
        served_bytes = served.end_position - position
        self.unstarted_bytes -= served_bytes
        self._request_memory.bytes -= served_bytes
        first = self._machine.pop_served(served)
        if served.wait is not None:
            served.wait(partial(self._complete_together, first, served.frame_count))
        return served.frame_count

    def _complete_together(self, first: int, frame_count: int, responses: bytes) -> None:
        """Queue the responses of requests that were served together."""
        if self.is_closed:
            return
        self._machine.respond_together(first, frame_count, responses)
        if not self.is_dirty:
            self.processor.mark_dirty(self)

    def _start(self, frame: memoryview) -> None:
        """Run a request's handler until it returns or is parked."""
        sequence = self._machine.started_count
        frame_bytes = len(frame) + _FRAME_OVERHEAD
        self.unstarted_bytes -= frame_bytes
        try:
            coroutine = self._route(self.info, frame)
            awaited = coroutine.send(None)
        except StopIteration as stop:
            self.info.is_frame_free = False  # or it would free another's frame that waits again
            self._request_memory.bytes -= frame_bytes
            self._respond(sequence, stop.value)
        except ProtocolError as error:
            self._request_memory.bytes -= frame_bytes
            self._refuse(api_key_of(frame), error)
        except (Exception, asyncio.CancelledError):
            self._request_memory.bytes -= frame_bytes
            self._break(api_key_of(frame))
        else:
            key = api_key_of(frame)
            pending = PendingRequest(self, coroutine, sequence=sequence, frame_bytes=frame_bytes, api_key=key)
            self.processor.pending_requests[pending] = None
            pending.wait_for(awaited)

    def _make_room(self) -> bool:
        """The machine cannot start a request: try to send; return whether it can start now, otherwise pause reading."""
        if self._machine.output and not self._is_writing:
            self._flush()
            if self.is_closed or self._machine.can_start:
                return not self.is_closed
        self._rest = Rest.RESPONSES
        return False

    def _end_of_input(self) -> None:
        """The peer has closed its sending side: answer its pending requests for HALF_CLOSED_LINGER_MS, then close."""
        self._machine.close_after_started()
        if not self.is_idle:
            self._loop.call_later(HALF_CLOSED_LINGER_MS / 1000, self.close)

    def _resume(self) -> None:
        if self._machine.can_start:
            self.last_active = self._loop.time()
            self._turn()

    def _resume_rest(self) -> None:
        """After sending: go on with requests that waited for that."""
        if self._rest is not READING and not self.is_queued and not self.is_closed:
            self._resume()

    # ---- responses

    def complete(self, pending: PendingRequest, response: Any) -> None:
        """A parked request's handler has returned `response`."""
        self._end_request(pending)
        if self.is_closed:
            discard(response)
            return
        self._respond(pending.sequence, response)
        if not self.is_dirty and not self.is_closed:
            self.processor.mark_dirty(self)

    def fail(self, pending: PendingRequest, error: BaseException) -> None:
        """A parked request's handler has raised `error`."""
        self._end_request(pending)
        if isinstance(error, ProtocolError):
            self._refuse(pending.api_key, error)
        else:
            self._break(pending.api_key, error)

    def _end_request(self, pending: PendingRequest) -> None:
        if pending.holds:
            self._machine.mute_count -= 1
        self.info.is_frame_free = False
        self.processor.pending_requests.pop(pending, None)
        self.processor.release(pending.frame_bytes)

    def _respond(self, sequence: int, response: Any) -> None:
        info, machine = self.info, self._machine
        if self.is_closed:
            discard(response)
            return
        if info.close_after_response:
            machine.close_after(sequence)
        machine.respond(sequence, response)
        if not self._is_admitted:
            if info.is_authenticated:
                self._admit()
            self.processor.shared.logins.count(self, 0 if self._is_admitted else self.unstarted_bytes)
        if info.throttle_ms > 0:
            self._mute(info.throttle_ms)

    def _mute(self, throttle_ms: int) -> None:
        """Start no requests for `throttle_ms`; the response that says so is already queued (KIP-219)."""
        self.info.throttle_ms = 0
        if self._throttle is None:
            self._throttle = Throttle(self._loop, self._unmute)
        if self._throttle.extend(throttle_ms):
            self._machine.mute_count += 1

    def _unmute(self) -> None:
        self._machine.mute_count -= 1
        self.resume()

    def on_parked(self, pending: PendingRequest) -> None:
        """If the handler has set `is_held`, start no request until it is done: appends stay in request order.

        If its frame is free, free its request memory: what the handler waits for may take as long as a client likes.
        """
        info = self.info
        if info.is_frame_free:
            info.is_frame_free = False
            self.processor.release(pending.frame_bytes)
            pending.frame_bytes = 0
        if not info.is_held:
            return
        info.is_held = False
        if not pending.holds:
            pending.holds = True
            self._machine.mute_count += 1

    def resume_soon(self, pending: PendingRequest) -> None:
        """Continue a handler that gave way in the loop's next pass."""
        self.processor.resume_soon(pending)

    def _progress(self) -> None:
        self.last_active = self._loop.time()
        self._flush()
        self._resume_rest()

    # ---- out

    def _continue_writing(self) -> None:
        self._is_writing = False
        self.last_active = self._loop.time()
        self._flush()
        if not self._is_writing and not self.is_closed:
            self._channel.on_writable(None)
        self._resume_rest()

    def _flush(self) -> None:
        """Send as much as the channel accepts; continue when it becomes writable."""
        machine, bytes_left = self._machine, BYTES_PER_TURN
        output = machine.output
        while output and not self._is_writing and self._regions.warming is None:
            buffers, more, wanted = machine.gather(read_small)
            if buffers:
                sent = self._channel.send(buffers, more)
                del buffers
            else:
                region = output[0]
                assert isinstance(region, FileRegion)
                wanted, sent = self._regions.send(region, machine.head_sent, self._warmed)
                if not wanted:
                    return
            machine.sent(sent)
            bytes_left -= sent
            if output and (sent < wanted or bytes_left <= 0):
                self._is_writing = True
                self._channel.on_writable(self.on_writable)
        if machine.output_bytes or self.unsent_bytes:
            self.processor.shared.unsent.update(self, output, BYTES_PER_TURN - bytes_left, machine.ready_bytes)
        if machine.is_finished:
            self.close()

    def _warmed(self, error: BaseException | None) -> None:
        """Continue with the region at the head, which can now be sent, unless it could not be read."""
        self._guarded(partial(self._continue_warmed, error))

    def _continue_warmed(self, error: BaseException | None) -> None:
        if error is not None:
            raise error
        self._flush()
        self._resume_rest()

    # ---- closing

    def finish(self) -> None:
        """Start no more requests; close once those that were started are answered."""
        self._machine.close_after_started()
        self._guarded(self._flush)

    def _refuse(self, api_key: int | None, error: ProtocolError) -> None:
        """Close the connection because its bytes cannot be parsed; log one line."""
        if not self.is_closed:
            with contextlib.suppress(EOFError, OSError):  # the ready responses, as far as they are accepted at once
                self._flush()
            unreadable = "a frame" if api_key is None else f"api {api_name(api_key)}"
            logger.warning("Closing connection %s: %s cannot be read: %s", self.info.connection_id, unreadable, error)
            self.close()

    def _break(self, api_key: int, error: BaseException | None = None) -> None:
        failed = (self.info.connection_id, api_name(api_key))
        logger.error("Closing connection %s: api %s failed unexpectedly", *failed, exc_info=error or True)
        self.close()

    def close(self) -> None:
        """Close now and release regions; handlers of parked requests continue, but their responses are dropped."""
        if self.is_closed:
            return
        self.is_closed = self.info.is_closed = True
        self.info.is_frame_free = False
        for timer in (self._login_deadline, self._throttle):
            if timer is not None:
                timer.cancel()
        regions = self._machine.close()
        self._channel.close()
        self.processor.forget(self, self.unstarted_bytes)
        self._regions.close(regions)
