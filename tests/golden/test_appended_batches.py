"""Batches of all kinds, good and bad, appended to topics of all kinds: answered and stored as by Apache Kafka 4.4.0.

`python -m tools.record_appends` recorded what Kafka answered and what its log then held. The batches are appended here
at the times that Kafka's responses tell. What the broker has compressed itself is compared inflated: Java's libraries
write other bytes than ours.
"""

import asyncio
import gzip
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kafkapy.record.batch import HEADER_BYTES, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.compression import decompress
from kafkapy.record.errors import INVALID_RECORD
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from tests.simulator.loop import SimLoop
from tests.support.hosting import Hosting

GOLDEN = Path(__file__).parent / "appended_batches.jsonl.gz"


def recorded_topics() -> Iterator[dict[str, Any]]:
    with gzip.open(GOLDEN, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


TOPICS = list(recorded_topics())
HOUR_MS = 3_600_000
ANSWERED = ("error_code", "base_offset", "log_append_time_ms", "log_start_offset")


@pytest.mark.parametrize("topic", TOPICS, ids=[str(topic["configs"]) for topic in TOPICS])
async def test_responses_and_log_are_kafkas(loop: SimLoop, topic: dict[str, Any]) -> None:
    hosting = Hosting(loop, now_ms=topic["appends"][0]["sent_ms"])
    partition = hosting.create_topic(topic["topic"], configs=topic["configs"])
    for number, append in enumerate(topic["appends"]):
        response = await append_at(hosting, partition, append)
        assert reported(response) == kafkas_response(append), number
        errors = [list(error) for error in response.record_errors]
        assert errors == [[index, without_class(text)] for index, text in append["record_errors"]], number
        assert response.error_message == append["error_message"] or append["error_message"] is None, number
    kafkas = list(batches(bytes.fromhex(topic["log"])))
    assert list(map(comparable, stored(partition))) == list(map(comparable, kafkas))


async def append_at(hosting: Hosting, partition: HostedPartition, recorded: dict[str, Any]) -> PartitionAppend:
    """Append at the time of Kafka's own append, as far as its response tells it."""
    now_ms = max(recorded["log_append_time_ms"], recorded["sent_ms"])
    for _, message in recorded["record_errors"]:
        if bounds := re.search(r"within \[-?\d+, (\d+)\]", message):
            now_ms = int(bounds[1]) - HOUR_MS
    await asyncio.sleep(max(now_ms - hosting.clock.wall_ms(), 0) / 1000)
    records = memoryview(bytearray.fromhex(recorded["batch"]))
    made = PartitionAppend(partition, records)
    if not hosting.manager.append_records([made], required_acks=1):
        assert made.worker_check is not None, "a high level of zstd is a worker's"
        made.checked = made.worker_check.check()
        assert hosting.manager.append_records([made], required_acks=1)
    return made


def reported(response: PartitionAppend) -> dict[str, int]:
    return {name: getattr(response, name) for name in ANSWERED}


def kafkas_response(append: dict[str, Any]) -> dict[str, int]:
    """Kafka fails where offset deltas of a compressed batch that it would keep do not count from 0 on."""
    code = append["error_code"]
    return {name: append[name] for name in ANSWERED} | {"error_code": INVALID_RECORD if code == -1 else code}


def without_class(message: str) -> str:
    """Kafka prints a Java object where we tell the record's offset."""
    return re.sub(r"message \w+\((offset=\d+).*\)", lambda found: f"message with {found[1].replace('=', ' ')}", message)


def stored(partition: HostedPartition) -> list[RecordBatch]:
    log = partition.log
    assert log is not None
    found: list[RecordBatch] = []
    while (offset := found[-1].next_offset if found else 0) < log.log_end_offset:
        region = log.read(offset, 1 << 20, wait=True).region
        assert region is not None
        found += batches(region.read())
    return found


COMPARED = (
    "attributes",
    "base_offset",
    "base_sequence",
    "base_timestamp",
    "last_offset",
    "magic",
    "max_timestamp",
    "partition_leader_epoch",
    "producer_epoch",
    "producer_id",
    "record_count",
)
"""Of a batch's fields; a compiled class has no __slots__ that could be asked."""


def comparable(batch: RecordBatch) -> dict[str, Any]:
    """Return the batch's fields and what its payload inflates to."""
    assert batch.has_valid_crc()
    fields = {name: getattr(batch, name) for name in COMPARED}
    payload = batch.data[batch.position + HEADER_BYTES : batch.position + batch.size_bytes]
    return fields | {"records": decompress(batch.compression, payload, 2, 1 << 20).hex()}
