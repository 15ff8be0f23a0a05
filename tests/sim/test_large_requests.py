"""No request holds the event loop: every served API, every array that its request can fill.

What one callback of the loop does is counted in calls of kafkapy's functions, the same on every machine; what workers
do is not counted. Turns are made a tenth as long as they are, so that requests of COUNT elements take many: a request
that is handled in turns calls no more in one of them, however many elements it has. One that is handled at once may
call so much more as its bound is larger than COUNT.
"""

import asyncio
import logging
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

import pytest

from kafkapy.handlers import parts
from kafkapy.handlers.table import BROKER_APIS, ServedApi
from kafkapy.protocol.api import APIS
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.runtime import turns
from kafkapy.serving import large_requests, router
from tests.simulator.broker_world import Machine, Topic
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop
from tests.support.interpreter import needs_interpreter
from tests.support.large_requests import array_paths, large_request
from tests.support.wire import request_frame

COUNT = 1_000
STEPS_PER_TURN, PART_ELEMENTS, LARGE_FRAME_BYTES = 100, 25, 800
ANSWERED_WITHIN_S = 3
"""Of virtual time, in which pauses are most of what a request takes."""
MAX_CALLS_IN_A_TURN = 4_000
MAX_CALLS_AT_ONCE = 400_000
"""At the API's bound: a call with what is done in it takes up to half a microsecond."""


class TurnMeter:
    """Counts the calls of the loop's callbacks while it is set: `max_calls` is the largest of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._is_ours: dict[CodeType, bool] = {}
        self._calls = 0
        self.begin()
        run_handle = asyncio.events.Handle._run  # type: ignore[attr-defined]

        def measured(handle: Any) -> None:
            self._calls = 0
            run_handle(handle)
            if getattr(handle._callback, "__func__", None) is not SimIoPool._work:
                self.max_calls = max(self.max_calls, self._calls)

        monkeypatch.setattr(asyncio.events.Handle, "_run", measured)

    def begin(self) -> None:
        self.max_calls = 0

    def __enter__(self) -> "TurnMeter":
        sys.setprofile(self._count)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)

    def _count(self, frame: FrameType, event: str, _argument: object) -> None:
        if event == "call":
            code = frame.f_code
            is_ours = self._is_ours.get(code)
            if is_ours is None:
                is_ours = self._is_ours[code] = frame.f_globals.get("__name__", "").startswith("kafkapy.")
            self._calls += is_ours


def requests(api: ServedApi, topic: Topic) -> Iterator[tuple[str, int, bytes]]:
    """Yield (what it is, its elements, frame) of the largest requests of an API, at its first and last version."""
    count = min(COUNT, api.max_elements)
    existing = {
        **dict.fromkeys(("name", "topic", "topic_name", "resource_name"), topic.name),
        "group_id": "group",
        "topic_id": topic.topic_id,
        "resource_type": 2,
        "acks": 1,
    }
    for version in sorted({api.served_min, api.max_version}):
        for path in array_paths(api.api_key, version):
            for is_wide in {False, len(path) > 1}:
                for is_distinct, values in ((True, {}), (True, existing), (False, existing)):
                    request = large_request(
                        api.api_key, version, path, count, is_wide=is_wide, is_distinct=is_distinct, values=values
                    )
                    yield (
                        f"{version} {path} {is_wide} {is_distinct} {bool(values)}",
                        count,
                        request_frame(request, version),
                    )


async def measure(machine: Machine, meter: TurnMeter, frame: bytes) -> int:
    client = machine.connect()
    await asyncio.sleep(0)
    meter.begin()
    with meter:
        await client.link.send_frame(frame)
        try:
            await asyncio.wait_for(client.link.receive_frame(), ANSWERED_WITHIN_S)
        except (EOFError, TimeoutError):  # what is not answered: Produce with acks=0, a Fetch that waits
            return meter.max_calls
    return meter.max_calls


APIS_BY_NAME = {APIS[key].name: row for key, row in BROKER_APIS.items()}


@pytest.fixture
def without_logs() -> Iterator[None]:
    """Some requests log a line for each entry. By logging.disable: it drops what loggers remember of their level."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.usefixtures("without_logs")
@needs_interpreter("it replaces constants, which compiled code has inlined")
@pytest.mark.parametrize("name", APIS_BY_NAME)
async def test_no_request_holds_the_loop(loop: SimLoop, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    api = APIS_BY_NAME[name]
    monkeypatch.setattr(turns, "STEPS_PER_TURN", STEPS_PER_TURN)
    for module in (parts, large_requests):
        monkeypatch.setattr(module, "PART_ELEMENTS", PART_ELEMENTS)
    monkeypatch.setattr(router, "LARGE_FRAME_BYTES", LARGE_FRAME_BYTES)

    machine = Machine(loop, offsets_topic_num_partitions="1", auto_create_topics_enable="false")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("t", 4)
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=["group"]), 5)
    meter = TurnMeter(monkeypatch)
    for what, count, frame in requests(api, topic):
        calls = await measure(machine, meter, frame)
        at_bound = calls * api.max_elements // count
        assert calls <= MAX_CALLS_IN_A_TURN or at_bound <= MAX_CALLS_AT_ONCE, f"{what}: {calls} calls at once"
    await machine.stop()
