"""Replicas that lie in another directory at a start than the metadata has them in: the controller is told in time."""

import asyncio
import logging

import pytest

from kafkapy.types import TopicPartition
from tests.simulator.broker_world import Machine
from tests.simulator.loop import SimLoop, run

DIRECTORIES = {"log_dirs": "/metadata,/first,/second", "metadata_log_dir": "/metadata"}


def test_directories_moved_while_the_broker_was_down_are_assigned_once_it_is_registered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main(loop: SimLoop) -> None:
        machine = Machine(loop, **DIRECTORIES)
        await machine.boot()
        topic = await machine.connect().create_topic("orders")
        log = machine.logs()[TopicPartition("orders", 0)]
        source = log.log_dir.path
        await machine.stop()
        target = next(path for path in DIRECTORIES["log_dirs"].split(",") if path != source)
        machine.disk.rename(f"{source}/orders-0", f"{target}/orders-0")
        await machine.boot()
        server = machine.server
        while server._mover._assignments.pending_count:
            await asyncio.sleep(0.05)
        registration = server._controller.image.topics.by_id[topic.topic_id].partitions[0]
        directory = server._log_manager.directories.at(target)
        assert directory is not None
        assert registration.directories == (directory.directory_id,)
        await machine.stop()

    with caplog.at_level(logging.INFO):
        run(main)
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == []
