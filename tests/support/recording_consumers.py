"""Consumers that write down what they get, and a watcher of committed offsets: threads, as the recording producers."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from tests.support.client_requests import LATEST, READ_COMMITTED, batches_in, fetch, kept_batches, list_offset, until
from tests.support.history import Finish, Limit, Observe, Poll, Recorder
from tests.support.offsets import fetch_group
from tests.support.recording_producers import LOST, PARTITION_COUNT, RESPONSE_TIMEOUT_S, TOPICS, group_of
from tests.support.transactions import last_stable_offset
from tests.support.wire import WireClient

PARTITIONS = [(topic, number) for topic in TOPICS for number in range(PARTITION_COUNT)]
PAUSE_S = 0.02


class Connected:
    """A thread's body over one connection, which is made anew when it is lost."""

    def __init__(self, bootstrap: str, recorder: Recorder) -> None:
        self._bootstrap = bootstrap
        self._recorder = recorder

    def work(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            try:
                with WireClient(self._bootstrap, timeout_s=RESPONSE_TIMEOUT_S) as client:
                    while not is_over():
                        self._look(client)
                        time.sleep(PAUSE_S)
            except LOST:
                time.sleep(0.05)

    def _look(self, client: WireClient) -> None:
        raise NotImplementedError


class WireReader(Connected):
    """Reads all partitions along, from their starts; notes their limits, too."""

    def __init__(self, bootstrap: str, recorder: Recorder, *, name: str, isolation_level: int) -> None:
        super().__init__(bootstrap, recorder)
        self._name = name
        self._isolation_level = isolation_level
        self._positions = dict.fromkeys(PARTITIONS, 0)

    def _look(self, client: WireClient) -> None:
        for (topic, number), position in self._positions.items():
            invoked = time.monotonic()
            response = fetch(
                client, topic, position, partition=number, isolation_level=self._isolation_level, max_wait_ms=0
            )
            if response.error_code == 0:
                self._note(f"{topic}-{number}", response, position, invoked)
                found = batches_in(response)
                self._positions[topic, number] = found[-1].next_offset if found else position

    def _note(self, partition: str, response: Any, position: int, invoked: float) -> None:
        completed = time.monotonic()
        limits = (
            (Limit.HIGH_WATERMARK, response.high_watermark),
            (Limit.LAST_STABLE_OFFSET, response.last_stable_offset),
        )
        for limit, value in limits:
            if value >= 0:
                self._recorder.add(Observe(limit, partition, value, invoked, completed))
        is_read_committed = self._isolation_level == READ_COMMITTED
        records = records_of(response, position, is_read_committed=is_read_committed)
        if records:
            self._recorder.add(Poll(self._name, is_read_committed, partition, records, invoked, completed))


def records_of(response: Any, position: int, *, is_read_committed: bool) -> tuple[tuple[int, str], ...]:
    """Return offset and value of each record that an application gets: none of markers, none of before the position."""
    kept = (
        kept_batches(response) if is_read_committed else [each for each in batches_in(response) if not each.is_control]
    )
    return tuple(
        (record.offset, bytes(record.value or b"").decode())
        for batch in kept
        for record in batch.records()
        if record.offset >= position
    )


class ConfluentReader:
    """librdkafka, read_committed, all partitions from their starts."""

    def __init__(self, bootstrap: str, recorder: Recorder) -> None:
        self._recorder = recorder
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "readers-along",
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "reconnect.backoff.max.ms": 200,
                "log_level": 0,
            }
        )
        self._consumer.assign([TopicPartition(topic, number, 0) for topic, number in PARTITIONS])

    def work(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            invoked = time.monotonic()
            messages = self._consumer.consume(500, 0.1)
            completed = time.monotonic()
            found: dict[str, list[tuple[int, str]]] = defaultdict(list)
            for message in messages:
                if message.error() is None:
                    where = f"{message.topic()}-{message.partition()}"
                    found[where].append((message.offset(), message.value().decode()))
            for partition, records in found.items():
                self._recorder.add(Poll("librdkafka", True, partition, tuple(records), invoked, completed))
        self._consumer.close()


class OffsetWatcher(Connected):
    """Looks at the committed offset of each group, pending ones or not."""

    def __init__(self, bootstrap: str, recorder: Recorder, transactional_ids: Sequence[str]) -> None:
        super().__init__(bootstrap, recorder)
        self._groups = [group_of(each) for each in transactional_ids]
        self._requires_stable = False

    def _look(self, client: WireClient) -> None:
        self._requires_stable = not self._requires_stable
        for group in self._groups:
            observe_group(client, self._recorder, group, require_stable=self._requires_stable)


def observe_group(client: WireClient, recorder: Recorder, group: str, *, require_stable: bool) -> bool:
    """Note the committed offset; return whether it was told."""
    invoked = time.monotonic()
    response = fetch_group(client, group, TOPICS[0], require_stable=require_stable)
    if response.error_code:
        return False
    partition = response.topics[0].partitions[0]
    if partition.error_code == 0 and partition.committed_offset >= 0:
        observed = partition.committed_offset
        recorder.add(Observe(Limit.COMMITTED_OFFSET, group, observed, invoked, time.monotonic()))
    return bool(partition.error_code == 0)


def look_at_all(client: WireClient, recorder: Recorder) -> None:
    """When all clients have ended: read each partition from its start, and note what is open still."""
    for topic, number in PARTITIONS:
        end_offset = list_offset(client, topic, LATEST, partition=number).offset
        stable = last_stable_offset(client, topic, partition=number)
        recorder.add(Finish(f"{topic}-{number}", read_to(client, topic, number, stable), stable, end_offset))


def wait_until_stable(client: WireClient) -> None:
    """Wait until no partition has an open transaction, or until it is clear that one hangs."""

    def is_stable(topic: str, number: int) -> bool:
        end_offset = list_offset(client, topic, LATEST, partition=number).offset
        return bool(end_offset == last_stable_offset(client, topic, partition=number))

    for topic, number in PARTITIONS:
        until(lambda: is_stable(topic, number))  # noqa: B023


def read_to(client: WireClient, topic: str, number: int, end_offset: int) -> tuple[tuple[int, str], ...]:
    found: list[tuple[int, str]] = []
    offset = 0
    while offset < end_offset:
        response = fetch(client, topic, offset, partition=number, isolation_level=READ_COMMITTED, max_wait_ms=1000)
        found += records_of(response, offset, is_read_committed=True)
        offset = batches_in(response)[-1].next_offset
    return tuple(found)
