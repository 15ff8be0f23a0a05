"""What is compacted: a directory with topics that a stock producer wrote, and what must be left of them.

It is written once, by librdkafka, through a kafkapy whose cleaner finds nothing dirty enough; each server gets a copy.
"""

import signal
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

from benchmarks.topics import alter_topic, create_topic
from harness.servers import Kafkapy, Server
from kafkapy.record.batches import batches
from kafkapy.record.columns import record_columns

SEGMENT_BYTES = 32 << 20
NEVER, AT_ONCE = {"min.cleanable.dirty.ratio": "1"}, {"min.cleanable.dirty.ratio": "0"}
"""Topic configs: never dirty enough to be cleaned (the ratio must be above it), and always."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What records are like: `keys_share` of their number is the number of different keys, drawn at random."""

    keys_share: float
    codec: str = "none"


def write_topic(server: Server, topic: str, kind: Kind, size_bytes: int) -> None:
    """Write about so many bytes of records of 300 bytes, in batches of at most 16 KiB as Java's producer makes them."""
    from confluent_kafka import Producer

    config = {"cleanup.policy": "compact", "segment.bytes": str(SEGMENT_BYTES), **NEVER}
    create_topic(server, topic, config=config)
    settings = {"linger.ms": 20, "batch.size": 16_384, "compression.type": kind.codec, "enable.idempotence": True}
    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 4, **settings})
    random = Random(17)
    count = size_bytes // 300
    key_count = max(int(count * kind.keys_share), 1)
    for number in range(count):
        key = random.randrange(key_count)
        while True:
            try:
                producer.produce(topic, _value(number, random.random()), b"customer-%010d" % key, partition=0)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 100 == 0:
            producer.poll(0)
    assert producer.flush(120) == 0


def _value(number: int, random: float) -> bytes:
    """Return an order as a service might write it: 260 bytes, of which a codec spares about half."""
    return b'{"order":%d,"price":%.12f,"quantity":%d,"venue":"XNYS","state":"filled","note":"%-152x"}' % (
        10_000_000 + number, random, int(random * 9999), int(random * (1 << 53)) ** 6,
    )  # fmt: skip


def write_directory(directory: Path, kind: Kind, sizes: dict[str, int]) -> None:
    """Write topics of these sizes in bytes into a directory, from which either server can start."""
    with Kafkapy(directory) as server:
        for topic, size_bytes in sizes.items():
            write_topic(server, topic, kind, size_bytes)
        assert server.stop(signal.SIGTERM) == 0


def clean(server: Server, topic: str) -> None:
    """Have the topic's log compacted from now on."""
    alter_topic(server, topic, AT_ONCE)


def segments(directory: Path, topic: str) -> list[Path]:
    """Return the topic's log files, the oldest first; the last is active."""
    return sorted((directory / f"{topic}-0").glob("*.log"))


def clean_to(directory: Path, topic: str) -> int:
    """Return up to which offset the topic is clean, as the server's checkpoint has it."""
    checkpoint = directory / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def expected_offsets(directory: Path, topic: str) -> "array[int]":
    """Return the offsets that must be left of what is not active: the last one of each key."""
    last: dict[bytes | None, int] = {}
    for file in segments(directory, topic)[:-1]:
        for offsets, keys in _records(file):
            last.update(zip(keys, offsets, strict=True))
    return array("q", sorted(last.values()))


def offsets_below(directory: Path, topic: str, end_offset: int) -> "array[int]":
    """Return the offsets of the records that a topic's segments hold, up to one that begins a segment."""
    found = array("q")
    for file in segments(directory, topic):
        if int(file.stem) < end_offset:
            for offsets, _ in _records(file):
                found.extend(offsets)
    return found


def _records(file: Path) -> Iterator[tuple[list[int], list[bytes | None]]]:
    """Yield the offsets and keys of each batch that has records."""
    for batch in batches(file.read_bytes()):
        if batch.record_count:
            columns = record_columns(batch.records_payload(), batch.record_count)
            yield [batch.base_offset + delta for delta in columns.offset_deltas], columns.keys
