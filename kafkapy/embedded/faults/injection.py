"""Applies faults to requests, between a broker's connections and its router.

A request is decoded if a fault of its API may hit it. All faults that match it are counted (`Faults.draw`: nth, times,
probability). Of those that hit it, delays add up, and the first other one is applied: the request fails in part or as a
whole, its connection is closed before or after it is done, or its response is truncated.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Final

from kafkapy.embedded.faults.rules import Fault, Hit, Matched, Rules
from kafkapy.embedded.faults.shapes import Selected, level_of, put_errors, take_parts
from kafkapy.embedded.faults.whole_errors import failed_response
from kafkapy.embedded.faults.whole_requests import FETCH, WholeRequests, is_readable
from kafkapy.embedded.responses import decoded, joined
from kafkapy.handlers.context import CloseConnection
from kafkapy.protocol.api import api_key_of, request_type, response_type
from kafkapy.protocol.headers import RequestHeader, read_request_header, write_response_header
from kafkapy.protocol.kept_responses import discard
from kafkapy.protocol.primitives import EncodeError, Writer
from kafkapy.protocol.serving import Coalesce, ConnectionInfo, Route, Served
from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services

PRODUCE: Final = 0


class FaultInjector:
    """Replaces a router for its connections: it has the same methods, `route` and `coalesce`."""

    def __init__(
        self,
        faults: Rules,
        services: "Services",
        route: Route,
        coalesce: Coalesce,
        is_node: Callable[[str | None], bool],
    ) -> None:
        """is_node: whether a client id is a node's."""
        self._faults = faults
        self._whole = WholeRequests(services)
        self._route = route
        self._coalesce = coalesce
        self._is_node = is_node

    def coalesce(self, info: ConnectionInfo, data: bytes, position: int, most: int) -> Served | None:
        """Serve Produce requests together, unless a fault may hit one."""
        return None if self._faults.of_api(PRODUCE) else self._coalesce(info, data, position, most)

    def route(self, info: ConnectionInfo, frame: memoryview) -> Coroutine[Any, Any, Writer | None]:
        """Like Router.route."""
        faults = self._faults.of_api(api_key_of(frame))
        if not faults:
            return self._route(info, frame)
        header, position = read_request_header(frame)
        connection = f"{info.peer_host}:{info.peer_port}"
        if not self._is_node(header.client_id):
            faults = [each for each in faults if each.matches_header(header.api_version, header.client_id, connection)]
            if faults and is_readable(header):
                return self._serve(faults, header, info, frame, position)
        return self._route(info, frame)

    async def _serve(
        self, faults: list[Fault], header: RequestHeader, info: ConnectionInfo, frame: memoryview, position: int
    ) -> Writer | None:
        """Serve a request by the faults that match it. Raises CloseConnection."""
        request, _ = request_type(header.api_key).read(frame, position, header.api_version)
        parts = self._whole.parts(header, request)
        by_fault = [(fault, list(filter(fault.matches_part, parts))) for fault in faults]
        matched = [(fault, _hit(fault, header, info, found)) for fault, found in by_fault if found]
        hits = await self._drawn(matched, info) if matched else []
        if not hits:
            return await self._route(info, frame)
        if delay_ms := sum(fault.delay_ms for fault in hits):
            info.is_held = True  # later requests of this connection wait, as with Apache Kafka
            await _sleep(delay_ms)
        fault = next((fault for fault in hits if fault.kind != "delay"), None)
        if fault is None:
            return await self._route(info, frame)
        if fault.kind == "fail":
            return await self._failed(fault, header, info, bytes(frame[:position]), request)
        if fault.when == "before":
            raise CloseConnection(f"a fault: {fault}")
        response = await self._route(info, frame)
        if fault.kind == "truncate" and response is not None:
            return _truncated(joined(response))
        discard(response)
        raise CloseConnection(f"a fault: {fault}")

    async def _drawn(self, matched: list[Matched], info: ConnectionInfo) -> list[Fault]:
        drawn = self._faults.draw(matched)
        if isinstance(drawn, list):
            return drawn
        info.is_held = True  # no later request may overtake this one while another process decides
        return await drawn

    async def _failed(
        self, fault: Fault, header: RequestHeader, info: ConnectionInfo, head: bytes, request: Any
    ) -> Writer | None:
        """Serve the parts that the fault does not hit; return the response with the error in all others."""
        assert fault.error is not None
        version = header.api_version
        level = level_of(fault.api, version)
        if level is None:
            return _encoded(header, failed_response(request, fault.error))
        whole = self._whole.request(request)
        errors = take_parts(level, whole, fault.matches_part, fault.error, self._whole.topic_of)
        if header.api_key == FETCH:
            request.max_wait_ms = 0  # the error does not wait for records
        response: Any = response_type(header.api_key)()
        # If parts were removed from a copy, the request is served as it was, and errors then overwrite parts of its
        # response: it only reads, and its response has more than it names (a Fetch's session, a Metadata's brokers).
        if whole is not request or getattr(request, level.request):
            rest = memoryview(bytearray(head + request.encode(version)))
            served = await self._route(info, rest)
            if served is not None:
                response = decoded(served, header.api_key, version)
        if header.api_key == PRODUCE and request.acks == 0:
            raise CloseConnection(f"a fault, whose error has no response with acks=0: {fault}")
        put_errors(level, response, errors)
        return _encoded(header, response)


def _hit(fault: Fault, header: RequestHeader, info: ConnectionInfo, parts: list[Selected]) -> Hit:
    return Hit(
        fault=str(fault),
        api=fault.api,
        version=header.api_version,
        client_id=header.client_id,
        principal=info.principal,
        connection=f"{info.peer_host}:{info.peer_port}",
        parts=tuple("-".join(map(str, part.values())) for part in parts if part),
    )


async def _sleep(ms: int) -> None:
    """Wait. (A handler is driven without a task: it may await futures only.)"""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    timer = loop.call_later(ms / 1000, future.set_result, None)
    try:
        await future
    finally:
        timer.cancel()


def _encoded(header: RequestHeader, response: Any) -> Writer:
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    try:
        response.write(out, header.api_version)
    except EncodeError as error:
        raise CloseConnection(f"a fault has no room in {type(response).__name__}: {error}") from error
    return out


def _truncated(data: bytes) -> Writer:
    """Return a frame that promises all of `data`, and ends its connection after half of it."""
    out = Writer()
    out += data[: len(data) // 2]
    out.splices.append((len(out), FileRegion(_LostFile(), 0, len(data) - len(out))))
    return out


class _LostFile:
    """A seams.File that cannot be read: the reactor closes the connection to which it would send a region of it."""

    path = "(the rest of a truncated response)"

    def pread(self, length: int, position: int) -> bytes:
        raise OSError(f"no bytes of {self.path}")

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        return None

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        raise OSError(f"no bytes of {self.path}")

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        return 0

    def pwrite(self, buffers: Any, position: int) -> int:
        raise OSError(f"no bytes of {self.path}")

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None: ...

    def close(self) -> None: ...
