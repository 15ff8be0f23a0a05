"""The console as an ASGI application."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import anyio
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import Receive, Scope, Send

from kafkapy.cli.command_config import CommandConfig, current, used
from kafkapy.console.brokers import ClusterError
from kafkapy.console.changes import CAME_FROM, Changes
from kafkapy.console.loading import Loading
from kafkapy.console.oidc import OidcLogin
from kafkapy.console.overview import Overview
from kafkapy.console.pages import Pages
from kafkapy.console.render import Renderer, came_from, own_link
from kafkapy.console.security import WRONG_TOKEN_S, Guard, Sessions, is_token
from kafkapy.console.settings import Settings
from kafkapy.console.state import Console
from kafkapy.console.streams import Streams
from kafkapy.console.subjects import Subjects
from kafkapy.version import __version__

STATIC: Final = Path(__file__).parent / "static"


def new_app(settings: Settings, session_key: bytes | None = None) -> Starlette:
    """Return the application; no cluster is contacted before the application serves.

    session_key: signs sessions, which end with the application without it.
    """
    sessions = Sessions(settings, session_key)
    parts = [_Part(settings, "", current(), settings)]  # the first cluster, often the only one, has no prefix
    for each in settings.clusters:
        own = replace(settings, servers=each.servers, name=each.name, metrics_urls=(), properties=None)
        parts.append(_Part(own, f"/c/{each.name}", each.config, settings))
    first, *others = parts
    login = _Login(settings, sessions, first.renderer)
    oidc = [] if settings.oidc is None else OidcLogin(settings.oidc, sessions, first.renderer).routes()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        for part in parts:
            part.start()
        yield
        for part in parts:
            part.console.close()

    return Starlette(
        routes=[
            *first.routes(),
            Route("/login", login.endpoint, methods=["GET", "POST"]),
            Route("/logout", login.log_out, methods=["POST"]),
            *oidc,
            Route("/c/", _to_the_first, methods=["GET"]),
            *(Mount(part.base, part) for part in others),
            Mount("/static", StaticFiles(directory=STATIC)),
        ],
        middleware=[Middleware(Guard, settings=settings, sessions=sessions, stale=_Stale(parts))],
        exception_handlers=first.handlers(),
        lifespan=lifespan,
    )


async def _to_the_first(request: Request) -> Response:
    return RedirectResponse("/", 303)


class _Part:
    """The pages of one cluster, below `base`, with the TLS settings and the login of `config`: an ASGI application."""

    def __init__(self, settings: Settings, base: str, config: CommandConfig, whole: Settings) -> None:
        self.base = base
        self._config = config
        with used(config):
            self.console = Console(settings)
        names = [(whole.name or whole.servers, "/c/"), *((each.name, f"/c/{each.name}/") for each in whole.clusters)]
        self.renderer = Renderer(
            base=base,
            servers=settings.servers,
            cluster_name=settings.name or settings.servers,
            clusters=names if len(names) > 1 else [],
            has_token=whole.token is not None,
            has_oidc=whole.oidc is not None,
            version=__version__,
        )
        self._app = Starlette(routes=self.routes(), exception_handlers=self.handlers()) if base else None

    def start(self) -> None:
        with used(self._config):
            self.console.start()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._app is not None, "the first part is the application itself"
        with used(self._config):  # threads that handlers run in copy the context
            await self._app(scope, receive, send)

    def routes(self) -> list[Route]:
        console, renderer = self.console, self.renderer
        return [
            *Overview(console, renderer).routes(),
            *Pages(console, renderer).routes(),
            *Changes(console, renderer).routes(),
            *Loading(console).routes(),
            *Subjects(console.settings, renderer).routes(),
            Route("/stream", Streams(console, renderer).endpoint, methods=["GET"]),
        ]

    def handlers(self) -> dict[Any, Any]:
        return {ClusterError: self._failed, HTTPException: self._failed}

    def _failed(self, request: Request, error: Exception) -> Response:
        if isinstance(error, ClusterError):
            return self.renderer.page(request, "error.html", error.status, problem=str(error))
        assert isinstance(error, HTTPException)
        is_unknown = error.status_code == 404  # of a page; what a cluster lacks may be there when it is asked again
        problem = "There is no such page." if is_unknown else error.detail
        return self.renderer.page(request, "error.html", error.status_code, problem=problem, is_unknown=is_unknown)


class _Stale:
    """The page for a form of an ended session, with a link to the page that had the form."""

    def __init__(self, parts: list[_Part]) -> None:
        self._parts = parts

    def __call__(self, request: Request, body: bytes) -> Response:
        path = request.url.path
        part = next((each for each in self._parts if each.base and path.startswith(f"{each.base}/")), self._parts[0])
        back = own_link(came_from(request) or _came_from_of(body))
        return part.renderer.page(request, "stale.html", 403, came_from=back)


def _came_from_of(body: bytes) -> str:
    """Return the fields that a confirmation sends again."""
    try:
        return parse_qs(body.decode("ascii"), max_num_fields=1000).get(CAME_FROM, [""])[0]
    except ValueError:
        return ""


class _Login:
    def __init__(self, settings: Settings, sessions: Sessions, renderer: Renderer) -> None:
        self._settings = settings
        self._sessions = sessions
        self._renderer = renderer
        self._one_at_a_time = anyio.Lock()

    async def endpoint(self, request: Request) -> Response:
        """Start a session for a client that knows the token. Wrong tokens are answered after a delay, one at a time."""
        if not self._settings.has_login:
            return RedirectResponse("/", 303)
        if request.method == "GET":
            return self._renderer.page(request, "login.html", problem=None, to=request.query_params.get("to", ""))
        form = await request.form()
        given, to = form.get("token", ""), str(form.get("to", ""))
        if self._settings.token is not None and isinstance(given, str) and is_token(self._settings, given):
            response = RedirectResponse(own_link(to) or "/", 303)
            response.set_cookie(self._sessions.cookie, self._sessions.new().text, httponly=True, samesite="strict")
            return response
        async with self._one_at_a_time:
            await anyio.sleep(WRONG_TOKEN_S)
        return self._renderer.page(request, "login.html", 403, problem="This is not the token.", to=to)

    async def log_out(self, request: Request) -> Response:
        response = RedirectResponse("/login", 303)
        response.delete_cookie(self._sessions.cookie)
        return response
