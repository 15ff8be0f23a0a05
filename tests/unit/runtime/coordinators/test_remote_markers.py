"""Markers on their way to another broker: what became of each is told to whom it concerns, whatever fails."""

import asyncio
from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.markers import BrokerMarkers, Marker, MarkerResults
from kafkapy.runtime.peer import NoResponseError
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop

ORDERS = TopicPartition("orders", 0)


class Unreachable:
    """runtime.broker_channels.BrokerChannels to a broker that does not answer."""

    async def send_request(self, broker_id: int, *_: Any, **__: Any) -> Any:
        await asyncio.sleep(1)
        raise NoResponseError(f"broker {broker_id}", is_unsupported=False)


async def test_a_transaction_that_fails_does_not_keep_others_from_their_results(loop: SimLoop) -> None:
    channels: Any = Unreachable()
    markers = BrokerMarkers(2, channels)
    results: list[MarkerResults] = []

    def fail(_results: MarkerResults) -> None:
        raise RuntimeError("a mistake")

    for _ in range(5):  # as many requests as go at a time
        markers.write({ORDERS: [Marker(1, 0, True, 0, 2)]}, timeout_ms=1000, on_done=lambda _: None)
    markers.write({ORDERS: [Marker(2, 0, True, 0, 2)]}, timeout_ms=1000, on_done=fail)
    markers.write({ORDERS: [Marker(3, 0, True, 0, 2)]}, timeout_ms=1000, on_done=results.append)
    await asyncio.sleep(10)
    assert results == [{ORDERS: [ErrorCode.NETWORK_EXCEPTION]}]
