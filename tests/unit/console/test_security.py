"""Who may ask the console: Host, Origin, sessions, CSRF tokens, the token; the headers of every response."""

import asyncio
import html
import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import uvicorn
from starlette.testclient import TestClient
from uvicorn.server import ServerState

from kafkapy.console.app import new_app
from kafkapy.console.connections import new_protocol
from kafkapy.console.main import OptionError, settings_of
from kafkapy.console.security import MAX_DELAYED, POLICY, WRONG_TOKEN_S, Guard, Sessions
from kafkapy.console.settings import Settings
from tests.simulator.loop import SimLoop
from tests.support.console_pages import OWN, csrf_of

NOWHERE = "127.0.0.1:1"
"""No broker is needed: what is refused is refused before one is asked."""
TOKEN = "a token of enough length"


def client(**settings: object) -> TestClient:
    return TestClient(new_app(Settings(servers=NOWHERE, **settings)), base_url=OWN, raise_server_exceptions=False)


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8080", "localhost:9999", "[::1]:8080", "192.0.2.7", "console.internal:8080"]
)
def test_own_hosts_are_answered(host) -> None:
    response = client(allowed_hosts=("console.internal",)).get("/static/console.css", headers={"host": host})
    assert response.status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "attacker.example",
        "127.0.0.1.attacker.example:8080",
        "",
        "localhost.attacker.example",
        "[::1].evil",
        "[::1]evil:8080",
        "[::1",
        "[::1]:8080.evil",
    ],
)
def test_hosts_of_others_are_refused(host) -> None:
    response = client().get("/", headers={"host": host})
    assert (response.status_code, "set-cookie" in response.headers) == (403, False)


def test_every_response_has_its_policy_and_is_not_stored() -> None:
    page = client()
    for path in ("/", "/static/console.css", "/nothing", "/stream"):
        headers = page.get(path).headers
        assert headers["content-security-policy"] == POLICY
        assert (headers["cache-control"], headers["x-content-type-options"]) == ("no-store", "nosniff")
    assert "unsafe" not in POLICY


def test_no_template_has_inline_script_or_style() -> None:
    from kafkapy.console.app import STATIC

    for path in (STATIC.parent / "templates").iterdir():
        text = path.read_text()
        assert not re.search(r"\sstyle=|\son[a-z]+=|<style|javascript:|hx-on|\|\s*safe", text), path.name
        assert all('src="' in tag for tag in re.findall(r"<script[^>]*>", text)), path.name


def test_pages_of_other_origins_may_navigate_here_and_nothing_else() -> None:
    page = client()
    cross = {"sec-fetch-site": "cross-site"}
    assert page.get("/stream", headers={**cross, "sec-fetch-mode": "cors"}).status_code == 403
    assert page.get("/charts", headers={**cross, "sec-fetch-mode": "navigate"}).status_code == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"origin": OWN}, 200),
        ({"sec-fetch-site": "same-origin"}, 200),
        ({}, 403),
        ({"origin": "null"}, 403),
        ({"origin": "http://127.0.0.1:9090"}, 403),
        ({"origin": "http://attacker.example"}, 403),
        ({"origin": OWN, "sec-fetch-site": "cross-site"}, 403),
    ],
)
def test_changes_come_from_the_console_itself(headers, expected) -> None:
    page = client(allow_changes=True)
    page.get("/charts")
    fields = {"csrf": csrf_of(page), "name": "t"}
    assert page.post("/change/create-topic", data=fields, headers=headers).status_code == expected


@pytest.mark.parametrize("csrf", ["", "0" * 64, "ü"])
def test_changes_need_the_token_of_their_session(csrf) -> None:
    page = client(allow_changes=True)
    page.get("/charts")
    response = page.post("/change/create-topic", data={"csrf": csrf, "name": "t"}, headers={"origin": OWN})
    assert response.status_code == 403


def test_a_session_that_was_not_made_here_is_not_taken() -> None:
    page = client(token=TOKEN)
    page.cookies.set("kafkapy-console-8080", "0" * 32 + "." + "0" * 64)
    assert page.get("/charts", headers={"accept": "application/json"}).status_code == 401


def test_without_the_option_nothing_is_changed() -> None:
    page = client()
    page.get("/charts")
    response = page.post("/change/create-topic", data={"csrf": csrf_of(page), "name": "t"}, headers={"origin": OWN})
    assert (response.status_code, "--allow-changes" in response.text) == (403, True)


def test_large_bodies_are_refused() -> None:
    page = client(allow_changes=True)
    page.get("/charts")
    response = page.post("/change/produce", content=b"x" * (3 << 20), headers={"origin": OWN})
    assert response.status_code == 413


def test_with_a_token_nothing_is_shown_before_the_login() -> None:
    page = client(token=TOKEN)
    for path in ("/", "/topics", "/stream", "/static/console.js", "/nothing"):
        assert page.get(path, headers={"accept": "*/*"}).status_code == 401
    requested = page.get("/", headers={"accept": "text/html"}, follow_redirects=False)
    assert (requested.status_code, requested.headers["location"]) == (303, "/login")
    assert page.get("/login").status_code == 200
    assert not page.cookies


def test_after_the_login_comes_the_page_that_was_asked_for() -> None:
    page = client(token=TOKEN)
    wanted = "/topic?name=orders&tab=a%26b"
    asked = page.get(wanted, headers={"accept": "text/html"})
    (kept,) = re.findall(r'name="to" value="([^"]*)"', asked.text)
    assert html.unescape(kept) == wanted
    done = page.post("/login", data={"token": TOKEN, "to": wanted}, headers={"origin": OWN}, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, wanted)


@pytest.mark.parametrize(
    "elsewhere", ["https://evil.example/", "//evil.example", "/\\evil.example", "/\t/evil.example", "x"]
)
def test_after_the_login_comes_no_page_of_another_site(elsewhere: str) -> None:
    data = {"token": TOKEN, "to": elsewhere}
    done = client(token=TOKEN).post("/login", data=data, headers={"origin": OWN}, follow_redirects=False)
    assert (done.status_code, done.headers["location"]) == (303, "/")


def test_the_token_makes_a_session_and_a_wrong_one_does_not(monkeypatch) -> None:
    monkeypatch.setattr("kafkapy.console.app.WRONG_TOKEN_S", 0)
    page = client(token=TOKEN)
    wrong = page.post("/login", data={"token": "wrong"}, headers={"origin": OWN})
    assert (wrong.status_code, bool(page.cookies)) == (403, False)
    right = page.post("/login", data={"token": TOKEN}, headers={"origin": OWN}, follow_redirects=False)
    assert right.status_code == 303
    assert all(word in right.headers["set-cookie"] for word in ("HttpOnly", "SameSite=strict"))
    assert page.get("/charts").status_code == 200


def test_a_program_sends_the_token_itself() -> None:
    page = client(token=TOKEN)
    assert page.get("/charts", headers={"authorization": f"Bearer {TOKEN}"}).status_code == 200
    assert page.get("/charts", headers={"authorization": "Bearer wrong", "accept": "*/*"}).status_code == 401


def parsed(*arguments: str) -> Settings:
    from kafkapy.cli.console_options import new_parser

    return settings_of(new_parser().parse_args(arguments))


def test_off_loopback_a_token_is_needed(tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("KAFKAPY_CONSOLE_TOKEN", raising=False)
    with pytest.raises(OptionError, match="a token is needed"):
        parsed("--listen", "0.0.0.0:8080")
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    assert parsed("--listen", "0.0.0.0:8080", "--token-file", str(tmp_path / "token")).token == TOKEN
    monkeypatch.setenv("KAFKAPY_CONSOLE_TOKEN", "short")
    with pytest.raises(OptionError, match="fewer than 16"):
        parsed()


@pytest.mark.parametrize(
    "arguments", [["--metrics", "file:///etc/passwd"], ["-X", "nonsense"], ["--token-file", "/none"]]
)
def test_broken_options_are_one_line(arguments) -> None:
    with pytest.raises(OptionError):
        parsed(*arguments)


async def test_a_wrong_bearer_token_is_answered_after_a_delay(loop: SimLoop) -> None:
    async def page(scope: Any, receive: Any, send: Any) -> None:
        raise AssertionError("nobody gets in")

    def nobody(*arguments: Any) -> Any:
        raise AssertionError("no form is sent")

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            statuses.append((loop.now_ms(), message["status"]))

    async def ask(*headers: tuple[bytes, bytes]) -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": [(b"host", b"127.0.0.1"), *headers]}
        await guard(scope, send, send)

    statuses: list[tuple[int, int]] = []
    settings = Settings(servers=NOWHERE, token=TOKEN)
    guard = Guard(page, settings=settings, sessions=Sessions(settings), stale=nobody)
    await ask()
    await asyncio.gather(*(ask((b"authorization", b"Bearer wrong")) for _ in range(MAX_DELAYED + 1)))
    assert statuses[0] == (0, 401), "who brings no token has not guessed"
    assert statuses[1] == (0, 401), "one more than may wait"
    assert statuses[2:] == [(1000 * WRONG_TOKEN_S, 401)] * MAX_DELAYED


async def short_page(scope: Any, receive: Any, send: Any) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@contextmanager
def bounded_server(page: Any = short_page, **bounds: Any) -> Iterator[int]:
    config = uvicorn.Config(page, http=new_protocol(**bounds), lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            server.should_exit = True
            thread.join()


def ask(connection: socket.socket) -> bytes:
    """Send a whole request; return the whole response, whose body may come after its head."""
    connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
    response = b""
    while not response.endswith(b"\r\n\r\nok"):
        part = connection.recv(65536)
        assert part, response
        response += part
    return response


def test_half_requests_make_room_for_whole_ones() -> None:
    with bounded_server(max_connections=3) as port:
        half = [socket.create_connection(("127.0.0.1", port), 60) for _ in range(8)]
        for each in half:
            with suppress(ConnectionError):
                each.sendall(b"GET / HTTP/1.1\r\nHost: a")
        with socket.create_connection(("127.0.0.1", port), 60) as whole:
            for _ in range(2):  # the connection is kept
                assert ask(whole).startswith(b"HTTP/1.1 200 OK")
        for each in half:
            each.close()


@pytest.mark.parametrize("is_first", [True, False], ids=["first", "further"])
def test_a_head_that_does_not_arrive_in_time_is_given_up(is_first: bool) -> None:
    with (
        bounded_server(head_timeout_s=0.1 if is_first else 1) as port,  # a whole head arrives in a second
        socket.create_connection(("127.0.0.1", port), 60) as connection,
    ):
        if not is_first:
            assert ask(connection).startswith(b"HTTP/1.1 200 OK")
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a")
        with suppress(ConnectionError):
            while connection.recv(65536):
                pass


class FakeTransport:
    """Says how many bytes are unsent, as the kernel takes them; whether it was aborted."""

    def __init__(self, unsent_bytes: int) -> None:
        self.unsent_bytes = unsent_bytes
        self.is_aborted = False
        self.socket = socket.socket()

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def set_write_buffer_limits(self, high: int) -> None:
        assert high == 0, "one unsent byte is to be watched, too"

    def get_extra_info(self, name: str) -> socket.socket | None:
        return self.socket if name == "socket" else None

    def abort(self) -> None:
        self.is_aborted = True


@contextmanager
def connected(loop: SimLoop, kind: Any, *transports: FakeTransport) -> Iterator[list[Any]]:
    config, state = uvicorn.Config(lambda: None, log_level="warning"), ServerState()
    protocols = [kind(config, state, {}, loop) for _ in transports]
    for protocol, transport in zip(protocols, transports, strict=True):
        protocol.connection_made(transport)
    yield protocols
    for transport in transports:
        transport.socket.close()


async def test_a_response_that_is_read_slowly_goes_on(loop: SimLoop) -> None:
    slow = FakeTransport(1_000)
    with connected(loop, new_protocol(head_timeout_s=1_000, unread_timeout_s=30), slow) as (protocol,):
        protocol.pause_writing()
        for _ in range(5):
            slow.unsent_bytes -= 1
            await asyncio.sleep(30.5)
        assert not slow.is_aborted
        protocol.resume_writing()
        await asyncio.sleep(100)
        assert not slow.is_aborted, "all was sent"
        protocol.pause_writing()
        await asyncio.sleep(30.5)
        assert slow.is_aborted


@pytest.mark.parametrize(
    ("unsent_bytes", "closed"),
    [((400, 500, 300), [True, False, False]), ((10, 10, 10, 990), [True, True, False, False])],
)
async def test_above_the_bound_of_unsent_bytes_the_longest_waits_are_closed(
    loop: SimLoop, unsent_bytes: tuple[int, ...], closed: list[bool]
) -> None:
    transports = [FakeTransport(each) for each in (1, *unsent_bytes)]
    kind = new_protocol(head_timeout_s=1_000, max_unsent_bytes=1_000)
    with connected(loop, kind, *transports) as (read, *unread):
        read.pause_writing()
        read.resume_writing()
        for each in unread:
            each.pause_writing()
        assert [each.is_aborted for each in transports] == [False, *closed]


async def test_connections_that_are_accepted_in_one_turn_of_the_loop_take_the_place_of_as_many(loop: SimLoop) -> None:
    transports = [FakeTransport(0) for _ in range(6)]
    with connected(loop, new_protocol(max_connections=3), *transports):
        assert [each.is_aborted for each in transports] == [True, True, True, False, False, False]


def test_a_stream_that_nobody_reads_ends() -> None:
    has_ended = threading.Event()

    async def stream(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for _ in range(16):  # a megabyte, which the kernel would take to send
            await send({"type": "http.response.body", "body": bytes(1 << 16), "more_body": True})
        while (await receive())["type"] != "http.disconnect":
            pass
        has_ended.set()

    with bounded_server(stream, unread_timeout_s=0.1) as port, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)  # however much the kernel here takes
        connection.connect(("127.0.0.1", port))
        connection.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        assert has_ended.wait(60)
