"""The registry as an ASGI application."""

import base64
import binascii
import contextlib
import hmac
import json
import logging
import ssl
import threading
import time
from collections.abc import Mapping
from typing import Any, Final, Protocol

import anyio
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from kafkapy.registry.election import Identity
from kafkapy.registry.errors import (
    LeaderUnreachableError,
    RegistryError,
    forwarding_failed,
    unknown_leader,
    unreadable,
)
from kafkapy.registry.http.api import Api, Call, Handler
from kafkapy.registry.http.forward import FORWARDED, forward
from kafkapy.registry.http.paths import target_of
from kafkapy.registry.records import dumps

MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
PLAIN_MEDIA_TYPE: Final = "application/json"
MAX_BODY_BYTES: Final = 4 << 20
MAX_READS: Final = 20
"""Requests that are answered from the state at a time; further ones wait."""
MAX_WRITES: Final = 20
"""Requests that wait for the leader, for each other or for Kafka at a time: they keep no reader waiting."""
MAX_DELAYED: Final = 50
WRONG_PASSWORD_S: Final = 0.5
LEADER_WAIT_S: Final = 15.0
"""How long a write waits while a leader is elected, or while the one that is known cannot be reached."""
MAX_WAITING: Final = 10
"""Threads that may wait for the leader, fewer than MAX_WRITES; further writes fail at once if it is unreachable."""
LEADER_RETRY_S: Final = 0.2

logger = logging.getLogger("kafkapy.registry")


class Leadership(Protocol):
    """Who writes: kafkapy.registry.election.Election."""

    @property
    def is_leader(self) -> bool: ...

    def await_leader(self, timeout_s: float) -> Identity | None:
        """Return the leader; None if there is none in time."""


class App:
    """`users`: passwords by name, None: anybody may use it. `context`: the TLS of requests to another leader."""

    def __init__(
        self,
        api: Api,
        election: Leadership,
        users: Mapping[str, str] | None = None,
        context: ssl.SSLContext | None = None,
    ) -> None:
        self._api = api
        self._election = election
        self._users = users
        self._context = context
        self._reads: anyio.CapacityLimiter | None = None
        self._writes: anyio.CapacityLimiter | None = None
        self._delayed = 0
        self._may_wait = threading.Semaphore(MAX_WAITING)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["type"] == "http", "neither lifespan nor websockets are served"
        request = Request(scope, receive)
        status, body = await self._respond(request)
        accepted = request.headers.get("accept", "")
        plain = PLAIN_MEDIA_TYPE in accepted and "schemaregistry" not in accepted
        response = Response(body, status, media_type=PLAIN_MEDIA_TYPE if plain else MEDIA_TYPE)
        if status == 401:
            response.headers["www-authenticate"] = 'Basic realm="SchemaRegistry"'
        await response(scope, receive, send)

    async def _respond(self, request: Request) -> tuple[int, bytes]:
        try:
            await self._check_user(request)
            body = await _body_of(request)
            if self._reads is None or self._writes is None:
                self._reads, self._writes = anyio.CapacityLimiter(MAX_READS), anyio.CapacityLimiter(MAX_WRITES)
            response = await anyio.to_thread.run_sync(self._read, request, body, limiter=self._reads)
            if response is not None:
                return response
            return await anyio.to_thread.run_sync(self._write, request, body, limiter=self._writes)
        except RegistryError as error:
            return _error(error)
        except ClientDisconnect:
            return 400, b""
        except Exception:
            logger.exception("%s %s failed", request.method, request.url.path)
            return _error(RegistryError(500, "Internal Server Error"))

    async def _check_user(self, request: Request) -> None:
        """Raise RegistryError for a request without a user and the right password; the response comes after a while."""
        if self._users is None:
            return
        given = request.headers.get("authorization")
        if _is_user(given, self._users):
            return
        if given is not None and self._delayed < MAX_DELAYED:
            self._delayed += 1
            try:
                await anyio.sleep(WRONG_PASSWORD_S)
            finally:
                self._delayed -= 1
        raise RegistryError(401, "Unauthorized")

    def _read(self, request: Request, body: bytes) -> tuple[int, bytes] | None:
        """Return the response of a request that changes nothing; None for any other. In a thread of its own.

        Raises RegistryError.
        """
        handler, call = self._called(request, body)
        if not self._api.is_write(handler):
            return _done(handler(call))
        known = self._api.known(handler, call)
        return None if known is None else _done(known)

    def _write(self, request: Request, body: bytes) -> tuple[int, bytes]:
        """Return the response of a request that changes something, in a thread of its own. Raises RegistryError."""
        response = self._of_leader(request, body)
        if response is not None:
            return response
        handler, call = self._called(request, body)
        return _done(handler(call))

    def _called(self, request: Request, body: bytes) -> tuple[Handler, Call]:
        """Return what answers a request. Raises RegistryError."""
        target = target_of(_raw_path(request), request.scope["query_string"], self._api.alias_of)
        handler, names = self._api.handler(request.method, target)
        return handler, Call(target, names, _json(body) if body else None)

    def _of_leader(self, request: Request, body: bytes) -> tuple[int, bytes] | None:
        """Return the leader's response; None if this is the leader. A leader that was killed has a successor soon."""
        raw_path, query = _raw_path(request), request.scope["query_string"]
        path = raw_path.decode("latin-1").partition("?")[0] + (f"?{query.decode('latin-1')}" if query else "")
        sent = (request.method, path, body)
        try:
            return self._forwarded(request.headers, sent)
        except LeaderUnreachableError:
            if not self._may_wait.acquire(blocking=False):
                raise
        try:
            return self._forwarded_in_time(request.headers, sent)
        finally:
            self._may_wait.release()

    def _forwarded_in_time(self, headers: Headers, sent: tuple[str, str, bytes]) -> tuple[int, bytes] | None:
        deadline_s = time.monotonic() + LEADER_WAIT_S
        while True:
            time.sleep(LEADER_RETRY_S)
            try:
                return self._forwarded(headers, sent)
            except LeaderUnreachableError:
                if time.monotonic() > deadline_s:
                    raise

    def _forwarded(self, headers: Headers, sent: tuple[str, str, bytes]) -> tuple[int, bytes] | None:
        """Return the leader's response; None if this is the leader. Raises RegistryError, LeaderUnreachableError."""
        leader = self._election.await_leader(LEADER_WAIT_S)
        if leader is None:
            raise unknown_leader()
        if self._election.is_leader:
            return None
        if FORWARDED in headers:
            raise forwarding_failed(f"A request that was forwarded to this registry: the leader is {leader.url}")
        response = forward(leader, sent, headers, self._context)
        with contextlib.suppress(RegistryError):  # it is written; the next request here should see it
            self._api.catch_up()
        return response


def _raw_path(request: Request) -> bytes:
    found: bytes = request.scope.get("raw_path") or request.url.path.encode()
    return found


def _done(found: Any) -> tuple[int, bytes]:
    if found is None:
        return 204, b""
    return 200, (found if isinstance(found, str) else dumps(found)).encode()


def _error(error: RegistryError) -> tuple[int, bytes]:
    return error.status, dumps({"error_code": error.code, "message": error.message}).encode()


async def _body_of(request: Request) -> bytes:
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise RegistryError(413, f"a body of more than {MAX_BODY_BYTES} bytes")
    return bytes(body)


def _json(body: bytes) -> Any:
    """Return a body. Raises RegistryError, also for half of a surrogate pair: JSON can write it, UTF-8 cannot."""
    try:
        found = json.loads(body)
        dumps(found).encode()
        return found
    except (ValueError, RecursionError) as error:
        raise unreadable(f"the body is no JSON: {error}") from error


def _is_user(header: str | None, users: Mapping[str, str]) -> bool:
    kind, _, token = (header or "").partition(" ")
    if kind.lower() != "basic":
        return False
    try:
        name, colon, password = base64.b64decode(token, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return False
    expected = users.get(name)
    return hmac.compare_digest(password.encode(), (expected or "").encode()) and bool(colon) and expected is not None
