"""Who waits for the metadata quorum: those that give up leave nothing behind, a close ends the wait of the others."""

import asyncio

import pytest

from kafkapy.runtime.quorum.quorum import NotLeaderError
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop
from tests.support.quorums import format_standalone, new_quorum


async def test_who_gives_up_leaves_nothing_behind(loop: SimLoop) -> None:
    disk = SimDisk()
    format_standalone(disk)
    quorum = new_quorum(loop, disk)
    await quorum.start()
    for _ in range(3):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(1):
                await quorum.wait_until(lambda: False)
    assert len(quorum._waiters) == 0
    await quorum.close()


async def test_a_close_ends_every_wait(loop: SimLoop) -> None:
    disk = SimDisk()
    format_standalone(disk)
    quorum = new_quorum(loop, disk)
    await quorum.start()
    waiting = loop.create_task(quorum.wait_until(lambda: False))
    await asyncio.sleep(0)
    await quorum.close()
    for late in (waiting, quorum.wait_until(lambda: False)):
        with pytest.raises(NotLeaderError):
            async with asyncio.timeout(10):
                await late
