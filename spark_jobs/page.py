"""page: a live page of candles, order books, latency, rows and lag, from the topics of any Kafka.

A browser gets changes by server-sent events, twice a second. The page loads nothing from other hosts. Latency is known
if the records have the header sent_ns, which feed adds with `sent_at`, and quotes passes on.
"""

import asyncio
import errno
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import closing, contextmanager
from typing import Annotated, Any, Final, Literal

import uvicorn
from pydantic import AfterValidator, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from spark_jobs.config import JobConfig
from spark_jobs.errors import JobError
from spark_jobs.page_source import PageSource, Topics
from spark_jobs.picture import STATIC
from spark_jobs.signals import stop_on_signals
from spark_jobs.topics import client_errors
from tools.vendor import VENDOR

log = logging.getLogger("spark_jobs")
EVERY_S: Final = 0.5
MAX_READERS: Final = 20
END_S: Final = 3
UNKNOWN_HOST: Final = (socket.EAI_NONAME, socket.EAI_AGAIN, socket.EAI_FAIL)
FILES: Final = {
    "": (STATIC / "live.html", "text/html"),
    "market.css": (STATIC / "market.css", "text/css"),
    "live.css": (STATIC / "live.css", "text/css"),
    "uPlot.css": (VENDOR / "uPlot.min.css", "text/css"),
    "uPlot.js": (VENDOR / "uPlot.iife.min.js", "text/javascript"),
    "plots.js": (STATIC / "plots.js", "text/javascript"),
    "live.js": (STATIC / "live.js", "text/javascript"),
}
HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def _url(text: str) -> str:
    if not text.startswith(("http://", "https://")):
        raise ValueError("http://host:port/metrics is expected")
    return text


Url = Annotated[str, AfterValidator(_url)]


class PageConfig(JobConfig):
    host: str = Field(default="127.0.0.1", description="address that the page listens on; it has no login")
    port: int = Field(default=8090, ge=0, le=65535, description="its port; 0: a free one")
    bars_topic: str = Field(default="live_bars", description="topic of bars: live's or gold's")
    depth_topic: str = Field(default="depth", description="topic of order-book updates, keyed by symbol")
    ticks_topic: str = Field(default="ticks", description="topic of quotes")
    tick_sources: list[str] = Field(default=["trades", "depth"], description="the topics that quotes reads")
    counted_topics: list[str] = Field(
        default=["trades", "depth", "silver_trades", "live_bars", "ticks", "dead_letters"],
        description="topics of which the page tells the number of records",
    )
    metrics: list[Url] = Field(default=[], description="URLs of the jobs' /metrics: their rows, lag and late events")
    width: Literal["1s", "1m", "1h"] = Field(default="1m", description="width of the bars shown first")


class Page:
    """The state of a page that is served."""

    def __init__(self, source: PageSource, width: str, url: str) -> None:
        self.source = source
        self.width = width
        self.url = url
        self.readers = 0
        self.ended: str | None = None
        self.is_closed = False

    def finish(self, text: str) -> None:
        """Show on the page that the data has ended, and why."""
        self.ended = text

    def changes(self, since: int) -> tuple[int, dict[str, Any]]:
        """Return the current version, and the changes for a browser that has the version `since`."""
        now_ms = time.time_ns() // 1_000_000
        with self.source.lock:
            state, facts = self.source.state, self.source.facts
            is_anew = since < state.forgotten
            return state.version, {
                "is_anew": is_anew,
                "bars": state.changed_bars(0 if is_anew else since),
                "books": state.ladders(),
                "latency": {**state.quantiles(now_ms), "behind": facts.ticks_behind},
                "records": facts.records,
                "jobs": facts.jobs,
                "is_answered": facts.is_answered,
                "ended": self.ended,
            }

    async def events(self) -> AsyncIterator[str]:
        """Yield server-sent events until the page ends; the last one says so."""
        self.readers += 1
        try:
            since, is_last = 0, False
            yield f"event: hello\ndata: {json.dumps({'width': self.width})}\n\n"
            while not is_last:
                is_last = self.ended is not None or self.is_closed
                since, changes = self.changes(since)
                yield f"data: {json.dumps(changes, separators=(',', ':'))}\n\n"
                await asyncio.sleep(EVERY_S)
        finally:
            self.readers -= 1


def run(config: PageConfig) -> None:
    """Serve the page until SIGINT or SIGTERM."""
    with stop_on_signals() as stop, serving(config) as page:
        log.info("page on %s", page.url)
        stop.wait()


@contextmanager
def serving(config: PageConfig) -> Iterator[Page]:
    """Serve the page from threads of its own. Raises JobError if the port is in use, or an option is none."""
    client = {"bootstrap.servers": config.bootstrap_servers, **config.kafka}
    topics = Topics(
        bars=config.bars_topic,
        depth=config.depth_topic,
        ticks=config.ticks_topic,
        counted=tuple(config.counted_topics),
        sources=tuple(config.tick_sources),
    )
    with closing(_listener(config)) as listener:
        with client_errors(config.bootstrap_servers, "kafka"):
            source = PageSource(client, topics, tuple(config.metrics))
        host, port = listener.getsockname()[:2]
        page = Page(source, config.width, f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")
        app = application(page)
        server = uvicorn.Server(
            uvicorn.Config(app, log_level="critical", lifespan="off", timeout_graceful_shutdown=END_S)
        )
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, name="page-server")
        thread.start()
        try:
            yield page
        finally:
            page.is_closed = True
            server.should_exit = True
            thread.join()
            source.close()


def _listener(config: PageConfig) -> socket.socket:
    family = socket.AF_INET6 if ":" in config.host else socket.AF_INET
    where = f"{config.host}:{config.port}"
    try:
        return socket.create_server((config.host, config.port), family=family)
    except OSError as error:
        reason, _, _ = (error.strerror or "").partition(" (while ")
        key = "host" if error.errno in (errno.EADDRNOTAVAIL, *UNKNOWN_HOST) else "port"
        raise JobError(f"the page cannot be served on {where}: {reason} (set {key})") from None


def application(page: Page) -> Starlette:
    async def file(request: Request) -> Response:
        found = FILES.get(request.path_params.get("name", ""))
        if found is None:
            return Response("there is no such page", 404)
        path, kind = found
        return Response(path.read_bytes(), headers={**HEADERS, "Content-Type": f"{kind}; charset=utf-8"})

    async def events(_request: Request) -> Response:
        if page.readers >= MAX_READERS:
            return Response("too many pages are open", 503)
        return StreamingResponse(page.events(), media_type="text/event-stream", headers=HEADERS)

    return Starlette(routes=[Route("/events", events), Route("/", file), Route("/{name}", file)])
