"""One https request: whom it trusts, and what it is not led into."""

import ssl
import threading
import time
from collections.abc import Iterator

import pytest

from kafkapy.server.login.web_request import MAX_BYTES, WebError, send
from tests.support.certificates import Authority, client_context
from tests.support.https_server import HttpsServer, ReceivedRequest, Response, give, https_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpsServer]:
    with https_server(tmp_path_factory.mktemp("https")) as running:
        running.routes["/keys"] = give(b"keys")
        yield running


@pytest.fixture
def context(server: HttpsServer) -> ssl.SSLContext:
    return client_context(server.authority)


def test_the_body_is_returned(server: HttpsServer, context: ssl.SSLContext) -> None:
    assert send(server.url("/keys"), context=context) == b"keys"


def test_a_body_is_posted(server: HttpsServer, context: ssl.SSLContext) -> None:
    server.routes["/echo"] = lambda requested: (200, {}, requested.body + requested.headers["X"].encode())
    assert send(server.url("/echo"), context=context, body=b"body", headers={"X": "y"}) == b"bodyy"


def test_a_stranger_is_not_trusted(server: HttpsServer) -> None:
    for stranger in (None, client_context(Authority("another")), ssl.create_default_context()):
        with pytest.raises(ssl.SSLCertVerificationError):
            send(server.url("/keys"), context=stranger)


def test_the_name_is_checked(server: HttpsServer, context: ssl.SSLContext) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        send(server.url("/keys", host="127.0.0.1"), context=context)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_is_followed(server: HttpsServer, context: ssl.SSLContext, status: int) -> None:
    server.routes["/moved"] = lambda _: (status, {"Location": server.url("/keys")}, b"")
    before = server.count("/keys")
    with pytest.raises(WebError, match=f"the status {status}"):
        send(server.url("/moved"), context=context)
    assert server.count("/keys") == before


def test_more_than_a_mebibyte_is_not_read(server: HttpsServer, context: ssl.SSLContext) -> None:
    server.routes["/large"] = give(bytes(MAX_BYTES + 1))
    server.routes["/largest"] = give(bytes(MAX_BYTES))
    assert len(send(server.url("/largest"), context=context)) == MAX_BYTES
    with pytest.raises(WebError, match="more than"):
        send(server.url("/large"), context=context)


def test_a_response_that_is_cut_off_is_none(server: HttpsServer, context: ssl.SSLContext) -> None:
    server.routes["/cut"] = lambda _: (200, {"Content-Length": "100"}, b"less")
    with pytest.raises((WebError, OSError)):
        send(server.url("/cut"), context=context)


def test_a_response_that_does_not_come_is_not_waited_for(server: HttpsServer, context: ssl.SSLContext) -> None:
    is_over = threading.Event()

    def late(_: ReceivedRequest) -> Response:
        is_over.wait(120)
        return 200, {}, b""

    server.routes["/slow"] = late
    began = time.monotonic()
    with pytest.raises((WebError, OSError)):
        send(server.url("/slow"), context=context, timeout_s=0.3)
    is_over.set()
    assert time.monotonic() - began < 60


@pytest.mark.parametrize("url", ["http://localhost/keys", "file:///etc/passwd", "ftp://x/y", "https://", ""])
def test_only_https_is_requested(url: str) -> None:
    with pytest.raises(WebError, match="only https"):
        send(url)


def test_secrets_are_in_no_message(server: HttpsServer, context: ssl.SSLContext) -> None:
    server.routes["/refused"] = lambda _: (401, {}, b"")
    with pytest.raises(WebError) as refused:
        send(server.url("/refused"), context=context, body=b"x", headers={"Authorization": "Basic c2VjcmV0"})
    assert "c2VjcmV0" not in str(refused.value)
