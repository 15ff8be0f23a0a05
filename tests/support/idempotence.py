"""What an idempotent producer may leave in a log, where leadership moves while it writes.

librdkafka takes NOT_LEADER_OR_FOLLOWER for "not written". Its thread for the new leader may send the next records
before those that were refused are queued again. The new leader rightly answers OUT_OF_ORDER_SEQUENCE_NUMBER, and
librdkafka sends all that is unanswered again with a new producer epoch ("skipped sequence numbers" with debug=eos).
What the old leader had appended, and its followers have, is then there twice, with two epochs: no broker can know.
Within one epoch nothing may be there twice, be missing or out of order.
"""

from collections.abc import Sequence
from pathlib import Path

from kafkapy.record.batch import increment_sequence
from kafkapy.record.batches import batches
from tests.support.migrating import log_of

Producer = tuple[int, int]
"""Id and epoch."""


def values_of(log: bytes) -> list[int]:
    """Return the numbers in a log, each once, in order; check the sequence of each producer epoch."""
    writers: dict[int, Producer] = {}
    """Who wrote a number last."""
    expected: dict[Producer, int] = {}
    for batch in batches(log):
        if batch.is_control:
            continue
        producer = (batch.producer_id, batch.producer_epoch)
        assert batch.base_sequence == expected.get(producer, 0), f"{producer} at {batch.base_offset}"
        expected[producer] = increment_sequence(batch.last_sequence, 1)
        for record in batch.records():
            assert record.value is not None
            value = int(record.value)
            before = writers.get(value)
            assert before is None or (before[0] == producer[0] and before < producer), f"{value}: {before}, {producer}"
            writers[value] = producer
    values = list(writers)
    assert values == sorted(values)
    return values


def numbers_of(directories: Sequence[Path], partitions: Sequence[str]) -> list[int]:
    """Return the sorted numbers of a topic, each partition read from a replica in any of these directories."""
    found: list[int] = []
    for partition in partitions:
        directory = next(each for each in directories if (each / partition).is_dir())
        found += values_of(log_of(directory, partition))
    return sorted(found)
