"""Record which batches Apache Kafka makes of the dead letters of share groups.

`python -m tools.record_dead_letters` writes tests/golden/dead_letters.txt.gz, with Apache Kafka 4.4.0's own
ShareGroupDLQStateManager over a log that is made here. A line is a letter and, after a tab, what came of it:

    1700000000000 900 3 1 7 0 9 2 reject 00..,00..	1 00..;00..

Time, the topic's max.message.bytes and partitions, whether records are copied, partition, first and last offset,
delivery count, cause, the batches of the log; then the partition, and a batch for each Produce. No record is so large
that it fits the topic alone, but not with its headers: there kafkapy deviates.
"""

import gzip
from pathlib import Path
from random import Random

from kafkapy.record.builder import BatchFields, build_batch
from kafkapy.record.compression import GZIP, NONE
from tools.java_programs import NO_LOG, run_java
from tools.kafka import fetch_kafka

GOLDEN = Path(__file__).resolve().parents[1] / "tests" / "golden" / "dead_letters.txt.gz"
DRIVER = Path(__file__).with_name("DeadLetterDriver.java")
LETTERS = 200
HEADERS_BYTES = 300
"""More than the headers of a dead letter take."""


def main() -> None:
    fetch_kafka()
    lines = [letter(Random(seed)) for seed in range(LETTERS)]
    answers = run_java(DRIVER, lines, log4j=NO_LOG)
    assert len(answers) == len(lines)
    text = "".join(f"{line}\t{answer}\n" for line, answer in zip(lines, answers, strict=True))
    GOLDEN.write_bytes(gzip.compress(text.encode(), 9, mtime=0))


def letter(dice: Random) -> str:
    """Return a letter over a random log: plain and compressed batches, some with gaps, some records too large."""
    max_bytes = dice.choice((500, 900, 2_000, 20_000))
    offset = first = dice.randrange(50)
    batches = []
    for _ in range(dice.randrange(1, 8)):
        count = dice.choice((1, 1, 2, 5, 20))
        deltas = sorted(dice.sample(range(count + 3), count)) if dice.random() < 0.3 else list(range(count))
        records = [record(dice, max_bytes) for _ in deltas]
        fields = BatchFields(
            base_offset=offset, offset_deltas=deltas, compression=dice.choice((NONE, NONE, GZIP)), leader_epoch=0
        )
        batches.append(build_batch(records, fields).hex())
        offset += deltas[-1] + 1 + dice.choice((0, 0, 0, 4))
    begin = first + dice.randrange(max(offset - first, 1))
    end = begin + dice.choice((0, 1, 5, 30, 100))
    facts = (
        1_700_000_000_000 + dice.randrange(10**9), max_bytes, dice.choice((1, 2, 3)), dice.choice((0, 1, 1, 1)),
        dice.randrange(9), begin, min(end, offset + 2), dice.randrange(1, 12), dice.choice(("reject", "count")),
    )  # fmt: skip
    return " ".join(map(str, facts)) + " " + ",".join(batches)


def record(
    dice: Random, max_bytes: int
) -> tuple[int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]:
    size = dice.choice((0, 3, 60, max_bytes - HEADERS_BYTES, max_bytes + 10))
    value = None if dice.random() < 0.1 else dice.randbytes(1) * size
    key = dice.choice((None, b"", b"key"))
    return 1_600_000_000_000 + dice.randrange(1000), key, value, dice.choice(((), (("own", b"header"),)))


if __name__ == "__main__":
    main()
