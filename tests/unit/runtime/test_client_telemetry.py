"""Pushes at the same time: few of them are decompressed and read at once, as each may hold a megabyte and more."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from itertools import count
from typing import Any

from kafkapy.runtime.client_telemetry import READ_AT_ONCE, ClientTelemetry
from kafkapy.runtime.pool import HeavyWork
from kafkapy.timer.wheel import TimingWheel
from kafkapy.types import ZERO_UUID
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop, run
from tests.support.otlp_messages import gauge, metrics_data


class CountedWays:
    """Ways over the steps of pushes that give way after each step; counts how many are under way."""

    def __init__(self) -> None:
        self.now = self.most = 0

    async def over(self, steps: Iterable[Any]) -> AsyncIterator[Any]:
        self.now += 1
        self.most = max(self.most, self.now)
        for step in steps:
            await asyncio.sleep(0)
            yield step
        self.now -= 1


def test_few_pushes_are_read_at_once() -> None:
    ways = CountedWays()

    async def main(loop: SimLoop) -> None:
        ids = count(1 << 64)
        telemetry = ClientTelemetry(
            wheel=TimingWheel(start_ms=0),
            new_uuid=lambda: next(ids).to_bytes(16, "big"),
            max_bytes=1 << 20,
            forwarder=None,
            on_unusable=lambda name: None,
        )
        data, heavy_work = metrics_data(gauge("a", 1)), HeavyWork(SimIoPool(loop, worker_count=1))
        pushes = [
            telemetry.receive(
                telemetry.instances.subscribe(ZERO_UUID, "c", {}, 0),
                data,
                0,
                heavy_work=heavy_work,
                way=ways,  # type: ignore[arg-type]
            )
            for _ in range(5 * READ_AT_ONCE)
        ]
        await asyncio.gather(*pushes)
        assert telemetry.received.series_count == len(pushes)

    run(main)
    assert ways.most == READ_AT_ONCE
