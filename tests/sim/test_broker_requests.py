"""One broker from produce to fetch in virtual time: the real server, and no socket, thread or file of the system."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.vote_request import VoteRequest
from tests.simulator.broker_world import DATA_DIR, Machine, values_of
from tests.simulator.loop import SimLoop, run
from tests.support.wire import request_frame

ROUND_TRIP_MS = 0.2


def on_machine(test: Callable[[Machine], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    """Run a test on a machine that has booted, and stop it after."""

    def call() -> None:
        async def main(loop: SimLoop) -> None:
            machine = Machine(loop)
            await machine.boot()
            await test(machine)
            await machine.stop()

        run(main)

    call.__name__ = test.__name__
    return call


async def timed(machine: Machine, request: Coroutine[Any, Any, Any]) -> tuple[Any, float]:
    """Return a response, and how many virtual ms it took."""
    start = machine.loop.time()
    response = await request
    return response, (machine.loop.time() - start) * 1000


@on_machine
async def test_what_is_produced_is_fetched(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    produced = await client.produce(topic, b"a", b"b")
    assert (produced.error_code, produced.base_offset) == (0, 0)
    assert (await client.produce(topic, b"c", acks=1)).base_offset == 2
    fetched = await client.fetch(topic, 0)
    assert values_of(fetched) == [b"a", b"b", b"c"]
    assert fetched.high_watermark == 3
    assert (await client.list_offset(topic, -2)).offset == 0
    assert (await client.list_offset(topic, -1)).offset == 3


@on_machine
async def test_an_append_takes_no_longer_than_the_way_there_and_back(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    for acks in (1, -1):
        _, took_ms = await timed(machine, client.produce(topic, b"v", acks=acks))
        assert took_ms == pytest.approx(ROUND_TRIP_MS)


def _of_the_system() -> tuple[int, set[str]]:
    """Return what a process holds of the system: how many threads, which descriptors."""
    descriptors = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            descriptors.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:  # the one that listed the directory
            continue
    return threading.active_count(), descriptors


def test_no_socket_thread_or_file_of_the_system_is_used() -> None:
    """In a process of its own: in this one brokers and clients of other tests may run, or end just then."""
    program = "from tests.sim.test_broker_requests import check_nothing_of_the_system_is_used as check; check()"
    subprocess.run([sys.executable, "-c", program], cwd=Path(__file__).parents[2], check=True)


def check_nothing_of_the_system_is_used() -> None:
    before = _of_the_system()

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop)
        await machine.boot()
        client = machine.connect()
        topic = await client.create_topic("orders")
        await client.produce(topic, b"a" * 100_000)
        assert _of_the_system() == before
        fetched = await client.fetch(topic, 0)
        assert values_of(fetched) == [b"a" * 100_000]
        assert _of_the_system() == before
        await machine.stop()
        log = machine.disk.read_file(f"{DATA_DIR}/orders-0/{0:020d}.log")
        assert log == bytes(fetched.records)

    run(main)
    assert _of_the_system() == before
    assert not os.path.exists(DATA_DIR)


@on_machine
async def test_a_waiting_fetch_is_answered_by_the_produce(machine: Machine) -> None:
    consumer, producer = machine.connect(), machine.connect()
    topic = await producer.create_topic("orders")
    waiting = asyncio.create_task(timed(machine, consumer.fetch(topic, 0, max_wait_ms=10_000)))
    await asyncio.sleep(1.234)
    await producer.produce(topic, b"news")
    fetched, took_ms = await waiting
    assert values_of(fetched) == [b"news"]
    # the records left when the broker had them: half a round trip after the producer sent them
    assert took_ms == pytest.approx(1234 + ROUND_TRIP_MS)


@on_machine
async def test_a_fetch_waits_until_there_is_enough(machine: Machine) -> None:
    consumer, producer = machine.connect(), machine.connect()
    topic = await producer.create_topic("orders")
    waiting = asyncio.create_task(timed(machine, consumer.fetch(topic, 0, max_wait_ms=10_000, min_bytes=300)))
    for _ in range(3):
        await asyncio.sleep(0.1)
        await producer.produce(topic, b"x" * 50)
    fetched, took_ms = await waiting
    assert values_of(fetched) == [b"x" * 50] * 3
    assert 300 < took_ms < 302


@pytest.mark.parametrize("max_wait_ms", [1, 7, 500, 30_000])
def test_a_fetch_without_news_is_answered_at_its_max_wait(max_wait_ms: int) -> None:
    @on_machine
    async def test(machine: Machine) -> None:
        client = machine.connect()
        topic = await client.create_topic("orders")
        # ask so that the request arrives on a whole millisecond: the broker's clock counts those
        arrival = int(machine.loop.time() * 1000) + 10
        await asyncio.sleep(arrival / 1000 - ROUND_TRIP_MS / 2000 - machine.loop.time())
        fetched, took_ms = await timed(machine, client.fetch(topic, 0, max_wait_ms=max_wait_ms))
        assert (fetched.error_code, fetched.records) == (0, b"")
        assert took_ms == pytest.approx(max_wait_ms + ROUND_TRIP_MS, abs=1e-6)

    test()


@on_machine
async def test_acks_0_is_not_answered_and_appends(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    assert await client.produce(topic, b"quiet", acks=0) is None
    # the next response on this connection is that of the next request
    fetched = await client.fetch(topic, 0, max_wait_ms=1000)
    assert values_of(fetched) == [b"quiet"]
    assert not client.link.received


@on_machine
async def test_an_error_under_acks_0_closes_the_connection_and_no_other(machine: Machine) -> None:
    client, other = machine.connect(), machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"lost", acks=0, partition=5)
    await client.link.wait_end()
    assert not client.link.received
    assert (await other.produce(topic, b"kept")).base_offset == 0


@on_machine
async def test_a_duplicate_of_an_idempotent_producer_has_its_first_offset(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    producer_id, producer_epoch = await client.init_producer_id()
    producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    for sequence in range(3):
        assert (await client.produce(topic, b"v", base_sequence=sequence, **producer)).base_offset == sequence
    assert (await client.produce(topic, b"v", base_sequence=1, **producer)).base_offset == 1
    gap = await client.produce(topic, b"v", base_sequence=7, **producer)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert (await client.list_offset(topic, -1)).offset == 3


@on_machine
async def test_a_stop_answers_who_waits_and_refuses_who_comes(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    waiting = asyncio.create_task(client.fetch(topic, 0, max_wait_ms=60_000, leader_epoch=0))
    other = asyncio.create_task(machine.connect().fetch(topic, 0, max_wait_ms=60_000))
    await asyncio.sleep(0.1)
    await machine.stop()
    assert (await waiting).error_code == ErrorCode.FENCED_LEADER_EPOCH, "the leadership was given up first"
    assert not (await other).error_code, "who asks no leader may go on reading from what is a follower now (KIP-392)"
    with pytest.raises(ConnectionRefusedError):
        machine.connect()
    await machine.boot()
    assert (await machine.connect().produce(topic, b"again")).base_offset == 0


@on_machine
async def test_a_long_silence_ends_nothing(machine: Machine) -> None:
    topic = await machine.connect().create_topic("orders")
    await asyncio.sleep(100)
    client = machine.connect()
    assert (await client.produce(topic, b"v")).error_code == 0
    (broker,) = (await client.call(MetadataRequest(topics=None), 12)).brokers
    assert (broker.host, broker.port) == ("127.0.0.1", 9092)


async def test_a_request_for_controllers_costs_its_connection_and_is_logged_with_the_peer(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    machine = Machine(loop)
    await machine.boot()
    canary, client = machine.connect(), machine.connect()
    for each in (canary, client):
        assert (await each.call(ApiVersionsRequest("canary", client_software_version="1"), 4)).error_code == 0
    with caplog.at_level(logging.WARNING):
        await client.link.send_frame(request_frame(VoteRequest(cluster_id="another"), 2))
        with pytest.raises(EOFError):
            await client.link.receive_frame()
    (line,) = [record.getMessage() for record in caplog.records]
    assert line.startswith("Closing connection 127.0.0.1:9092-10.0.0.1:")
    assert line.endswith("api Vote (52) cannot be read: api key 52 is not served here")
    assert (await canary.call(ApiVersionsRequest("canary", client_software_version="1"), 4)).error_code == 0
    await machine.stop()
