"""What hostile records, brokers and pages of other origins can make of the console: bounded pages, no dead threads."""

import asyncio
import json
import socket
from typing import Any

import httpx
import pytest
from starlette.testclient import TestClient

from kafkapy.cli.connection import Connection
from kafkapy.console.app import new_app
from kafkapy.console.brokers import ClusterError
from kafkapy.console.render import MAX_INDENTED, pretty
from kafkapy.console.samples import MetricSamples
from kafkapy.console.search import MAX_DECODED_BYTES, MAX_SHOWN_CHARACTERS, Query, matcher, row_of
from kafkapy.console.settings import Settings
from kafkapy.console.streams import MAX_STREAMS
from kafkapy.decoders.formats import Decoders
from kafkapy.errors import ProtocolError
from tests.support.one_response import answering

OWN = "http://127.0.0.1:8080"


class Message:
    """A record as librdkafka gives it."""

    def __init__(self, key: bytes, value: bytes, headers: list[tuple[str, bytes | None]]) -> None:
        self._key, self._value, self._headers = key, value, headers

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def offset(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 0

    def key(self) -> bytes:
        return self._key

    def value(self) -> bytes:
        return self._value

    def headers(self) -> list[tuple[str, bytes | None]]:
        return self._headers


@pytest.mark.parametrize("depth", [20, 60, 800])
def test_indented_json_is_never_far_longer(depth) -> None:
    """8 KiB of lists became 6 MB in each of 500 rows."""
    text = "[" * depth + "1," * ((MAX_SHOWN_CHARACTERS - 2 * depth) // 2 - 1) + "1" + "]" * depth
    assert len(pretty(text)) <= MAX_INDENTED * len(text) + 1000


def test_json_as_people_write_it_is_indented() -> None:
    value = {"order": {"lines": [{"sku": str(number), "price": number / 4} for number in range(100)]}}
    text = json.dumps(value)
    assert pretty(text) == json.dumps(value, indent=2)
    assert pretty('{"a": [') == '{"a": ['


def test_a_row_is_bounded_with_its_headers() -> None:
    headers = [("n" * 100_000, b"v" * 100_000) for _ in range(100)]
    row = row_of(Message(b"k", b"v", headers), Decoders("auto", "auto"), MAX_SHOWN_CHARACTERS)
    assert sum(len(name) + len(value or "") for name, value in row.headers) < 4 * MAX_SHOWN_CHARACTERS
    assert row.headers[0][1] == "v" * MAX_SHOWN_CHARACTERS


def test_huge_values_are_searched_and_not_decoded() -> None:
    """They are not decoded for a list either."""
    pytest.importorskip("msgpack")
    huge = b"\xdd\x00\x7f\xff\xff" + b"\xc0" * (0x7FFFFF - 6) + b"\xa6needle"
    assert len(huge) > MAX_DECODED_BYTES
    query = Query("t", text="needle", key_format="messagepack", value_format="messagepack")
    matches = matcher(query, Decoders("messagepack", "messagepack"))
    assert matches(Message(huge, huge, []))
    assert not matcher(Query("t", key="x"), Decoders("messagepack", "messagepack"))(Message(huge, b"", []))


def test_regular_expressions_are_bounded() -> None:
    """A link may open a search by one that takes minutes for each megabyte."""
    pytest.importorskip("re2")
    decoders = Decoders("auto", "auto")
    with pytest.raises(ClusterError, match="too large"):
        matcher(Query("t", regex="(?i)(x|y)*" + ".{0,1000}" * 4 + "z$"), decoders)
    matches = matcher(Query("t", regex=r'(?i)"status"\s*:\s*"(\w|-){1,64}"'), decoders)
    assert matches(Message(b"", b'{"Status": "not-found"}', []))


def test_steps_at_any_depth_are_bounded() -> None:
    """Each visits all of a record: 80 of them, for which a form has room, took three minutes for a megabyte."""
    decoders = Decoders("auto", "auto")
    with pytest.raises(ClusterError, match=r"at most 3 steps"):
        matcher(Query("t", json_path="$" + "..a" * 4), decoders)
    assert matcher(Query("t", json_path="$" + "..a" * 3), decoders)(
        Message(b"", b'{"a": [{"a": {"a": {"a": {"a": 1}}}}]}', [])
    )


def test_half_of_a_surrogate_pair_ends_no_search() -> None:
    """JSON may hold it in a text, and RE2 takes none: one such record in a topic would end each search by =~."""
    pytest.importorskip("re2")
    matches = matcher(Query("t", json_path="$.a =~ ^.b$"), Decoders("auto", "auto"))
    assert matches(Message(b"", b'{"a": "\\ud800b"}', []))
    assert not matches(Message(b"", b'{"a": "\\ud800c"}', []))


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/charts", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"}),
        ("/stream", {"sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}),
    ],
)
def test_other_origins_can_hold_no_stream_or_frame(path, headers) -> None:
    page = TestClient(new_app(Settings(servers="127.0.0.1:1")), base_url=OWN)
    assert page.get(path, headers={"sec-fetch-site": "cross-site", **headers}).status_code == 403
    assert page.get(path, headers={"sec-fetch-site": "same-origin", **headers}).status_code == 200


def test_an_origin_that_is_no_url_is_refused() -> None:
    page = TestClient(new_app(Settings(servers="127.0.0.1:1")), base_url=OWN)
    assert page.post("/change/produce", headers={"origin": "http://["}).status_code == 403


async def test_streams_are_counted_when_many_come_at_once() -> None:
    """All of them passed, where they were counted later than looked at."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:  # a broker that never answers
        texts = await _requested_at_once(listener, MAX_STREAMS + 4)
    assert sum("already" in text for text in texts) == 4


async def _requested_at_once(listener: socket.socket, count: int) -> list[str]:
    """Return the streams' texts; the broker closes once four of them have ended."""
    app = new_app(Settings(servers=f"127.0.0.1:{listener.getsockname()[1]}"))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=OWN) as page:
        waiting: set[asyncio.Task[Any]] = {asyncio.create_task(page.get("/stream?name=t")) for _ in range(count)}
        ended: set[asyncio.Task[Any]] = set()
        while len(ended) < 4:
            done, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            ended |= done
        listener.close()
        return [response.text for response in await asyncio.gather(*ended, *waiting)]


@pytest.mark.parametrize(
    "response",
    [
        b"220 mail.example ESMTP\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000 + b"\r\n\r\n",
    ],
)
def test_metrics_that_are_not_http_are_a_problem_on_the_page(response) -> None:
    """They ended the thread that asks for them."""
    with answering(response) as address:
        samples = MetricSamples([f"http://{address}/metrics"])
        samples.scrape()
    assert len(samples.problems) == 1
    assert samples.problems[0].startswith(f"http://{address}/metrics: ")


def test_what_is_no_broker_cannot_claim_gigabytes() -> None:
    from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest

    with (
        answering(b"HTTP/1.1 400 Bad Request\r\n\r\n") as address,
        Connection.to_any(address) as connection,
        pytest.raises(ProtocolError, match="a response of"),
    ):
        connection.call(DescribeClusterRequest(), 0)
