"""Clients of a cluster in trouble: producers that know what was acknowledged, groups that know what is committed.

Each producer writes the numbers 0, 1, 2, ... to a topic of its own, each number once, number % PARTITIONS being its
partition. Members of groups read all topics and commit what they have read.
"""

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.support.copying import Copiers
from tests.support.group_starts import commit_starts
from tests.support.migrating import JavaProducer

PARTITIONS = 2
PAUSE_S = 0.004
PATIENCE_MS = 600_000
FLUSH_S = 300


class Writer(Protocol):
    """A producer. `acknowledged`: the numbers that are, in any order."""

    topic: str

    def acknowledged_count(self) -> int: ...

    def acknowledged(self) -> list[int]: ...

    def stop(self) -> None:
        """Send what there is, and end."""
        ...


class _ThreadWriter:
    """A writer whose thread runs `write` until it is to stop."""

    def __init__(self, topic: str, write: Callable[[], None]) -> None:
        self.topic = topic
        self._acknowledged: list[int] = []
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=write)
        self._thread.start()

    def acknowledged_count(self) -> int:
        return len(self._acknowledged)

    def acknowledged(self) -> list[int]:
        return self._acknowledged

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()


class ConfluentWriter(_ThreadWriter):
    """An idempotent producer of confluent-kafka."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.failed: list[Any] = []
        patience = {"delivery.timeout.ms": PATIENCE_MS, "socket.timeout.ms": 10_000, "reconnect.backoff.max.ms": 500}
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0, **patience}
        )
        super().__init__(topic, self._run)

    def stop(self) -> None:
        super().stop()
        assert self._producer.flush(FLUSH_S) == 0, f"{self.topic}: records are neither acknowledged nor refused"

    def _run(self) -> None:
        number = 0
        while not self._is_stopping.is_set():
            with contextlib.suppress(BufferError):
                self._producer.produce(
                    self.topic, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._noted(number)
                )
                number += 1
            self._producer.poll(PAUSE_S)

    def _noted(self, number: int) -> Callable[[Any, Any], None]:
        def on_delivery(error: Any, _message: Any) -> None:
            if error is None:
                self._acknowledged.append(number)
            else:
                self.failed.append(error)

        return on_delivery


class AioWriter(_ThreadWriter):
    """Idempotent producers of aiokafka, one after the other: it gives up for good where others go on."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._number = 0
        super().__init__(topic, lambda: asyncio.run(self._run()))

    async def _run(self) -> None:
        while not self._is_stopping.is_set():
            producer = AIOKafkaProducer(
                bootstrap_servers=self._bootstrap, enable_idempotence=True, request_timeout_ms=10_000, linger_ms=2
            )
            try:
                await producer.start()
                await self._write(producer)
            except (AioKafkaError, OSError):
                await asyncio.sleep(0.2)
            finally:
                with contextlib.suppress(AioKafkaError, OSError, TimeoutError):
                    await asyncio.wait_for(producer.stop(), FLUSH_S)

    async def _write(self, producer: AIOKafkaProducer) -> None:
        """Write until something fails or all is over."""
        failures: list[BaseException] = []
        while not self._is_stopping.is_set() and not failures:
            number, self._number = self._number, self._number + 1
            sent = await producer.send(self.topic, b"%d" % number, partition=number % PARTITIONS)
            sent.add_done_callback(self._noted(number, failures))
            await asyncio.sleep(PAUSE_S)

    def _noted(self, number: int, failures: list[BaseException]) -> Callable[["asyncio.Future[Any]"], None]:
        def on_done(sent: "asyncio.Future[Any]") -> None:
            if sent.cancelled():
                return
            error = sent.exception()
            if error is None:
                self._acknowledged.append(number)
            else:
                failures.append(error)

        return on_done


class JavaWriter:
    """An idempotent producer of Java's."""

    def __init__(self, directory: Path, bootstrap: str, topic: str) -> None:
        self.topic = topic
        more = f"delivery.timeout.ms={PATIENCE_MS}\nrequest.timeout.ms=10000\nreconnect.backoff.max.ms=500\n"
        self._producer = JavaProducer(directory, bootstrap, topic, records_per_s=200, more_settings=more)
        self._producer.__enter__()

    def acknowledged_count(self) -> int:
        return self._producer.acknowledged_count()

    def acknowledged(self) -> list[int]:
        return self._producer.acknowledged()

    def stop(self) -> None:
        self._producer.stop()


class Member:
    """A member of a group, in a thread of its own; `committed`: the largest offset of which the commit was answered."""

    def __init__(self, bootstrap: str, topics: Sequence[str], group: str, settings: dict[str, object]) -> None:
        self.seen: dict[tuple[str, int], set[int]] = {}
        self.committed: dict[tuple[str, int], int] = {}
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "socket.timeout.ms": 10_000,
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,
                **settings,
            }
        )
        self._consumer.subscribe(list(topics))
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        """Leave the group; a second call does nothing."""
        if not self._is_stopping.is_set():
            self._is_stopping.set()
            self._thread.join()
            self._consumer.close()

    def _run(self) -> None:
        while not self._is_stopping.is_set():
            ends: dict[tuple[str, int], int] = {}
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    partition = (message.topic(), message.partition())
                    self.seen.setdefault(partition, set()).add(message.offset())
                    ends[partition] = message.offset() + 1
            if ends:
                self._commit(ends)

    def _commit(self, ends: dict[tuple[str, int], int]) -> None:
        """Commit, or leave it to the next commit if this one fails."""
        offsets = [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]
        with contextlib.suppress(KafkaException):
            for each in self._consumer.commit(offsets=offsets, asynchronous=False):
                if each.error is None:
                    key = (each.topic, each.partition)
                    self.committed[key] = max(self.committed.get(key, 0), each.offset)


class Group:
    """Two members."""

    def __init__(self, bootstrap: str, topics: Sequence[str], name: str, settings: dict[str, object]) -> None:
        self.name = name
        commit_starts(bootstrap, name, topics, PARTITIONS)
        self.members = [Member(bootstrap, topics, name, settings) for _ in range(2)]

    def stop(self) -> None:
        for member in self.members:
            member.stop()

    def leave_one(self) -> tuple[Member, dict[tuple[str, int], int]]:
        """Stop all members but one; return that one, with nothing seen since then, and what was committed before."""
        last = self.members[-1]
        for member in self.members[:-1]:
            member.stop()
        answered = self.committed()  # in this order: what it sees from now on it may commit from now on
        last.seen = {}
        return last, answered

    def seen(self, topic: str, partition: int) -> set[int]:
        return set().union(*(set(member.seen.get((topic, partition), ())) for member in self.members))

    def committed(self) -> dict[tuple[str, int], int]:
        """Return the largest offset of each partition whose commit was answered."""
        found: dict[tuple[str, int], int] = {}
        for member in self.members:
            for key, offset in list(member.committed.items()):
                found[key] = max(found.get(key, 0), offset)
        return found

    def seen_count(self) -> int:
        return sum(len(offsets) for member in self.members for offsets in list(member.seen.values()))


class Copies:
    """Transactional copiers in processes: each record goes to TOPIC-copy once. Those that end are started again."""

    def __init__(self, commands: Sequence[Sequence[str]], directory: Path) -> None:
        self._copiers = Copiers(commands, directory)
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._tend)
        self._thread.start()

    def stop(self) -> None:
        self._is_stopping.set()
        self._thread.join()
        self._copiers.close()

    def restart(self) -> None:
        """Kill all; they are started again.

        librdkafka 2.x may hang in send_offsets_to_transaction when the group's coordinator has moved: it has its
        response to AddOffsetsToTxn and sends no FindCoordinator or TxnOffsetCommit (seen by debug=eos,protocol).
        """
        for index in range(len(self._copiers)):
            self._copiers.kill_one(index)

    def _tend(self) -> None:
        while not self._is_stopping.wait(0.5):
            self._copiers.tend()


def copier_commands(bootstrap: str, classic: str, consumer: str) -> list[list[str]]:
    """Return the commands of two copiers for each of the two topics, in a group of each protocol that begins at 0."""
    for topic in (classic, consumer):
        commit_starts(bootstrap, f"copies-{topic}", [topic], PARTITIONS)
    return [
        [
            sys.executable,
            "-m",
            "tests.support.copier",
            bootstrap,
            f"copies-{topic}",
            protocol,
            f"{topic}-{slot}",
            "50",
            topic,
        ]
        for protocol, topic in (("classic", classic), ("consumer", consumer))
        for slot in range(2)
    ]


@contextlib.contextmanager
def stopping(clients: Sequence[Any]) -> Iterator[None]:
    """Stop the clients when an error ends the block: their threads would outlive it."""
    try:
        yield
    except BaseException:
        for client in clients:
            with contextlib.suppress(Exception):
                client.stop()
        raise
