"""Serves large requests without blocking the event loop for others.

A frame of LARGE_FRAME_BYTES or more is decoded by a worker. A response that took more than one turn of the loop is
encoded by a worker. In between, if the API's row has parts, the request is split into parts of PART_ELEMENTS: each
part is handled as a request of its own, and the responses are joined. The loop serves other connections after each
turn. The connection is held meanwhile, so that its requests stay in order.

Deviation: Apache Kafka answers a request from one consistent state. Here each part of a large one is, because the loop
serves others in between.
"""

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any, Final, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services, walk
from kafkapy.handlers.parts import PART_ELEMENTS, Handler, Prepare, cut, join, levels_of, with_entries
from kafkapy.handlers.table import PARKED, RESPONSE_BYTES, UNCOUNTED, WRITERS, Levels, Parts
from kafkapy.protocol.element_budget import ElementBudget
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.primitives import Writer
from kafkapy.runtime.decoded_requests import ELEMENT_BYTES, FEW_BYTES, FEW_ELEMENTS, Room
from kafkapy.runtime.pool import QueuedWork
from kafkapy.serving.responses import encode

R = TypeVar("R")

LARGE_FRAME_BYTES: Final = 8 * 1024
"""Smaller frames are decoded in 15 ms at most, with any number of elements. Few requests but Produce are larger."""
LONG_ELEMENTS: Final = 1_000
"""A Produce with more entries is handled in turns; it is decoded at once, as its frame is kept for the batches."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""The maximum size of a request without record batches: decoding copies its contents, and the response may again.

Deviation: Apache Kafka accepts socket.request.max.bytes, 100 MiB, for all requests. Here less, because the largest
legitimate ones are the assignments of a group, which must fit into a record of `__consumer_offsets`.
"""


@dataclass(frozen=True, slots=True)
class Undecoded:
    """A request's frame, with what its decoding needs. `position` is the end of the header."""

    request_class: Any
    frame: memoryview
    position: int
    api_version: int
    max_elements: int

    def read(self) -> tuple[Any, int]:
        """Return the request and its count of elements. Raises ProtocolError."""
        budget = ElementBudget(self.max_elements)
        request, _ = self.request_class.read_within(self.frame, self.position, self.api_version, budget)
        return request, self.max_elements - budget.left


class LargeRequests:
    """Serves large requests. The IO pool decodes and encodes them, one at a time."""

    def __init__(self, services: Services | ControllerServices) -> None:
        self._services = services
        self._work = QueuedWork(services.io_pool, at_once=1)

    async def read(self, context: RequestContext, undecoded: Undecoded) -> tuple[Any, Room]:
        """Decode a request on a worker, once there is room; return it, and the room that it has. Raises ProtocolError.

        A request that waits for others does not wait here, unless all that do are answered without waiting.
        """
        frame_bytes = len(undecoded.frame)
        if frame_bytes > MAX_BYTES:
            raise ProtocolError(f"{undecoded.request_class.NAME} of {frame_bytes} bytes, more than {MAX_BYTES}")
        context.is_long = True
        context.connection.is_held = True
        work = _timed(context, undecoded.read)
        decoded = self._services.decoded
        response_bytes = RESPONSE_BYTES.get(context.api_key, 0)
        # What it takes of the account of parked requests depends on its elements, so it is decoded to count them. If
        # there is no room, it is dropped and decoded again later: kept, it would take the memory that it waits for.
        if context.api_key in PARKED or context.api_key in UNCOUNTED:
            request, elements = await self._work.run(work, context.client)
            parked = self._acquire_parked(context, request, elements, frame_bytes)
            if parked is not None:
                return request, parked
            del request
            room = await decoded.wait_prompt(elements, frame_bytes, context.client)
        else:
            room = await decoded.wait_large(undecoded.max_elements, frame_bytes, context.client, response_bytes)
        try:
            request, elements = await self._work.run(work, context.client)
        except BaseException:
            room.release()
            raise
        room.shrink(elements * ELEMENT_BYTES + frame_bytes + response_bytes)
        return _without_waiting(context.api_key, request), room

    def acquire_room(self, context: RequestContext, request: Any, elements: int, frame_bytes: int) -> Room | None:
        """Return room for the request of a small frame; None if it has to wait. Raises ProtocolError.

        frame_bytes: 0 for a Produce of any size, which still needs its frame.
        """
        if context.api_key in PARKED or context.api_key in UNCOUNTED:
            return self._acquire_parked(context, request, elements, frame_bytes)
        return self._services.decoded.acquire(elements, frame_bytes)

    async def read_small(self, context: RequestContext, undecoded: Undecoded) -> tuple[Any, Room]:
        """Wait for room for `max_elements`, then decode the request of a small frame."""
        context.connection.is_held = True
        decoded = self._services.decoded
        if context.api_key in PARKED:
            room = await decoded.wait_prompt(undecoded.max_elements, len(undecoded.frame), context.client)
        else:
            room = await decoded.wait(undecoded.max_elements, len(undecoded.frame), context.client)
        context.connection.is_held = False  # if there was room at once: else the next request that waits would be held
        try:
            return _without_waiting(context.api_key, undecoded.read()[0]), room
        except BaseException:
            room.release()
            raise

    def _acquire_parked(self, context: RequestContext, request: Any, elements: int, frame_bytes: int) -> Room | None:
        """Return room for a request that may wait for others. If there is none, it is answered without waiting.

        None: for that it must wait for room, with its decoded form dropped. Raises ProtocolError, which closes the
        connection, if the request cannot be answered so.
        """
        decoded, api_key = self._services.decoded, context.api_key
        if (elements <= FEW_ELEMENTS and frame_bytes <= FEW_BYTES) or api_key in UNCOUNTED:
            return decoded.no_room()
        if elements > LONG_ELEMENTS:
            context.is_long = True
        parking = PARKED[api_key]
        room = decoded.acquire_parked(elements, frame_bytes, parking.share, context.client)
        if room is not None:
            return room
        if parking.time_limit is None:
            size = f"{elements} elements and {frame_bytes} bytes"
            raise ProtocolError(f"{type(request).NAME} of {size}: too many requests wait already")
        if parking.is_prompt:
            return None
        setattr(request, parking.time_limit, 0)
        return decoded.no_room()

    async def write(self, context: RequestContext, header: RequestHeader, response: Any) -> Writer:
        """Encode a response on a worker."""
        writer = WRITERS.get(header.api_key)
        write = None if writer is None else import_module(f"kafkapy.{writer}").write
        return await self._work.run(_timed(context, partial(encode, header, response, write)), context.client)

    async def handle(
        self, handler: Handler, parts: Parts | None, prepare: Prepare | None, context: RequestContext, request: Any
    ) -> Any:
        """Return the handler's response, from several parts if the request can be split."""
        levels = None if parts is None else levels_of(parts, request)
        if parts is None or levels is None:
            return await handler(self._services, context, request)
        if prepare is not None:
            prepare(self._services, context, request)
        return await self._in_parts(handler, levels, context, request)

    async def _in_parts(self, handler: Handler, levels: Levels, context: RequestContext, request: Any) -> Any:
        whole = None
        way = walk(self._services, context)
        for entries, continued in cut(getattr(request, levels[0][0]), levels):
            response = await handler(self._services, context, with_entries(request, levels[0][0], entries))
            if whole is None:
                whole = response
            else:
                join(whole, response, levels, continued)
            if way.is_over(PART_ELEMENTS):
                await way.give_way()
        assert whole is not None, "a request with an array that is not empty has a part"
        return whole


def _without_waiting(api_key: int, request: Any) -> Any:
    """Return a request that had to wait for room; it may wait for no others, if it is one that could."""
    parking = PARKED.get(api_key)
    if parking is not None:
        assert parking.is_prompt, "others that could wait never wait for room"
        assert parking.time_limit is not None
        setattr(request, parking.time_limit, 0)
    return request


def _timed(context: RequestContext, work: Callable[[], R]) -> Callable[[], R]:
    meter = context.meter
    return work if meter is None else meter.timed(work)
