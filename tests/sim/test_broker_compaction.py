"""A whole broker compacts while it is written to and read, loses power, and goes on."""

import asyncio
from random import Random

import pytest

from tests.simulator.broker_crashes import Doom
from tests.simulator.broker_world import DATA_DIR, KafkaClient, Machine, Topic
from tests.simulator.crash_enumeration import KEEPS, SOAK_FACTOR
from tests.simulator.disk import Keep, SimCrash, SimDisk
from tests.simulator.loop import START_WALL_MS, SimLoop, run

CONFIG = {
    "cleanup_policy": "compact",
    "segment_ms": "200",
    "min_cleanable_dirty_ratio": "0.01",
    "flush_messages": "1",
    "file_delete_delay_ms": "300",
}
PROPERTIES = {"log_cleaner_backoff_ms": "100", "log_flush_offset_checkpoint_interval_ms": "300"}
KEY_COUNT = 5


class Life:
    """One boot of a machine, a writer and a reader on it; `values` is what was acknowledged last, by key."""

    def __init__(self, machine: Machine, values: dict[bytes, int], next_number: int) -> None:
        self.machine = machine
        self.values = values
        self.next_number = next_number

    async def write(self, topic: Topic) -> None:
        client = self.machine.connect()
        while True:
            number = self.next_number = self.next_number + 1
            key = b"k%d" % (number % KEY_COUNT)
            response = await client.produce(topic, b"%d" % number, key=key)
            assert response.error_code == 0
            self.values[key] = number
            await asyncio.sleep(0.02)

    async def read(self, topic: Topic) -> None:
        """Read all again and again: offsets rise, each with the key and value that it was given, the newest of each."""
        client = self.machine.connect()
        while True:
            known = dict(self.values)
            found = await read_all(client, topic)
            assert all(found[key] >= number for key, number in known.items())
            await asyncio.sleep(0.1)


async def read_all(client: KafkaClient, topic: Topic) -> dict[bytes, int]:
    """Return the last number of each key. Where a pass has moved on meanwhile, offsets may be missing, never double."""
    found: dict[bytes, int] = {}
    last_offset = -1
    for batch in await client.read_all(topic):
        assert batch.has_valid_crc()
        for record in batch.records():
            assert record.offset > last_offset
            last_offset = record.offset
            assert record.key is not None
            assert record.value is not None
            number = int(record.value)
            assert record.key == b"k%d" % (number % KEY_COUNT)
            found[record.key] = number
    return found


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("seed", range(3 * SOAK_FACTOR))
def test_the_newest_value_of_each_key_is_read_over_passes_and_power_cuts(seed: int, keep: Keep) -> None:
    random = Random(seed)
    disk, values, topic = SimDisk(seed), {}, None
    passes = number = 0
    for life in range(3):
        topic, passed, number = live(disk, values, topic, number, life, random)
        passes += passed
        disk.hook = None
        disk.crash(keep)
    assert passes > 3


def live(
    disk: SimDisk, values: dict[bytes, int], topic: Topic | None, number: int, life_number: int, random: Random
) -> tuple[Topic, int, int]:
    """Boot, check, work until the power goes; return the topic, the passes done, and the last number."""

    async def main(loop: SimLoop) -> tuple[Topic, int, int]:
        problems: list[object] = []

        def on_exception(_loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
            if not isinstance(context.get("exception"), SimCrash):
                problems.append(context)

        loop.set_exception_handler(on_exception)
        start_ms = START_WALL_MS + life_number * 60_000
        machine = Machine(loop, disk=disk, seed=life_number, start_wall_ms=start_ms, **PROPERTIES)
        await machine.boot()
        client = machine.connect()
        the_topic = topic if topic is not None else await client.create_topic("compacted", **CONFIG)
        found = await read_all(client, the_topic)
        assert all(found[key] >= last for key, last in values.items())
        life = Life(machine, values, number)
        doom = Doom(loop, None)
        disk.hook = doom
        work = [loop.create_task(life.write(the_topic)), loop.create_task(life.read(the_topic))]
        done, _ = await asyncio.wait([*work, doom.crashed], timeout=random.uniform(2, 4))
        for task in done:
            task.result()
        doom.die()
        assert not problems
        calls = machine.helper.calls if machine.helper is not None else []
        return the_topic, calls.count("begin"), life.next_number

    result = run(main)
    assert disk.is_directory(DATA_DIR)
    return result
