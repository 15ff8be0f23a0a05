"""Searches and tails as server-sent events: rows as HTML, progress, problems, and the reason of the end."""

import json
import time
from collections.abc import AsyncIterator
from typing import Any, Final

import anyio
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from kafkapy.console.brokers import ClusterError
from kafkapy.console.queries import query_of
from kafkapy.console.render import Renderer
from kafkapy.console.search import Search, Step
from kafkapy.console.state import Console

MAX_STREAMS: Final = 8
"""Open streams: each has a consumer of librdkafka, with its threads and up to 4 MiB a step."""
MAX_SEARCH_S: Final = 600
"""The longest stream, so that a forgotten tab does not read a topic for ever."""
ROWS_PER_EVENT: Final = 100
"""A tail's event has at most so many rows, the newest: a browser cannot show more."""
PROGRESS_S: Final = 0.5
"""The interval of progress: faster changes cannot be read."""


class Streams:
    """Serves the streams, and counts those that are open."""

    def __init__(self, console: Console, renderer: Renderer) -> None:
        self._console = console
        self._renderer = renderer
        self._open = 0

    async def endpoint(self, request: Request) -> Response:
        """GET with the fields of a search; live=1 follows the topic."""
        try:
            query = query_of(request.query_params, is_live=request.query_params.get("live") == "1")
            console = self._console
            search = Search(query, console.clients, console.brokers, console.settings)
        except ClusterError as error:
            return _events(_one("ended", str(error)))
        return _events(self._run(search, may_change=request.state.may_change))

    async def _run(self, search: Search, *, may_change: bool) -> AsyncIterator[str]:
        if self._open >= MAX_STREAMS:
            yield _event("ended", f"There are {MAX_STREAMS} searches and tails already: stop one of them.")
            return
        self._open += 1
        try:
            async for event in self._steps(search, may_change=may_change):
                yield event
        except ClusterError as error:
            yield _event("ended", str(error))
        finally:
            self._open -= 1
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(search.close)

    async def _steps(self, search: Search, *, may_change: bool) -> AsyncIterator[str]:
        await to_thread.run_sync(search.start)
        deadline_s = time.monotonic() + MAX_SEARCH_S
        reported_s = 0.0
        while True:
            step = await to_thread.run_sync(search.step)
            for event in await to_thread.run_sync(self._events_of, search, step, may_change):
                yield event
            now_s = time.monotonic()
            if step.is_done or step.rows or now_s - reported_s >= PROGRESS_S:
                reported_s = now_s
                yield _event("progress", json.dumps(_progress(search)))
            if step.is_done:
                yield _event("ended", _summary(search))
                return
            if not search.query.is_live and now_s > deadline_s:
                yield _event("ended", f"Stopped after {MAX_SEARCH_S // 60} minutes. {_summary(search)}")
                return

    def _events_of(self, search: Search, step: Step, may_change: bool) -> list[str]:
        events = []
        shown = step.rows[-ROWS_PER_EVENT:] if search.query.is_live else step.rows
        skipped = step.skipped + len(step.rows) - len(shown)
        if skipped and search.query.is_live:
            events.append(_event("skipped", str(skipped)))
        if shown:
            rows = self._renderer.part("rows.html", rows=shown, allow_changes=may_change)
            events.append(_event("rows", rows, event_id=_positions(search)))
        if step.problem is not None:
            events.append(_event("problem", step.problem))
        return events


def _progress(search: Search) -> dict[str, Any]:
    return {
        "scanned": search.scanned,
        "matched": search.matched,
        "total": search.total,
        "live": search.query.is_live,
        "at": _positions(search),
    }


def _positions(search: Search) -> str:
    """Return the positions at which a tail continues."""
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(search.positions.items()))


def _summary(search: Search) -> str:
    if search.total == 0 and not search.query.is_live:
        return "Nothing to look through: no records from there on."
    looked = f"{search.scanned:,} record{'' if search.scanned == 1 else 's'} looked through"
    if search.query.is_latest:
        more = f" Only the first {search.query.limit} keys are kept." if search.has_more_keys else ""
        return f"The newest record of each key; {looked}.{more}"
    if search.query.begin != "last" and search.matched >= search.query.limit:
        return f"The first {search.query.limit} found; {looked}."
    if search.query.begin == "last" and search.matched > search.query.limit:
        return f"The newest {search.query.limit} of {search.matched:,} found; {looked}."
    return f"{search.matched:,} found, {looked}."


def _event(name: str, data: str, *, event_id: str = "") -> str:
    lines = data.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    head = f"id: {event_id}\n" if event_id else ""
    return f"event: {name}\n{head}" + "".join(f"data: {line}\n" for line in lines) + "\n"


async def _one(name: str, data: str) -> AsyncIterator[str]:
    yield _event(name, data)


def _events(events: AsyncIterator[str]) -> StreamingResponse:
    return StreamingResponse(events, media_type="text/event-stream", headers={"x-accel-buffering": "no"})
