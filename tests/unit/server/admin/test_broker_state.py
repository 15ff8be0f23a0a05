"""BrokerState from the start to the stop, with Apache Kafka's numbers."""

import asyncio
import contextlib

import pytest

from kafkapy.runtime.broker.lifecycle import LifecycleState
from kafkapy.server.admin.broker_state import broker_state
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimLoop

NOTHING: tuple[str, ...] = ()
STARTED = ("directories", "metadata", "registration", "logs", "coordinators", "listeners")

CASES = [
    (NOTHING, None, False, 0),
    (STARTED[:1], None, False, 0),
    (STARTED[:2], None, False, 1),
    (STARTED[:3], None, False, 2),
    (STARTED[:5], LifecycleState.RUNNING, False, 2),
    (STARTED, LifecycleState.RUNNING, False, 3),
    (STARTED, LifecycleState.RUNNING, True, 6),
    (STARTED, LifecycleState.SHUTTING_DOWN, True, 6),
    (STARTED, LifecycleState.NOT_RUNNING, True, 7),
]


@pytest.mark.parametrize(("conditions", "lifecycle", "has_begun_to_stop", "expected"), CASES)
def test_the_state_of_a_broker(
    conditions: tuple[str, ...], lifecycle: LifecycleState | None, has_begun_to_stop: bool, expected: int
) -> None:
    assert broker_state(conditions, lifecycle, has_begun_to_stop=has_begun_to_stop) == expected


async def test_a_broker_goes_through_its_states_in_order(loop: SimLoop) -> None:
    machine, states = Machine(loop), list[float]()

    async def watch() -> None:
        while True:
            server = getattr(machine, "server", None)
            found = next(iter(server._node.gauges()), None) if server is not None else None
            if found is not None and states[-1:] != [found.value]:
                states.append(found.value)
            await asyncio.sleep(0.0001)

    watching = asyncio.create_task(watch())
    await machine.boot()
    await asyncio.sleep(1)
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert states[-2:] == [2, 3]
    assert states == sorted(states)
    await machine.stop()
    assert next(machine.server._gauges()).value == 7
