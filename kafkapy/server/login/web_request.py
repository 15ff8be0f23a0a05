"""One https request with limits: no redirects, 1 MiB, 10 s from connecting to the last byte.

For keys, tokens, and (over http, too) for clients' metrics.
"""

import socket
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

MAX_BYTES: Final = 1 << 20
TIMEOUT_S: Final = 10.0
"""A token or a set of keys has a few KB. The time is that of the connection, and of the response."""


FINAL_STATUSES: Final = frozenset({400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 501, 505})
"""Statuses after which Apache Kafka's HttpJwtRetriever does not retry."""


class WebError(Exception):
    """There is no usable response. The message contains no secret."""

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.is_retriable = status not in FINAL_STATUSES


def send(
    url: str,
    *,
    context: ssl.SSLContext | None = None,
    body: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    timeout_s: float = TIMEOUT_S,
    connect_timeout_s: float | None = None,
    allows_plain: bool = False,
) -> bytes:
    """Return the response body to a GET, or to a POST of `body`. `context`: None uses the system's trust store.

    `allows_plain`: http URLs are allowed, too.

    Blocks for at most connect_timeout_s (None: timeout_s) plus timeout_s. Raises WebError, OSError.
    """
    parts = urlsplit(url)
    is_plain = allows_plain and parts.scheme == "http"
    if not (is_plain or parts.scheme == "https") or not parts.hostname:
        raise WebError("only https URLs are requested")
    limit_s = connect_timeout_s or timeout_s
    connection: HTTPConnection = (
        HTTPConnection(parts.hostname, parts.port or 80, timeout=limit_s)
        if is_plain
        else HTTPSConnection(parts.hostname, parts.port or 443, timeout=limit_s, context=context)
    )
    try:
        connection.connect()
        connected = connection.sock  # HTTPSConnection drops its socket if the response ends with the connection
        connected.settimeout(timeout_s)
        with _limit(connected, timeout_s):
            path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
            connection.request("GET" if body is None else "POST", path, body=body, headers=dict(headers or {}))
            with closing(connection.getresponse()) as response:
                return _body(response)
    except HTTPException as error:
        raise WebError(f"the response cannot be read: {type(error).__name__}") from error
    finally:
        connection.close()


@contextmanager
def _limit(connected: socket.socket, timeout_s: float) -> Iterator[None]:
    """Shut the connection down after the limit, so that a slow peer cannot block the thread that reads from it forever.

    Then raises WebError, even if a response was read: a truncated one may look complete.
    """
    is_over = threading.Event()

    def cut() -> None:
        is_over.set()
        try:
            # Not SSLSocket.shutdown, which would let the reader continue without TLS.
            socket.socket.shutdown(connected, socket.SHUT_RDWR)
        except OSError:
            return  # it has ended by itself

    timer = threading.Timer(timeout_s, cut)
    timer.daemon = True
    timer.start()
    try:
        yield
    except (OSError, HTTPException, WebError) as error:
        if is_over.is_set():
            raise WebError(f"no response within {timeout_s:g} s") from error
        raise
    finally:
        timer.cancel()
    if is_over.is_set():
        raise WebError(f"no response within {timeout_s:g} s")


def _body(response: HTTPResponse) -> bytes:
    if response.status != 200:
        raise WebError(f"the response has the status {response.status}", response.status)
    data = response.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        raise WebError(f"more than {MAX_BYTES} bytes")
    if response.length:
        raise WebError("the response is cut off")
    return data
