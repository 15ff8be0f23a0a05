"""Access control of the console: an ASGI middleware around all pages.

- Host must be an address, localhost, or a name of --allowed-host: other names are refused, because an attacker's DNS
  server can make them resolve to this machine (DNS rebinding).
- A request from a page of another origin is refused (Sec-Fetch-Site), and so is each change whose Origin is not the
  console's own, or without the CSRF token of its session.
- With a token or OIDC, nothing but the login and its style is served without a session, or `Authorization: Bearer` with
  the token. Wrong tokens are answered after WRONG_TOKEN_S. A session has a role: viewers change nothing.
- Every response has a content security policy that allows no inline script or style, and is stored by nobody.
"""

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable
from http.cookies import CookieError, SimpleCookie
from typing import Final
from urllib.parse import parse_qs, urlsplit

import anyio
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from kafkapy.console.addresses import host_name, is_address
from kafkapy.console.render import came_from, link
from kafkapy.console.settings import Settings
from kafkapy.dataclass import dataclass

MAX_BODY_BYTES: Final = 2 << 20
"""A produced record of 1 MiB, percent-encoded in part."""
WRONG_TOKEN_S: Final = 1.0
"""Delay of the response to a wrong token."""
MAX_DELAYED: Final = 50
"""Bearer tokens whose responses are delayed at a time."""
SAFE_METHODS: Final = ("GET", "HEAD")
CSRF_FIELD: Final = "csrf"
MAX_WANTED: Final = 2000
"""Characters of the address of the page that is shown after the login; for a longer one the first page is."""
OPEN_PATHS: Final = ("/login", "/static/console.css", "/oidc/start", "/oidc/callback")
EDITOR: Final = "editor"
VIEWER: Final = "viewer"
SESSION_S: Final = 12 * 3600
POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'"
)
HEADERS: Final = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",  # with no-referrer the Origin of a form would be "null"
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}


@dataclass(frozen=True, slots=True)
class Session:
    """`text`: as in the cookie; `user`: "" if the login was by the token."""

    text: str
    role: str
    user: str


class Sessions:
    """Session ids that only this console can create: an id, a role, a user, the end, and the HMAC of these.

    key: of session_key.py, by which they outlive this process; without one, they end with it.
    """

    def __init__(self, settings: Settings, key: bytes | None = None) -> None:
        self._key = secrets.token_bytes(32) if key is None else key
        self.cookie = f"kafkapy-console-{settings.port}"

    def new(self, role: str = EDITOR, user: str = "") -> Session:
        return Session(self.signed("session", role, user, SESSION_S), role, user)

    def signed(self, purpose: str, role: str, user: str, valid_s: float) -> str:
        """Return texts that `parsed` returns again, for valid_s at most."""
        until_s = int(time.time() + valid_s)
        text = ":".join((secrets.token_hex(16), role, user.encode().hex(), str(until_s)))
        return f"{text}.{self._mac(purpose, text)}"

    def parsed(self, text: str, purpose: str = "session") -> Session | None:
        """Return a session that was made here and has not ended."""
        fields, _, mac = text.partition(".")
        if not mac.isascii() or not hmac.compare_digest(mac, self._mac(purpose, fields)):
            return None
        _, role, user, until_s = fields.split(":")
        return Session(text, role, bytes.fromhex(user).decode()) if time.time() < int(until_s) else None

    def in_cookie(self, header: str, name: str, purpose: str = "session") -> Session | None:
        """Return the session in a Cookie header, if it was made here and has not ended."""
        try:
            found = SimpleCookie(header).get(name)
        except CookieError:
            return None
        return None if found is None else self.parsed(found.value, purpose)

    def csrf_token(self, session: str) -> str:
        return self._mac("csrf", session)

    def _mac(self, purpose: str, text: str) -> str:
        return hmac.new(self._key, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


class BodyTooLarge(Exception):
    """The body of a request has more than MAX_BODY_BYTES."""


class Guard:
    """The middleware. It puts the session's `csrf` token, its `user` and `may_change` into the request's state.

    `why_no_change`: the reason for the page, "" if it may change the cluster. stale: makes the page for a form whose
    token is of another session.
    """

    def __init__(
        self, app: ASGIApp, *, settings: Settings, sessions: Sessions, stale: Callable[[Request, bytes], Response]
    ) -> None:
        self._app = app
        self._stale = stale
        self._settings = settings
        self._sessions = sessions
        self._delayed_count = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        session, is_new = self._session(headers)
        refusal = self._refusal(scope, headers)
        if refusal is not None:
            await PlainTextResponse(refusal + "\n", 403)(scope, receive, _with_headers(send, None))
            return
        needs_login = self._settings.has_login and is_new and not self._has_bearer(headers)
        if needs_login and scope["path"] not in OPEN_PATHS:
            if "authorization" in headers:
                await self._delay()
            response = _to_login(scope, headers)
            await response(scope, receive, _with_headers(send, None))
            return
        state = scope.setdefault("state", {})
        state["csrf"] = self._sessions.csrf_token(session.text)
        state["user"] = session.user
        state["why_no_change"] = self._why_no_change(session)
        state["may_change"] = not state["why_no_change"]
        cookie = None
        if is_new and not self._settings.has_login:  # with a login, only its page creates sessions
            cookie = f"{self._sessions.cookie}={session.text}; Path=/; HttpOnly; SameSite=Strict"
        try:
            body = await _body(headers, receive) if scope["method"] not in SAFE_METHODS else None
        except BodyTooLarge:
            await PlainTextResponse("The request is too large.\n", 413)(scope, receive, _with_headers(send, None))
            return
        if body is not None:
            if scope["path"] != "/login" and not self._has_csrf_token(session.text, headers, body):
                stale: Response = PlainTextResponse("The form is out of date: load its page again.\n", 403)
                if "text/html" in headers.get("accept", ""):
                    stale = self._stale(Request(scope), body)
                await stale(scope, receive, _with_headers(send, cookie))
                return
            receive = _replaying(body, receive)
        await self._app(scope, receive, _with_headers(send, cookie))

    def _why_no_change(self, session: Session) -> str:
        if not self._settings.allow_changes:
            return "Changes are not allowed: start the console with --allow-changes."
        return "" if session.role == EDITOR else "You may look, and change nothing: that needs the role of an editor."

    async def _delay(self) -> None:
        """Delay the response to a wrong token, unless so many wait that they would take the connections of others."""
        if self._delayed_count >= MAX_DELAYED:
            return
        self._delayed_count += 1
        try:
            await anyio.sleep(WRONG_TOKEN_S)
        finally:
            self._delayed_count -= 1

    def _session(self, headers: Headers) -> tuple[Session, bool]:
        """Return the request's session, or a new one, and whether it is new."""
        found = self._sessions.in_cookie(headers.get("cookie", ""), self._sessions.cookie)
        return (self._sessions.new(), True) if found is None else (found, False)

    def _refusal(self, scope: Scope, headers: Headers) -> str | None:
        """Return why the request is refused, None if it is not."""
        host = headers.get("host", "")
        if not self._is_own_name(host):
            return "This Host is not the console's: name it with --allowed-host."
        site = headers.get("sec-fetch-site", "none")
        if scope["method"] in SAFE_METHODS:
            is_own = site in ("none", "same-origin")
            return None if is_own or _is_followed_link(scope, headers) else "A page of another origin sent this."
        origin = headers.get("origin")
        is_own = _netloc(origin) == host if origin is not None else site == "same-origin"
        return None if is_own and site in ("none", "same-origin") else "The Origin is not the console's."

    def _is_own_name(self, host: str) -> bool:
        name = host_name(host)
        return name == "localhost" or name in self._settings.allowed_hosts or is_address(name)

    def _has_bearer(self, headers: Headers) -> bool:
        scheme, _, given = headers.get("authorization", "").partition(" ")
        return self._settings.token is not None and scheme.lower() == "bearer" and is_token(self._settings, given)

    def _has_csrf_token(self, session: str, headers: Headers, body: bytes) -> bool:
        given = headers.get("x-csrf-token", "")
        if not given:
            try:
                fields = parse_qs(body.decode("ascii"), max_num_fields=1000)
            except ValueError:
                return False
            given = fields.get(CSRF_FIELD, [""])[0]
        return given.isascii() and hmac.compare_digest(given, self._sessions.csrf_token(session))


def _is_followed_link(scope: Scope, headers: Headers) -> bool:
    """Whether a page is to be shown in a window, not in a frame; what streams or returns data is no page."""
    is_window = headers.get("sec-fetch-dest", "document") == "document"
    return (
        is_window and headers.get("sec-fetch-mode", "navigate") == "navigate" and not scope["path"].endswith("/stream")
    )


def _netloc(origin: str) -> str:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def is_token(settings: Settings, given: str) -> bool:
    """Compare in constant time."""
    assert settings.token is not None, "called only if a token is set"
    return hmac.compare_digest(given.encode("utf-8", "replace"), settings.token.encode())


def _to_login(scope: Scope, headers: Headers) -> PlainTextResponse | RedirectResponse:
    """Lead a browser to the login, and then to the page that it wanted, or that had the form; refuse other clients."""
    if "text/html" not in headers.get("accept", "") or "hx-request" in headers:
        return PlainTextResponse("Log in at /login, or send the token: Authorization: Bearer.\n", 401)
    if scope["method"] == "GET":
        query = scope.get("query_string", b"").decode("latin-1")
        wanted = f"{scope['path']}?{query}" if query else scope["path"]
    else:  # the session ended while a form was filled in
        wanted = came_from(Request(scope))
    is_named = wanted not in ("", "/") and len(wanted) <= MAX_WANTED
    return RedirectResponse(link("/login", to=wanted) if is_named else "/login", 303)


def _with_headers(send: Send, cookie: str | None) -> Send:
    async def send_with_headers(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers.setdefault(name, value)
            if cookie is not None and "set-cookie" not in headers:
                headers.append("set-cookie", cookie)
        await send(message)

    return send_with_headers


async def _body(headers: Headers, receive: Receive) -> bytes:
    """Read the body of a request. Raises BodyTooLarge."""
    body = bytearray()
    while True:
        message = await receive()
        body += message.get("body", b"")
        if len(body) > MAX_BODY_BYTES:
            raise BodyTooLarge
        if message["type"] == "http.disconnect" or not message.get("more_body", False):
            return bytes(body)


def _replaying(body: bytes, receive: Receive) -> Receive:
    parts: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def replay() -> Message:
        return parts.pop() if parts else await receive()

    return replay
