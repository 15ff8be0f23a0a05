"""What a whole broker does by itself in periods goes on, whatever it met with."""

import asyncio
import errno
import os

import pytest

from kafkapy.storage.checkpoint import RECOVERY_POINT_FILE, decode_checkpoint, offsets_of
from kafkapy.types import TopicPartition
from tests.simulator.broker_world import DATA_DIR, Machine
from tests.simulator.loop import SimLoop


async def test_an_unexpected_error_does_not_end_what_is_done_in_periods(loop: SimLoop) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", flush_ms="1000")
    await client.produce(topic, b"v")
    failures: list[str] = []

    def run_out_of_memory(operation: str, path: str) -> None:
        if operation == "write" and RECOVERY_POINT_FILE in path and not failures:
            failures.append(path)
            raise MemoryError("of this test")

    machine.disk.hook = run_out_of_memory
    await asyncio.sleep(200)
    path = f"{DATA_DIR}/{RECOVERY_POINT_FILE}"
    assert failures
    lines = decode_checkpoint(machine.disk.read_file(path), path)
    assert offsets_of(lines, path)[TopicPartition("orders", 0)] == 1
    await machine.stop()


@pytest.mark.parametrize("is_topic_deleted", [False, True], ids=["segments", "topic"])
async def test_files_that_a_shortage_keeps_from_deletion_are_deleted_later(
    loop: SimLoop, is_topic_deleted: bool
) -> None:
    """An unlink needs memory, descriptors, and on some file systems room: what it failed for is not forgotten."""

    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", retention_ms="1000", file_delete_delay_ms="1000")
    await client.produce(topic, b"v")
    failed: list[str] = []

    def run_out_of_memory(operation: str, path: str) -> None:
        if operation == "delete" and "orders-0" in path and len(failed) < 3:
            failed.append(path)
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM), path)

    machine.disk.hook = run_out_of_memory
    if is_topic_deleted:
        await client.delete_topic(topic)
    await asyncio.sleep(900)
    assert len(failed) == 3
    assert not [path for path in files_of(machine) if "delete" in path]
    await machine.stop()


def files_of(machine: Machine) -> list[str]:
    """Return the paths of all files of the topic."""
    directories = [name for name in machine.disk.list_directory(DATA_DIR) if name.startswith("orders-")]
    return [f"{each}/{name}" for each in directories for name in machine.disk.list_directory(f"{DATA_DIR}/{each}")]
