"""A bit of an index flips while the broker is down: the start rebuilds the index, and appends and stops go on.

An offset beyond the log's end in the last entry stopped the partition at its next index entry, and spoiled the stop; in
the metadata log it ended the process.
"""

import asyncio
from functools import cache

import pytest

from kafkapy.errors import StorageError
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.broker_world import DATA_DIR, Machine, Topic
from tests.simulator.disk import SimDisk
from tests.simulator.loop import SimLoop, run

PARTITION = TopicPartition("orders", 0)
FIRST_SEGMENT = "00000000000000000000"
CONFIGS = {"index_interval_bytes": "100", "segment_bytes": "1048576"}
ENTRY_BYTES = {"index": 8, "timeindex": 12}
RECORD_COUNT = 40


@cache
def intact() -> tuple[SimDisk, Topic]:
    """A directory after a clean stop: a topic with index entries, and a metadata log with some."""
    disk = SimDisk()

    async def main(loop: SimLoop) -> Topic:
        machine = Machine(loop, disk=disk, seed=1)
        await machine.boot()
        client = machine.connect()
        topic = await client.create_topic("orders", **CONFIGS)
        for number in range(RECORD_COUNT):
            await asyncio.sleep(0.01)
            await client.produce(topic, b"%d" % number * 20)
        for number in range(3):
            await client.create_topic(f"many{number}", 40)
        await machine.stop()
        return topic

    topic = run(main)
    disk.locked.clear()
    return disk, topic


def flipped(partition: TopicPartition, suffix: str, bit_from_end: int) -> SimDisk:
    disk = intact()[0].fork(1)
    flip(disk, f"{DATA_DIR}/{partition}/{FIRST_SEGMENT}.{suffix}", bit_from_end)
    return disk


def flip(disk: SimDisk, path: str, bit_from_end: int) -> None:
    data = bytearray(disk.read_file(path))
    data[-1 - bit_from_end // 8] ^= 1 << bit_from_end % 8
    disk.write_file_atomically(path, bytes(data))


async def use(machine: Machine) -> None:
    """Append enough for new index entries of both logs, read all, stop; nothing may fail."""
    await machine.boot()
    await asyncio.sleep(1)
    client, topic = machine.connect(), intact()[1]
    for number in range(3):
        await client.create_topic(f"more{number}", 40)
    for number in range(RECORD_COUNT, 2 * RECORD_COUNT):
        response = await client.produce(topic, b"%d" % number * 20)
        assert (response.error_code, response.base_offset) == (0, number)
    assert not machine.has_failed
    log = machine.logs()[PARTITION]
    assert [log.read(offset, 1, wait=True).first_offset for offset in range(2 * RECORD_COUNT)] == list(
        range(2 * RECORD_COUNT)
    )
    await machine.stop()
    assert not machine.has_failed
    assert machine.disk.exists(f"{DATA_DIR}/.kafka_cleanshutdown")


@pytest.mark.parametrize("partition", [PARTITION, METADATA_PARTITION], ids=str)
@pytest.mark.parametrize("suffix", ENTRY_BYTES)
def test_any_bit_of_the_last_entry(partition: TopicPartition, suffix: str) -> None:
    for bit in range(0, 8 * ENTRY_BYTES[suffix], 13):
        disk = flipped(partition, suffix, bit)
        run(lambda loop, disk=disk: use(Machine(loop, disk=disk, seed=2)))


def boot(disk: SimDisk) -> None:
    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, disk=disk, seed=2)
        await machine.boot()
        await machine.stop()

    run(main)
    disk.locked.clear()


@pytest.mark.parametrize("byte", [5, 9, 13, 40, 100])
def test_a_damaged_metadata_log_is_refused_with_advice_and_the_advice_helps(byte: int) -> None:
    """The third batch: its base offset, its length, its leader epoch, its header, its records."""
    disk = intact()[0].fork(1)
    path = f"{DATA_DIR}/{METADATA_PARTITION}/{FIRST_SEGMENT}.log"
    data = disk.read_file(path)
    start = 0
    for _ in range(2):
        start += 12 + int.from_bytes(data[start + 8 : start + 12], "big")
    flip(disk, path, 8 * (len(data) - 1 - start - byte))
    for _ in range(2):
        with pytest.raises(StorageError, match=r"damaged.*Restore .*delete .*\.kafka_cleanshutdown"):
            boot(disk)
        disk.locked.clear()
    disk.delete(f"{DATA_DIR}/.kafka_cleanshutdown")
    boot(disk)


def test_partition_metadata_of_the_metadata_log_is_refused_with_advice_and_the_advice_helps() -> None:
    disk = intact()[0].fork(1)
    path = f"{DATA_DIR}/{METADATA_PARTITION}/partition.metadata"
    disk.write_file_atomically(path, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAABAQ\n")
    with pytest.raises(StorageError, match=r"partition\.metadata is damaged.*Delete it"):
        boot(disk)
    disk.locked.clear()
    disk.delete(path)
    boot(disk)
