"""Each part of a node adds what is to be done at a stop, once; a start that fails undoes the same steps."""

import asyncio

import pytest

from kafkapy.server.stopping import StopOrder, Stops
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimLoop


class Recorder:
    """Steps that say that they were taken."""

    def __init__(self) -> None:
        self.taken: list[str] = []

    def logs(self) -> None:
        self.taken.append("logs")

    async def groups(self) -> None:
        await asyncio.sleep(0)
        self.taken.append("groups")

    def registration(self) -> None:
        self.taken.append("registration")

    def heartbeats(self) -> None:
        self.taken.append("heartbeats")

    def broken(self) -> None:
        raise OSError("broken")


def added() -> tuple[Recorder, Stops]:
    recorder, stops = Recorder(), Stops()
    stops.add(StopOrder.LOGS, recorder.logs)
    stops.add(StopOrder.GROUPS, recorder.groups)
    stops.add_apart(StopOrder.REGISTRATION, recorder.registration, undo=recorder.heartbeats)
    stops.add_apart(StopOrder.COMMITTED_CHANGES, recorder.broken, undo=None)
    return recorder, stops


async def test_steps_are_taken_in_the_order_of_a_stop_whatever_fails() -> None:
    recorder, stops = added()
    with pytest.raises(OSError, match="broken"):
        await stops.stop()
    assert recorder.taken == ["registration", "groups", "logs"]


async def test_a_start_that_fails_undoes_what_was_added_by_then() -> None:
    recorder, stops = added()
    await stops.undo()
    assert recorder.taken == ["heartbeats", "groups", "logs"]


def test_no_worker_can_write_to_the_directories_once_they_are_unlocked() -> None:
    """The pool's end waits for its calls. If LOGS is cancelled, one may write the clean-shutdown file."""
    assert StopOrder.LOGS < StopOrder.IO_POOL < StopOrder.LOCKS


def test_a_step_is_added_once() -> None:
    recorder, stops = added()
    with pytest.raises(AssertionError, match="LOGS is added twice"):
        stops.add(StopOrder.LOGS, recorder.logs)


async def test_a_node_that_has_started_has_added_all_steps(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    assert machine.server._stops.added == set(StopOrder) - {StopOrder.ADMIN, StopOrder.LOGINS, StopOrder.TELEMETRY}
    await machine.stop()
