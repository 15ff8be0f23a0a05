"""A whole broker loses power at random moments, again and again, under all ideas of what a disk keeps."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from tests.simulator.broker_crashes import Computer, End
from tests.simulator.broker_world import DATA_DIR, Machine
from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run

SEEDS = [*range(120 * SOAK_FACTOR), 1152]
LIFE_COUNT = 3


def live(seed: int) -> Computer:
    """Live through some lives that end in all ways, then through a last one that has time to look."""
    random = Random(seed)
    computer = Computer(seed)
    for _ in range(LIFE_COUNT):
        at_change = random.randrange(400) if random.random() < 0.5 else None
        is_stop = at_change is None and random.random() < 0.2
        computer.live(End(random.choice(KEEPS), random.uniform(0.1, 2.5), at_change=at_change, is_stop=is_stop))
    computer.live(End("all", 0.5))
    return computer


@pytest.mark.parametrize("seed", SEEDS)
def test_nothing_is_lost_that_was_promised(seed: int) -> None:
    live(seed)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_same_seed_lives_the_same_history(seed: int) -> None:
    first, second = live(seed), live(seed)
    assert first.model.digest() == second.model.digest()
    assert len(first.model.history) > 100


def on(disk: SimDisk, machine_seed: int, work: Callable[[Machine], Awaitable[None]]) -> None:
    """Run one life of a computer."""

    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk, seed=machine_seed)
        await machine.boot()
        await work(machine)
        await machine.stop()

    run(main)


def test_a_deleted_topic_that_was_never_durable_is_deleted_by_the_next_start() -> None:
    disk = SimDisk()

    async def delete_a_topic(machine: Machine) -> None:
        client = machine.connect()
        topic = await client.create_topic("gone")
        await client.produce(topic, b"v")
        await client.delete_topic(topic)

    async def wait_for_the_delay(machine: Machine) -> None:
        assert any(name.startswith("gone") for name in disk.list_directory(DATA_DIR))
        await asyncio.sleep(62)
        assert not any(name.startswith("gone") for name in disk.list_directory(DATA_DIR))

    on(disk, 1, delete_a_topic)
    (directory,) = (name for name in disk.list_directory(DATA_DIR) if name.startswith("gone"))
    path = f"{DATA_DIR}/{directory}/{0:020d}.log"
    file = disk.open(path)
    file.pwrite([bytes(file.size())], 0)  # as if none of its pages had reached the platter
    on(disk, 2, wait_for_the_delay)
