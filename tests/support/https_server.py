"""A loopback https server for key sets and tokens, with a certificate of a test's own authority."""

import base64
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.bearer_tokens import SigningKey, jwks
from tests.support.certificates import Authority, server_context

Response = tuple[int, Mapping[str, str], bytes]
Route = Callable[["ReceivedRequest"], Response]


def allow_urls(patch: pytest.MonkeyPatch, *urls: str) -> None:
    """Let brokers that are started from now on, of both kinds, ask these addresses for keys and tokens."""
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"
    patch.setenv("KAFKA_OPTS", allowed)
    patch.setenv("JDK_JAVA_OPTIONS", f"{os.environ.get('JDK_JAVA_OPTIONS', '')} {allowed}")


class ReceivedRequest:
    """One request."""

    def __init__(self, method: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.headers = headers
        self.body = body


class HttpsServer:
    """Answers by path, and keeps what it was asked; a path without a route is 404."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.authority = Authority("https CA")
        self.ca_file = directory / "https-ca.pem"
        self.ca_file.write_text(self.authority.certificate_pem)
        self.routes: dict[str, Route] = {}
        self.requested: list[tuple[str, ReceivedRequest]] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        context = server_context(self.authority.issue("localhost", names=("localhost",)), directory)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True, do_handshake_on_connect=False)

    def url(self, path: str, host: str = "localhost") -> str:
        return f"https://{host}:{self._server.server_port}{path}"

    def count(self, path: str) -> int:
        return sum(each == path for each, _ in self.requested)

    def serve(self) -> None:
        self._server.serve_forever(poll_interval=0.05)

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            timeout = 20

            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
                requested = ReceivedRequest(self.command, dict(self.headers), body)
                owner.requested.append((self.path, requested))
                route = owner.routes.get(self.path, lambda _: (404, {}, b""))
                status, headers, data = route(requested)
                self.send_response(status)
                for name, value in {"Content-Length": str(len(data)), **headers}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_GET

            def log_message(self, format: str, *arguments: Any) -> None: ...

        return Handler


@contextmanager
def https_server(directory: Path) -> Iterator[HttpsServer]:
    server = HttpsServer(directory)
    server._server.handle_error = lambda *_: None  # type: ignore[method-assign]  # clients that hang up, as is tested
    thread = threading.Thread(target=server.serve)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join()


def give(data: bytes) -> Route:
    return lambda _: (200, {"Content-Type": "application/json"}, data)


def give_keys(*keys: SigningKey) -> Route:
    return give(jwks(*keys))


def give_tokens(key: SigningKey, client_id: str, secret: str, *, lifetime_s: int = 60, **claims: Any) -> Route:
    """A token endpoint: OAuth 2.0's client credentials, as HTTP Basic (RFC 6749, 4.4)."""
    expected = "Basic " + base64.b64encode(f"{client_id}:{secret}".encode()).decode()

    def route(requested: ReceivedRequest) -> Response:
        if requested.headers.get("Authorization") != expected or b"grant_type=client_credentials" not in requested.body:
            return 401, {"Content-Type": "application/json"}, b'{"error":"invalid_client"}'
        now_ms = int(time.time() * 1000)
        token = key.token(now_ms=now_ms, exp=now_ms // 1000 + lifetime_s, **{"sub": client_id, **claims})
        response = {"access_token": token, "token_type": "Bearer", "expires_in": lifetime_s}
        return 200, {"Content-Type": "application/json"}, json.dumps(response).encode()

    return route
