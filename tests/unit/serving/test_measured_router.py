"""Requests are counted between the reactor and the router, those that wait and those that do not."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import cast

from kafkapy.metrics.requests import RequestCounts
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo, Route, Served
from kafkapy.serving.measured_router import MeasuredRouter

PRODUCE_V9 = bytes.fromhex("0000 0009 00000001")
FETCH_V13 = bytes.fromhex("0001 000d 00000001")
INFO = ConnectionInfo("c", "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 1)


class Ticks:
    """A clock that moves a millisecond each time it is read."""

    def __init__(self) -> None:
        self.ns = 0

    def __call__(self) -> int:
        self.ns += 1_000_000
        return self.ns


def measured(serve: Callable[[], Awaitable[None]]) -> tuple[MeasuredRouter, RequestCounts]:
    async def route(_info: ConnectionInfo, _frame: memoryview) -> Writer:
        await serve()
        response = Writer()
        response += b"answer"
        return response

    def coalesce(_info: ConnectionInfo, _data: bytes, _position: int, _most: int) -> Served:
        return Served(3, 300, None, lambda on_responses: on_responses(b"answers"))

    counts = RequestCounts()
    return MeasuredRouter(route, coalesce, counts, now_ns=Ticks()), counts


def send_request(router: MeasuredRouter, frame: bytes, info: ConnectionInfo = INFO) -> Writer | None:
    async def send() -> Writer | None:
        return await cast(Route, router.route)(info, memoryview(frame))

    return asyncio.run(send())


async def at_once() -> None:
    pass


async def later() -> None:
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_a_request_that_does_not_wait_is_counted_once() -> None:
    router, counts = measured(at_once)
    assert send_request(router, PRODUCE_V9) == b"answer"
    version = counts.of(9)
    assert (version.request_count, sum(version.api.at_once), sum(version.api.waited)) == (1, 1, 0)
    assert version.api.frame_bytes[len(PRODUCE_V9)] == 1


def test_a_request_that_waits_has_local_and_remote_time() -> None:
    router, counts = measured(later)
    assert send_request(router, PRODUCE_V9) == b"answer"
    api = counts.of(9).api
    assert [sum(each) for each in (api.at_once, api.waited, api.local, api.remote)] == [0, 1, 1, 1]


def test_fetches_of_followers_are_counted_apart() -> None:
    router, counts = measured(at_once)
    send_request(router, FETCH_V13)
    follower = ConnectionInfo("f", "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 2, is_replica=True)
    send_request(router, FETCH_V13, follower)
    send_request(router, FETCH_V13, follower)
    assert {key: sum(api.at_once) for key, api in counts.apis.items()} == {(1, False): 1, (1, True): 2}


async def test_a_cancelled_handler_gets_the_cancellation() -> None:
    ended: list[bool] = []

    async def forever() -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.append(True)

    router, _ = measured(forever)

    handling = cast(Route, router.route)(INFO, memoryview(PRODUCE_V9))
    handling.send(None)
    with contextlib.suppress(asyncio.CancelledError):
        handling.throw(asyncio.CancelledError())
    assert ended == [True]


def test_produces_served_together_are_counted_together() -> None:
    router, counts = measured(at_once)
    served = router.coalesce(INFO, b"\0\0\0\x60" + PRODUCE_V9, 0, 10)
    assert served is not None
    assert served.wait is not None
    responses: list[bytes] = []
    served.wait(responses.append)
    version = counts.of(9)
    assert responses == [b"answers"]
    assert (version.request_count, sum(version.api.waited), counts.errors[0][0]) == (3, 3, 3)
    assert sum(version.api.frame_bytes) == 3


def test_the_errors_of_partitions_are_counted_one_by_one() -> None:
    counts = RequestCounts()
    served = Served(1, 100, b"answers", None, (0, 56, 0))
    router = MeasuredRouter(cast(Route, None), lambda *_: served, counts, now_ns=Ticks())
    router.coalesce(INFO, b"\0\0\0\x60" + PRODUCE_V9, 0, 10)
    assert counts.errors[0] == {0: 2, 56: 1}


def test_versions_that_do_not_exist_share_a_count() -> None:
    counts = RequestCounts()
    assert counts.of((18 << 16) | 200) is counts.of((18 << 16) | 32_000)


def test_a_frame_without_a_whole_key_is_left_to_the_router() -> None:
    """It raises ProtocolError, which closes the connection without a traceback; this one's router takes all."""
    for size in range(4):
        router, counts = measured(at_once)
        assert send_request(router, bytes(size)) == b"answer"
        assert counts.of(0).request_count == 1
