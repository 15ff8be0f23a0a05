"""librdkafka's producers, by confluent-kafka: as TransactionLoad.java, or paced, for what a reader waits.

    python -m benchmarks.transaction_client load BOOTSTRAP TOPIC PRODUCERS RECORDS BYTES WARM_UP_S SECONDS KIND
    python -m benchmarks.transaction_client paced BOOTSTRAP TOPIC COUNT RATE

`load` prints what TransactionLoad.java prints. `paced` puts each record into a transaction when it is due and commits
what has become due meanwhile, again and again; a reader is benchmarks.latency's, which counts from when it was due.
"""

import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Producer

from benchmarks.latency import DUE_NS, RECORD_BYTES

TIMEOUT_S = 60.0
QUEUE_MESSAGES = 200_000
MIN_COMMITS = 2


def _new_producer(bootstrap: str, transactional_id: str | None) -> Producer:
    settings = {"linger.ms": 0, "acks": "all", "queue.buffering.max.messages": QUEUE_MESSAGES, "log_level": 4}
    if transactional_id is None:
        return Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, **settings})
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": transactional_id, **settings})
    producer.init_transactions(TIMEOUT_S)
    return producer


class Load:
    """Transactions that follow each other as fast as they go, a thread for each producer."""

    def __init__(self, bootstrap: str, topic: str, records: int, value_bytes: int, *, is_transactional: bool) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._records = records
        self._value = bytes(65 + number % 26 for number in range(value_bytes))
        self._is_transactional = is_transactional

    def run(self, partition: int, warm_up_s: float, seconds: float) -> tuple[int, float, list[float]]:
        """Return how many were committed in all, the seconds that count, and those of each commit in them."""
        transactional_id = f"{self._topic}-{partition}" if self._is_transactional else None
        producer = _new_producer(self._bootstrap, transactional_id)
        start = time.monotonic()
        count = 0
        while time.monotonic() - start < warm_up_s:
            self._transaction(producer, partition)
            count += 1
        start = now = time.monotonic()
        commits_s: list[float] = []
        while now - start < seconds or len(commits_s) < MIN_COMMITS:
            commits_s.append(self._transaction(producer, partition))
            now = time.monotonic()
        return count + len(commits_s), now - start, commits_s

    def _transaction(self, producer: Producer, partition: int) -> float:
        """Return the seconds of the commit alone."""
        if self._is_transactional:
            producer.begin_transaction()
        for _ in range(self._records):
            producer.produce(self._topic, self._value, partition=partition)
        assert producer.flush(TIMEOUT_S) == 0
        flushed = time.monotonic()
        if self._is_transactional:
            producer.commit_transaction(TIMEOUT_S)
        return time.monotonic() - flushed


def _load(bootstrap: str, topic: str, *numbers: str) -> None:
    producers, records, value_bytes, warm_up_s, seconds, kind = numbers
    load = Load(bootstrap, topic, int(records), int(value_bytes), is_transactional=kind == "transactional")
    with ThreadPoolExecutor(int(producers)) as threads:
        running = [
            threads.submit(load.run, number, float(warm_up_s), float(seconds)) for number in range(int(producers))
        ]
        found = [each.result() for each in running]
    print(sum(count for count, _, _ in found))
    print(sum(len(commits_s) / counted_s for _, counted_s, commits_s in found))
    print(*(round(commit_s * 1e6) for _, _, commits_s in found for commit_s in commits_s))


def _paced(bootstrap: str, topic: str, count: int, rate: int) -> None:
    producer = _new_producer(bootstrap, topic)
    padding = b"x" * (RECORD_BYTES - DUE_NS.size)
    start_ns = time.monotonic_ns() + 100_000_000
    sent = 0
    while sent < count:
        due = min(count, (time.monotonic_ns() - start_ns) * rate // 1_000_000_000)
        if due <= sent:
            time.sleep(0.0005)
            continue
        producer.begin_transaction()
        for number in range(sent, due):
            producer.produce(topic, DUE_NS.pack(start_ns + number * 1_000_000_000 // rate) + padding, partition=0)
        producer.commit_transaction(TIMEOUT_S)
        sent = due


if __name__ == "__main__":
    gc.disable()
    if sys.argv[1] == "load":
        _load(*sys.argv[2:])
    else:
        _paced(sys.argv[2], sys.argv[3], int(sys.argv[4]), int(sys.argv[5]))
