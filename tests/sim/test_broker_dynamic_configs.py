"""Keys of the broker that change at run time: in force at once, and after the next start from its beginning."""

import asyncio
import socket
from typing import Any

import pytest

from tests.sim.test_broker_stops import set_broker_configs
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimLoop

OVERRIDES = "max.connections.per.ip.overrides"


async def served_count(machine: Machine, connection_count: int) -> int:
    """Open so many connections more; return how many of them are served."""
    requester = [asyncio.ensure_future(machine.connect().init_producer_id()) for _ in range(connection_count)]
    done, waiting = await asyncio.wait(requester, timeout=5)
    for each in waiting:
        each.cancel()
    return len(done)


async def test_bounds_that_were_set_at_run_time_hold_after_a_restart(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    await set_broker_configs(machine.connect(), {"max.connections": "3", "num.io.threads": "5"})
    for beside in (1, 0):
        assert await served_count(machine, 8) == 3 - beside
        assert machine.io_pool.worker_count == 5
        await machine.stop()
        await machine.boot()
    await machine.stop()


@pytest.mark.parametrize("is_restarted", [False, True])
async def test_producers_expire_as_was_set_at_run_time(loop: SimLoop, is_restarted: bool) -> None:
    machine = Machine(loop, producer_id_expiration_check_interval_ms="1000")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders")
    producer_id, producer_epoch = await client.init_producer_id()
    await client.produce(topic, b"v", producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=0)
    await set_broker_configs(client, {"producer.id.expiration.ms": "100000"})
    if is_restarted:
        await machine.stop()
        await machine.boot()
    await asyncio.sleep(90)
    (log,) = machine.logs().values()
    assert list(log.producer_state.producers) == [producer_id]
    await asyncio.sleep(20)
    assert not log.producer_state.producers
    await machine.stop()


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that are asked for; "gone" is not known, all others are 10.0.0.7."""
    names: list[str] = []

    def resolve(host: bytes, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        names.append(host.decode())
        if host == b"gone":
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("10.0.0.7", 0))]

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    return names


async def test_names_are_resolved_only_where_their_key_changes(loop: SimLoop, requested: list[str]) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    await set_broker_configs(client, {OVERRIDES: "host:7"})
    await set_broker_configs(client, {"log.retention.ms": "1000"})
    await set_broker_configs(client, {"max.connections": "9"})
    assert requested == ["host"]
    await machine.stop()


async def test_a_name_that_is_not_known_any_more_does_not_keep_a_broker_from_starting(
    loop: SimLoop, requested: list[str]
) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    await set_broker_configs(client, {OVERRIDES: "gone:7"})
    await set_broker_configs(client, {"max.connections": "3"})
    assert await served_count(machine, 8) == 2
    await machine.stop()
    await machine.boot()
    assert requested == ["gone", "gone"]
    await machine.stop()
