"""A stalling disk delays those who wait for it and nobody else, shown in virtual time."""

import asyncio

from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.seams import FileRegion
from tests.simulator.bytes_file import BytesFile
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop
from tests.simulator.reactor_world import World, response_of

DATA = bytes(range(256)) * 2048


async def _echoes_for(world: World, duration_ms: int) -> list[float]:
    """Return the durations of echoes made one after another on a connection of their own."""
    client = world.connect()
    until = world.loop.time() + duration_ms / 1000
    durations = []
    while world.loop.time() < until:
        durations.append(await world.round_trip_ms(client))
        await asyncio.sleep(0.01)
    return durations


async def test_a_cold_read_of_500_ms_delays_only_its_connection(loop: SimLoop):
    stalls = iter([500, 0, 0, 0])
    file = BytesFile(DATA, is_cold=True, on_cold_read=lambda: loop.block(next(stalls)))
    released = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 1000, 500_000, lambda: released.append(loop.time())))

    world = World(loop, fetch=fetch)
    client = world.connect()
    await client.send_frame(b"fetch cold")
    others = asyncio.create_task(_echoes_for(world, 1000))
    assert await client.receive_frame() == b"records " + DATA[1000:501_000]
    assert 500 <= loop.now_ms() < 520
    assert len(released) == 1
    assert max(await others) < 1
    assert file.cold_read_count == 1


async def test_an_fsync_of_2_s_delays_only_who_waits_for_it(loop: SimLoop):
    async def write(info: ConnectionInfo, request: bytes) -> Writer:
        synced = loop.create_future()
        world.io_pool.submit(lambda: loop.block(2000), lambda result, error: synced.set_result(None))
        await synced
        return response_of(b"durable")

    world = World(loop, write=write)
    client = world.connect()
    await client.send_frame(b"write x")
    others = asyncio.create_task(_echoes_for(world, 2500))
    assert await client.receive_frame() == b"durable"
    assert 2000 <= loop.now_ms() < 2010
    assert max(await others) < 1


async def test_a_disk_that_stalls_a_read_and_a_sync_delays_no_other_connection(loop: SimLoop):
    stalls_ms = {"read": 500, "sync": 2000}
    disk = SimDisk()
    log = disk.open("/log", create=True)
    log.pwrite([DATA], 0)
    disk.chill()
    disk.hook = lambda operation, path: loop.block(stalls_ms.get(operation, 0))

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(log, 0, len(DATA)))

    async def flush(info: ConnectionInfo, request: bytes) -> Writer:
        synced = loop.create_future()
        world.io_pool.submit(log.sync, lambda result, error: synced.set_result(None))
        await synced
        return response_of(b"synced")

    world = World(loop, fetch=fetch, flush=flush)
    reader, flusher = world.connect(), world.connect()
    await reader.send_frame(b"fetch x")
    await flusher.send_frame(b"flush x")
    others = asyncio.gather(*[_echoes_for(world, 2500) for _ in range(10)])
    assert await reader.receive_frame() == b"records " + DATA
    assert 500 <= loop.now_ms() < 510
    assert await flusher.receive_frame() == b"synced"
    assert 2000 <= loop.now_ms() < 2010
    assert max(max(durations) for durations in await others) < 1


async def test_a_blocking_call_on_the_loop_would_have_shown(loop: SimLoop):
    async def block(info: ConnectionInfo, request: bytes) -> Writer:
        loop.block(500)
        return response_of(b"done")

    world = World(loop, block=block)
    client, other = world.connect(), world.connect()
    await client.send_frame(b"block x")
    assert await world.round_trip_ms(other) >= 499


async def test_small_cold_regions_are_warmed_in_the_pool_too(loop: SimLoop):
    file = BytesFile(DATA, is_cold=True, on_cold_read=lambda: loop.block(30))

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 0, 100))

    world = World(loop, fetch=fetch)
    client = world.connect()
    await client.send_frame(b"fetch cold")
    others = asyncio.create_task(_echoes_for(world, 100))
    assert await client.receive_frame() == b"records " + DATA[:100]
    assert max(await others) < 1


async def test_a_region_being_warmed_outlives_its_connection(loop: SimLoop):
    file = BytesFile(DATA, is_cold=True, on_cold_read=lambda: loop.block(500))
    released = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"records ", FileRegion(file, 0, 300_000, lambda: released.append(loop.now_ms())))

    world = World(loop, fetch=fetch)
    client = world.connect()
    await client.send_frame(b"fetch cold")
    await asyncio.sleep(0.05)
    world.reactor.close()
    assert world.reactor.connection_count == 0
    assert released == [], "a worker still reads the file"
    await asyncio.sleep(1)
    assert released == [500]


async def test_a_file_cut_under_a_region_closes_its_connection(loop: SimLoop):
    file = BytesFile(DATA)
    released = []

    async def fetch(info: ConnectionInfo, request: bytes) -> Writer:
        return response_of(b"", FileRegion(file, 0, 400_000, lambda: released.append(True)))

    world = World(loop, fetch=fetch)
    client, other = world.connect(), world.connect()
    client.stop_reading()
    await client.send_frame(b"fetch x")
    await asyncio.sleep(0.01)
    file.truncate(300_000)
    client.read()
    await client.wait_end()
    assert len(client.received) == 4 + 300_000
    assert released == [True]
    assert await world.round_trip_ms(other) < 1
