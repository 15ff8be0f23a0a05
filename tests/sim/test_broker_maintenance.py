"""What a whole broker does by itself in periods goes on, whatever it met with."""

import asyncio

from kafkapy.storage.checkpoint import RECOVERY_POINT_FILE, decode_offsets
from kafkapy.types import TopicPartition
from tests.simulator.broker_world import DATA_DIR, Machine
from tests.simulator.loop import SimLoop, run


def test_an_unexpected_error_does_not_end_what_is_done_in_periods() -> None:
    async def main(loop: SimLoop) -> None:
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
        assert decode_offsets(machine.disk.read_file(path), path)[TopicPartition("orders", 0)] == 1
        await machine.stop()

    run(main)
