"""Batches of dead letters against Apache Kafka's own ShareGroupDLQStateManager (tools/record_dead_letters.py)."""

import gzip
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kafkapy.record.batch import RecordBatch
from kafkapy.record.builder import build_batch
from kafkapy.runtime.share.originals import read_originals
from kafkapy.share.dead_letters import Originals, Source, next_round
from kafkapy.share.pending_write import DeadLetter, DeadLetterCause
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimLoop

GOLDEN = Path(__file__).parent / "dead_letters.txt.gz"
CAUSES = {"reject": DeadLetterCause.CLIENT_REJECT, "count": DeadLetterCause.DELIVERY_COUNT_EXCEEDED}


class Log:
    """The batches of a line, read from the one with an offset on."""

    def __init__(self, batches: list[bytes]) -> None:
        self._batches = batches

    def read(self, offset: int, _max_bytes: int, **_options: Any) -> SimpleNamespace:
        data = b"".join(each for each in self._batches if RecordBatch(each).last_offset >= offset)
        region = SimpleNamespace(read=lambda: data, release=lambda: None)
        return SimpleNamespace(region=region if data else None)


async def outcome(loop: SimLoop, line: str) -> str:
    """Return what comes of a letter here, as the recorded response says it."""
    now_ms, max_bytes, partitions, copies, partition, first, last, count, cause, hexes = line.split(" ")
    hosted: Any = SimpleNamespace(log=Log([bytes.fromhex(each) for each in hexes.split(",")]), topic_partition="orders")
    letter = DeadLetter(int(first), int(last), int(count), CAUSES[cause])
    source = Source("g", "orders", int(partition))
    offset, made = letter.first_offset, []
    while offset <= letter.last_offset:
        originals = Originals({}, letter.last_offset)
        if copies == "1":
            originals = await read_originals(
                hosted, offset, letter.last_offset, max_bytes=int(max_bytes), io_pool=SimIoPool(loop)
            )
        letters = next_round(source, letter, offset, originals, now_ms=int(now_ms), max_bytes=int(max_bytes))
        batch = build_batch(letters.records)
        assert len(batch) <= letters.size_bytes + len(letters.records), "sizes are not those of the batch"
        made.append(batch.hex())
        offset = letters.last_offset + 1
    return f"{int(partition) % int(partitions)} {';'.join(made)}"


async def test_batches_are_those_of_apache_kafka_to_the_byte(loop: SimLoop) -> None:
    lines = gzip.decompress(GOLDEN.read_bytes()).decode().splitlines()
    assert len(lines) == 200
    several = 0
    for number, line in enumerate(lines):
        given, recorded = line.split("\t")
        assert await outcome(loop, given) == recorded, f"letter {number}"
        several += ";" in recorded
    assert several > 30
