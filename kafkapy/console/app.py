"""The console as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from kafkapy.console.brokers import ClusterError
from kafkapy.console.changes import Changes
from kafkapy.console.loading import Loading
from kafkapy.console.overview import Overview
from kafkapy.console.pages import Pages
from kafkapy.console.render import Renderer
from kafkapy.console.security import WRONG_TOKEN_S, Guard, Sessions, is_token
from kafkapy.console.settings import Settings
from kafkapy.console.state import Console
from kafkapy.console.streams import Streams
from kafkapy.version import __version__

STATIC: Final = Path(__file__).parent / "static"


def new_app(settings: Settings) -> Starlette:
    """Return the application; the cluster is not contacted before the application serves."""
    console = Console(settings)
    sessions = Sessions(settings)
    renderer = Renderer(
        servers=settings.servers,
        allow_changes=settings.allow_changes,
        has_token=settings.token is not None,
        has_metrics=bool(settings.metrics_urls),
        version=__version__,
    )
    login = _Login(settings, sessions, renderer)

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        console.start()
        yield
        console.close()

    def failed(request: Request, error: Exception) -> Response:
        if isinstance(error, ClusterError):
            return renderer.page(request, "error.html", error.status, problem=str(error))
        assert isinstance(error, HTTPException)
        # Starlette's text for it, "Not Found", tells a reader less
        problem = "There is no such page." if error.status_code == 404 else error.detail
        return renderer.page(request, "error.html", error.status_code, problem=problem)

    return Starlette(
        routes=[
            *Overview(console, renderer).routes(),
            *Pages(console, renderer).routes(),
            *Changes(console, renderer).routes(),
            *Loading(console).routes(),
            Route("/stream", Streams(console, renderer).endpoint, methods=["GET"]),
            Route("/login", login.endpoint, methods=["GET", "POST"]),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, settings=settings, sessions=sessions)],
        exception_handlers={ClusterError: failed, HTTPException: failed},
        lifespan=lifespan,
    )


class _Login:
    def __init__(self, settings: Settings, sessions: Sessions, renderer: Renderer) -> None:
        self._settings = settings
        self._sessions = sessions
        self._renderer = renderer
        self._one_at_a_time = anyio.Lock()

    async def endpoint(self, request: Request) -> Response:
        """Start a session for a client that knows the token. Wrong tokens are answered after a delay, one at a time."""
        if self._settings.token is None:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._renderer.page(request, "login.html", problem=None)
        given = (await request.form()).get("token", "")
        if isinstance(given, str) and is_token(self._settings, given):
            answer = RedirectResponse("/", 303)
            answer.set_cookie(self._sessions.cookie, self._sessions.new(), httponly=True, samesite="strict")
            return answer
        async with self._one_at_a_time:
            await anyio.sleep(WRONG_TOKEN_S)
        return self._renderer.page(request, "login.html", 403, problem="This is not the token.")
