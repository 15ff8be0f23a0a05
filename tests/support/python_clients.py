"""librdkafka, aiokafka and kafka-python by one interface, for tests that say the same of all three."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, Protocol

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import KafkaError as PythonKafkaError

TIMEOUT_S = 60
BACKOFF_MS = 50
HEARTBEAT_MS = 100
SESSION_MS = 6_000
POLL_S = 0.5


class PythonClient(Protocol):
    """Producers and consumers of one client. Methods raise `error`."""

    error: ClassVar[type[Exception]]

    def producer(self, servers: str, timeout_s: float = TIMEOUT_S) -> Any: ...

    def transactional(self, servers: str, transactional_id: str) -> Any: ...

    def send(self, producer: Any, topic: str, value: bytes) -> None:
        """Return once partition 0 has the value, and all replicas in sync."""
        ...

    def begin(self, producer: Any) -> None: ...

    def commit(self, producer: Any) -> None: ...

    def consumer(self, servers: str, topic: str, group: str) -> Any:
        """A member of a group that reads from the beginning, and commits when told to."""
        ...

    def poll(self, consumer: Any) -> list[bytes]: ...

    def commit_offsets(self, consumer: Any) -> None: ...

    def close(self, opened: Any) -> None: ...

    def end(self) -> None: ...


class Librdkafka:
    """confluent-kafka."""

    error = KafkaException

    def producer(self, servers: str, timeout_s: float = TIMEOUT_S) -> Producer:
        return Producer({**_rdkafka(servers), "message.timeout.ms": int(timeout_s * 1000)})

    def transactional(self, servers: str, transactional_id: str) -> Producer:
        found = Producer({**_rdkafka(servers), "transactional.id": transactional_id})
        found.init_transactions(TIMEOUT_S)
        return found

    def send(self, producer: Producer, topic: str, value: bytes) -> None:
        reports: list[Any] = []
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: reports.append(error))
        producer.flush(TIMEOUT_S)
        assert len(reports) == 1, "a value without a report"
        if reports[0] is not None:
            raise KafkaException(reports[0])

    def begin(self, producer: Producer) -> None:
        producer.begin_transaction()

    def commit(self, producer: Producer) -> None:
        producer.commit_transaction(TIMEOUT_S)

    def consumer(self, servers: str, topic: str, group: str) -> Consumer:
        timing = {"heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS}
        reading = {"auto.offset.reset": "earliest", "enable.auto.commit": False, "check.crcs": True}
        found = Consumer({**_rdkafka(servers), **timing, **reading, "group.id": group})
        found.subscribe([topic])
        return found

    def poll(self, consumer: Consumer) -> list[bytes]:
        message = consumer.poll(POLL_S)
        if message is None:
            return []
        if message.error() is not None:
            raise KafkaException(message.error())
        return [message.value()]

    def commit_offsets(self, consumer: Consumer) -> None:
        consumer.commit(asynchronous=False)

    def close(self, opened: Any) -> None:
        if isinstance(opened, Consumer):
            opened.close()

    def end(self) -> None: ...


def _rdkafka(servers: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "retry.backoff.ms": BACKOFF_MS, "log_level": 0}


class KafkaPython:
    error = PythonKafkaError

    def __init__(self) -> None:
        self._open: list[KafkaProducer | KafkaConsumer] = []

    def producer(self, servers: str, timeout_s: float = TIMEOUT_S) -> KafkaProducer:
        timeout_ms = int(timeout_s * 1000)
        timing = {"request_timeout_ms": min(timeout_ms, 30_000), "delivery_timeout_ms": timeout_ms}
        found = KafkaProducer(bootstrap_servers=servers, acks="all", retry_backoff_ms=BACKOFF_MS, **timing)
        self._open.append(found)
        return found

    def transactional(self, servers: str, transactional_id: str) -> KafkaProducer:
        found = KafkaProducer(bootstrap_servers=servers, retry_backoff_ms=BACKOFF_MS, transactional_id=transactional_id)
        self._open.append(found)
        found.init_transactions()
        return found

    def send(self, producer: KafkaProducer, topic: str, value: bytes) -> None:
        producer.send(topic, value, partition=0).get(TIMEOUT_S)

    def begin(self, producer: KafkaProducer) -> None:
        producer.begin_transaction()

    def commit(self, producer: KafkaProducer) -> None:
        producer.commit_transaction()

    def consumer(self, servers: str, topic: str, group: str) -> KafkaConsumer:
        found = KafkaConsumer(topic, bootstrap_servers=servers, **_as_member(group))
        self._open.append(found)
        return found

    def poll(self, consumer: KafkaConsumer) -> list[bytes]:
        found = consumer.poll(timeout_ms=int(POLL_S * 1000))
        return [record.value for records in found.values() for record in records]

    def commit_offsets(self, consumer: KafkaConsumer) -> None:
        consumer.commit()

    def close(self, opened: Any) -> None:
        self._open.remove(opened)
        opened.close()

    def end(self) -> None:
        """Close what a failed test left: its thread would look for its brokers as long as the process lives."""
        for opened in self._open:
            if isinstance(opened, KafkaProducer):
                opened.close(timeout=0)
            else:
                opened.close(autocommit=False, timeout_ms=0)


class Aiokafka:
    """Each call runs aiokafka's event loop until it is done, or for a minute."""

    error = AiokafkaError

    def __init__(self) -> None:
        self._runner = asyncio.Runner()

    def producer(self, servers: str, timeout_s: float = TIMEOUT_S) -> AIOKafkaProducer:
        return self._started(
            lambda: AIOKafkaProducer(
                bootstrap_servers=servers,
                acks="all",
                retry_backoff_ms=BACKOFF_MS,
                request_timeout_ms=int(timeout_s * 1000),
            )
        )

    def transactional(self, servers: str, transactional_id: str) -> AIOKafkaProducer:
        return self._started(
            lambda: AIOKafkaProducer(
                bootstrap_servers=servers, retry_backoff_ms=BACKOFF_MS, transactional_id=transactional_id
            )
        )

    def send(self, producer: AIOKafkaProducer, topic: str, value: bytes) -> None:
        self._run(producer.send_and_wait(topic, value, partition=0))

    def begin(self, producer: AIOKafkaProducer) -> None:
        self._run(producer.begin_transaction())

    def commit(self, producer: AIOKafkaProducer) -> None:
        self._run(producer.commit_transaction())

    def consumer(self, servers: str, topic: str, group: str) -> AIOKafkaConsumer:
        return self._started(lambda: AIOKafkaConsumer(topic, bootstrap_servers=servers, **_as_member(group)))

    def poll(self, consumer: AIOKafkaConsumer) -> list[bytes]:
        found = self._run(consumer.getmany(timeout_ms=int(POLL_S * 1000)))
        return [record.value for records in found.values() for record in records]

    def commit_offsets(self, consumer: AIOKafkaConsumer) -> None:
        self._run(consumer.commit())

    def close(self, opened: Any) -> None:
        self._run(opened.stop())

    def end(self) -> None:
        self._runner.close()

    def _started(self, new: Any) -> Any:
        async def start() -> Any:
            found = new()
            await found.start()
            return found

        return self._run(start())

    def _run(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(asyncio.wait_for(coroutine, TIMEOUT_S))


def _as_member(group: str) -> dict[str, Any]:
    timing = {"heartbeat_interval_ms": HEARTBEAT_MS, "session_timeout_ms": SESSION_MS, "retry_backoff_ms": BACKOFF_MS}
    return {"group_id": group, "auto_offset_reset": "earliest", "enable_auto_commit": False, **timing}


PYTHON_CLIENTS: tuple[type[PythonClient], ...] = (Librdkafka, Aiokafka, KafkaPython)
