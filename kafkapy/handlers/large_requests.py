"""Requests that are large, served so that others do not wait for them.

A frame of LARGE_FRAME_BYTES or more is decoded by a worker, and so is an answer encoded that took more than a turn to
make. Between them the request is handled in parts of PART_ELEMENTS, for the APIs whose handler says by PARTS how its
request is cut: each part is a request of its own, and the answers are put together again. The loop serves others after
each turn; the connection starts nothing further meanwhile, so that the order of its requests holds.

A deviation: a large request is not answered from one moment's state. Each of its parts is.
"""

from collections.abc import Awaitable, Callable, Iterator, Sequence
from copy import copy
from functools import partial
from typing import Any, Final, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.handlers.context import ControllerServices, RequestContext, Services, walk
from kafkapy.protocol.headers import RequestHeader, write_response_header
from kafkapy.protocol.primitives import Writer
from kafkapy.runtime.pool import QueuedWork

R = TypeVar("R")

LARGE_FRAME_BYTES: Final = 8 * 1024
"""Below it, decoding takes 15 ms at most, however many elements there are. Few requests but Produce reach it."""
MAX_BYTES: Final = 16 * 1024 * 1024
"""What a request without record batches may have. What it holds is copied as it is decoded, and again into answers.

A deviation: Apache Kafka takes socket.request.max.bytes, 100 MiB, for all. The next largest are the assignments of a
group, which must fit into a record of `__consumer_offsets`.
"""
PART_ELEMENTS: Final = 250
"""About a millisecond's work."""

Handler = Callable[[Any, RequestContext, Any], Awaitable[Any]]
Levels = tuple[tuple[str, str], ...]
"""Of nested arrays, the outermost first: the request's attribute, and the answer's that has an entry for each."""


@dataclass(frozen=True, slots=True)
class Parts:
    """How an API's requests are cut. `either`: of these, the first whose outermost array is not empty.

    prepare: called with a large request before it is cut, for what concerns the whole (entries named twice).
    """

    either: tuple[Levels, ...]
    prepare: Callable[[Any, RequestContext, Any], None] | None = None


class LargeRequests:
    """Serves large requests, whose decoding and encoding are done one at a time by the IO pool."""

    def __init__(self, services: Services | ControllerServices) -> None:
        self._services = services
        self._work = QueuedWork(services.io_pool, at_once=1)

    async def read(
        self, context: RequestContext, request_class: Any, frame: memoryview, position: int, most: int
    ) -> Any:
        """Decode a request of at most `most` elements. Raises ProtocolError."""
        if len(frame) > MAX_BYTES:
            raise ProtocolError(f"{request_class.NAME} of {len(frame)} bytes, more than {MAX_BYTES}")
        context.is_long = True
        context.connection.is_held = True
        read = partial(request_class.read, frame, position, context.api_version, most)
        return (await self._work.run(_timed(context, read)))[0]

    async def write(self, context: RequestContext, header: RequestHeader, response: Any) -> Writer:
        """Encode an answer."""
        return await self._work.run(_timed(context, partial(encode, header, response)))

    async def handle(self, handler: Handler, parts: Parts | None, context: RequestContext, request: Any) -> Any:
        """Have the handler answer the request, in parts where it can be cut."""
        levels = None if parts is None else _levels_of(parts, request)
        if parts is None or levels is None:
            return await handler(self._services, context, request)
        if parts.prepare is not None:
            parts.prepare(self._services, context, request)
        return await self._in_parts(handler, levels, context, request)

    async def _in_parts(self, handler: Handler, levels: Levels, context: RequestContext, request: Any) -> Any:
        whole = None
        way = walk(self._services, context)
        for entries, continued in cut(getattr(request, levels[0][0]), levels):
            answer = await handler(self._services, context, _with(request, levels[0][0], entries))
            if whole is None:
                whole = answer
            else:
                join(whole, answer, levels, continued)
            if way.is_over(PART_ELEMENTS):
                await way.give_way()
        assert whole is not None, "a request with an array that is not empty has a part"
        return whole


def _timed(context: RequestContext, work: Callable[[], R]) -> Callable[[], R]:
    meter = context.meter
    return work if meter is None else meter.timed(work)


def encode(header: RequestHeader, response: Any) -> Writer:
    out = Writer()
    write_response_header(out, header.api_key, header.api_version, header.correlation_id)
    response.write(out, header.api_version)
    return out


def _levels_of(parts: Parts, request: Any) -> Levels | None:
    return next((levels for levels in parts.either if getattr(request, levels[0][0])), None)


def cut(entries: Sequence[Any], levels: Levels) -> Iterator[tuple[list[Any], int]]:
    """Yield lists of entries of about PART_ELEMENTS in all.

    An entry that has more is cut itself. The second number is then above 0 for its second and further pieces: it says
    on how many levels the list's first entry continues the last entry of the list before.
    """
    attribute = levels[1][0] if len(levels) > 1 else None
    part: list[Any] = []
    weight = 0
    for entry in entries:
        entry_weight = 1 if attribute is None else _weight(entry, levels[1:])
        if part and weight + entry_weight > PART_ELEMENTS:
            yield part, 0
            part, weight = [], 0
        if attribute is not None and entry_weight > PART_ELEMENTS:
            for index, (inner, continued) in enumerate(cut(getattr(entry, attribute), levels[1:])):
                yield [_with(entry, attribute, inner)], 1 + continued if index else 0
        else:
            part.append(entry)
            weight += entry_weight
    if part:
        yield part, 0


def _weight(entry: Any, levels: Levels) -> int:
    inner = getattr(entry, levels[0][0]) or ()
    return 1 + len(inner) if len(levels) == 1 else 1 + sum(_weight(each, levels[1:]) for each in inner)


def _with(struct: Any, attribute: str, value: Any) -> Any:
    """Return a copy of a struct with one attribute changed."""
    copied = copy(struct)
    setattr(copied, attribute, value)
    return copied


def join(whole: Any, answer: Any, levels: Levels, continued: int) -> None:
    """Add a part's answer to the answers before it; an error of the whole is kept."""
    if getattr(answer, "error_code", 0) and not whole.error_code:
        whole.error_code = answer.error_code
    mine, further = getattr(whole, levels[0][1]), getattr(answer, levels[0][1])
    if continued and mine and further:
        join(mine[-1], further[0], levels[1:], continued - 1)
        further = further[1:]
    mine.extend(further)
