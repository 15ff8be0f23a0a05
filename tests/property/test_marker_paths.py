"""Markers written with their decision have the outcome of markers that all wait for the flush of the pass.

Two hostings get the same steps of the same producers; in one of them no marker is ever found to be alone in its
partition. Each producer gets the same answers, and every partition has the same batches of each producer, in order.
"""

import asyncio
import errno
from collections import defaultdict
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.runtime.coordinators.marker_writer import MAX_MARKERS_NOW
from kafkapy.runtime.coordinators.markers import LocalMarkers, Marker, MarkerSink
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC
from kafkapy.types import TopicPartition
from tests.simulator.loop import SimLoop, run
from tests.support.hosting import run_scheduled
from tests.support.transaction_hosting import SimProducer, TransactionHosting, batches_of

PARTITIONS = MAX_MARKERS_NOW + 2
STEPS = 40
FAULT_EVERY = 7

Step = dict[int, tuple[str, int]]
"""What some producers do at the same time: by their number, an operation and a partition."""
Outcome = tuple[list[Any], dict[str, Any]]


class PatientMarkers:
    """No marker is alone."""

    def __init__(self, local: MarkerSink) -> None:
        self.write = local.write

    def write_sole(self, topic_partition: TopicPartition, marker: Marker) -> int | None:
        return None


class PatientHosting(TransactionHosting):
    def _new_sink(self) -> MarkerSink:
        return PatientMarkers(LocalMarkers(self.manager, self.groups, self.clock))


def steps_of(random: Random, producer_count: int) -> list[Step]:
    """Draw steps; the partitions of a life are few or many, so that producers meet in them or do not."""
    spread = random.choice((1, 2, PARTITIONS))
    operations = random.choices(
        ("send", "commit", "abort", "offset", "init"), (12, 4, 3, 2, 0.5), k=STEPS * producer_count
    )
    return [
        {
            number: (operations.pop(), (number + random.randrange(spread)) % PARTITIONS)
            for number in range(producer_count)
            if random.random() < 0.6
        }
        for _ in range(STEPS)
    ]


async def act(producer: SimProducer, operation: str, partition_id: int) -> Any:
    if operation == "send":
        return await producer.send(partition_id=partition_id)
    if operation == "offset":
        return await producer.commit_offset(partition_id, group_id=f"g-{partition_id}")
    if operation == "init":
        return await producer.init()
    return await producer.end(commit=operation == "commit")


def leave_no_room_in(partition_id: int) -> Callable[[str, str], None]:
    """Return a hook for the disk: one partition of the topic has no room."""

    def refuse(operation: str, path: str) -> None:
        if operation == "write" and path.startswith(f"/data/orders-{partition_id}/"):
            raise OSError(errno.ENOSPC, "no space")

    return refuse


async def live(hosting: TransactionHosting, steps: list[Step], producer_count: int, state_partitions: int) -> Outcome:
    """Take the steps; return each response, and what is in the logs and known of the producers afterwards."""
    hosting.create_state_topic(state_partitions)
    hosting.create_topic(OFFSETS_TOPIC, 2)
    hosting.create_topic("orders", PARTITIONS)
    producers = [SimProducer(hosting, f"t-{number}") for number in range(producer_count)]
    responses: list[Any] = [await producer.init() for producer in producers]
    for number, step in enumerate(steps):
        if number % FAULT_EVERY == FAULT_EVERY - 1:
            hosting.disk.hook = leave_no_room_in(number % PARTITIONS)
        responses.append(await asyncio.gather(*(act(producers[number], *each) for number, each in step.items())))
        await run_scheduled()
        if hosting.disk.hook is not None:
            hosting.disk.hook = None
            await asyncio.sleep(1)
    responses += [await producer.end(commit=True) for producer in producers]
    await run_scheduled()
    found: dict[str, Any] = {
        each.transactional_id: (each.state(), each.epoch, each.producer_id - producers[0].producer_id)
        for each in producers
    }
    for topic, count in (("orders", PARTITIONS), (OFFSETS_TOPIC, 2), (TRANSACTION_STATE_TOPIC, state_partitions)):
        for partition_id in range(count):
            partition = hosting.manager.partitions.find(topic, partition_id)
            assert partition is not None
            log = partition.log
            assert log is not None
            assert log.last_stable_offset == log.log_end_offset, "no transaction is open"
            assert log.producer_state.open_count == 0
            found[f"{topic}-{partition_id}"] = by_producer(hosting, topic, partition_id, producers[0].producer_id)
    return responses, found


def by_producer(hosting: TransactionHosting, topic: str, partition_id: int, first_id: int) -> dict[Any, list[Any]]:
    """Return the batches of each producer or transactional id, without what depends on the order among these."""
    found = defaultdict(list)
    for batch in batches_of(hosting, topic, partition_id):
        for record in batch.records():
            if topic == TRANSACTION_STATE_TOPIC:
                assert record.value is not None
                found[record.key].append((record.value[10:12], record.value[16]))  # epoch, state
            else:
                producer = batch.producer_id - first_id
                content = (record.key, None if batch.is_control else record.value)
                if topic == OFFSETS_TOPIC:
                    content = (record.key, None)  # the value has the time
                found[producer].append((batch.producer_epoch, batch.base_sequence, batch.is_control, content))
    return dict(found)


@pytest.mark.parametrize("seed", range(16))
def test_markers_written_with_their_decision_have_the_outcome_of_those_that_wait(seed: int) -> None:
    random = Random(seed)
    producer_count, state_partitions = random.choice((1, 2, 4, 8)), random.choice((1, 3))
    steps = steps_of(random, producer_count)
    outcomes: list[Outcome] = []
    for kind in (TransactionHosting, PatientHosting):

        async def main(loop: SimLoop, kind: type[TransactionHosting] = kind) -> None:
            outcomes.append(await live(kind(loop), steps, producer_count, state_partitions))

        run(main)
    at_once, patient = outcomes
    assert at_once[0] == patient[0]
    assert at_once[1] == patient[1]
