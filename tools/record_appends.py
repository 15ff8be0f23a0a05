"""Record what Apache Kafka 4.4.0 answers to batches of all kinds, and what its log then holds.

`python -m tools.record_appends` starts Apache Kafka, makes a topic for each mix of settings, sends it batches (some
that no client would send), and writes tests/golden/appended_batches.jsonl.gz: a line per topic with its configs, the
batches as sent, the responses, and the log as it is then fetched. Seeded: another run differs in timestamps alone.
"""

import gzip
import itertools
import json
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.servers import ApacheKafka
from kafkapy.record.batch import LOG_APPEND_TIME_FLAG
from kafkapy.record.builder import BatchFields, NewRecord, build_batch, seal
from tests.support.client_requests import create_topic, fetch, list_offset, produce
from tests.support.wire import WireClient

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "appended_batches.jsonl.gz"
HOUR_MS = 3_600_000
BATCHES_PER_TOPIC = 24

CONFIGS: tuple[dict[str, str], ...] = (
    {"message.timestamp.type": "LogAppendTime"},
    {"cleanup.policy": "compact"},
    {"message.timestamp.before.max.ms": str(HOUR_MS), "message.timestamp.after.max.ms": str(HOUR_MS)},
    {"max.message.bytes": "700"},
    {"cleanup.policy": "compact,delete", "message.timestamp.type": "LogAppendTime"},
    {},
)
COMPRESSION: tuple[dict[str, str], ...] = (
    {},
    {"compression.type": "uncompressed"},
    {"compression.type": "gzip", "compression.gzip.level": "9"},
    {"compression.type": "snappy"},
    {"compression.type": "lz4", "compression.lz4.level": "12"},
    {"compression.type": "zstd", "compression.zstd.level": "10"},
)


def main() -> None:
    dice = random.Random(4)
    with (
        tempfile.TemporaryDirectory() as directory,
        ApacheKafka(Path(directory) / "data") as kafka,
        WireClient(kafka.bootstrap) as client,
        gzip.open(GOLDEN, "wt", encoding="utf-8", compresslevel=9) as out,
    ):
        for number, (configs, compression) in enumerate(itertools.product(CONFIGS, COMPRESSION)):
            out.write(json.dumps(record_topic(client, f"t{number}", configs | compression, dice)) + "\n")


def record_topic(client: WireClient, topic: str, configs: dict[str, str], dice: random.Random) -> dict[str, Any]:
    create_topic(client, topic, 1, **{key.replace(".", "_"): value for key, value in configs.items()})
    producer_id = dice.randrange(1000, 1 << 40)
    appends = []
    for batch in batches_to_send(dice, producer_id):
        before_ms = int(time.time() * 1000)
        response = produce(client, topic, batch)
        appends.append(
            {
                "batch": batch.hex(),
                "sent_ms": before_ms,
                "error_code": response.error_code,
                "base_offset": response.base_offset,
                "log_append_time_ms": response.log_append_time_ms,
                "log_start_offset": response.log_start_offset,
                "record_errors": [
                    [each.batch_index, each.batch_index_error_message] for each in response.record_errors
                ],
                "error_message": response.error_message,
            }
        )
    log, offset, end_offset = b"", 0, list_offset(client, topic, -1).offset
    while offset < end_offset:
        records = bytes(fetch(client, topic, offset).records)
        log += records
        offset = int.from_bytes(records[:8], "big") + int.from_bytes(records[23:27], "big") + 1
        if len(records) > (length := int.from_bytes(records[8:12], "big") + 12):
            log = log[: length - len(records)]
    return {"topic": topic, "configs": configs, "appends": appends, "log": log.hex()}


def batches_to_send(dice: random.Random, producer_id: int) -> Iterator[bytes]:
    sequence = 0
    for number in range(BATCHES_PER_TOPIC):
        records = new_records(dice)
        fields: dict[str, Any] = {"compression": dice.randrange(5)}
        if dice.random() < 0.3:
            fields |= {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
        batch = bytearray(build_batch(records, BatchFields(**fields)))
        if number % 3 == 2:
            mutate(dice, batch, records, fields)
        elif "producer_id" in fields:
            sequence += len(records)
        yield bytes(batch)


def new_records(dice: random.Random) -> list[NewRecord]:
    now_ms = int(time.time() * 1000)
    times = dice.choice(
        (
            lambda index: now_ms,
            lambda index: now_ms + index * dice.randrange(3),
            lambda index: now_ms - dice.randrange(100_000),
            lambda index: -1,
            lambda index: now_ms + dice.choice((0, 0, 0, -2 * HOUR_MS, 2 * HOUR_MS, -90 * 24 * HOUR_MS)),
            lambda index: dice.choice((-1, now_ms)),
        )
    )
    is_keyed = dice.random() < 0.7
    has_headers = dice.random() < 0.3
    return [
        (
            times(index),
            b"key%d" % dice.randrange(9) if is_keyed and dice.random() < 0.95 else None,
            dice.choice((None, b"", b"value" * dice.randrange(30), dice.randbytes(dice.randrange(40)))),
            (("name", b"x"), ("name", None), ("", b"")) if has_headers and dice.random() < 0.5 else (),
        )
        for index in range(dice.choice((1, 1, 2, 3, 20)))
    ]


def mutate(dice: random.Random, batch: bytearray, records: list[NewRecord], fields: dict[str, Any]) -> None:
    """Make of a batch what a client should not send."""
    kind = dice.randrange(15)
    if kind == 0:  # base offset
        batch[7] = dice.randrange(3)
    elif kind == 1:  # leader epoch: overwritten
        batch[12:16] = dice.randbytes(4)
    elif kind == 2:  # LogAppendTime set by a client, with the maximum that a header happens to have
        batch[22] |= LOG_APPEND_TIME_FLAG
        if dice.random() < 0.5:
            batch[35:43] = (-1).to_bytes(8, "big", signed=True)
    elif kind == 3:  # last offset delta
        batch[23:27] = (len(records) - 1 + dice.choice((1, -1))).to_bytes(4, "big", signed=True)
    elif kind == 4:  # a maximum that is not the records'
        batch[35:43] = (dice.randrange(1 << 41)).to_bytes(8, "big")
    elif kind == 5:  # record count
        batch[57:61] = (len(records) + dice.choice((1, -1))).to_bytes(4, "big", signed=True)
    elif kind == 6:  # no records
        batch[57:61] = bytes(4)
    elif kind == 7:  # control
        batch[22] |= 0x20
    elif kind == 8:  # delete horizon
        batch[22] |= 0x40
    elif kind == 9:  # attribute bits that nobody uses
        batch[21] = 0x40
    elif kind in (10, 11, 12):  # offsets that do not count from 0 on, in a compressed batch
        fields["compression"] = dice.randrange(1, 5)
        deltas = {
            10: [0] * len(records),
            11: list(range(5, 5 + len(records))),
            12: [2 * index for index in range(len(records))],
        }[kind]
        batch[:] = build_batch(records, BatchFields(offset_deltas=deltas, last_offset_delta=len(records) - 1, **fields))
    elif kind == 13:  # a producer without a sequence
        batch[43:57] = (7).to_bytes(8, "big") + bytes(2) + (-1).to_bytes(4, "big", signed=True)
    elif kind == 14:  # a base timestamp that is not the first record's
        base_timestamp = int.from_bytes(batch[27:35], "big", signed=True)
        batch[27:35] = (base_timestamp + 5).to_bytes(8, "big", signed=True)
    batch[:] = seal(bytes(batch[:61]), batch[61:])


if __name__ == "__main__":
    main()
