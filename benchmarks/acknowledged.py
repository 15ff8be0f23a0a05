"""A steady load whose every record is timed from the moment at which it was due until the broker has acknowledged it.

As in latency.py nothing is left out where the broker stalls: what had to wait for its turn is charged for that, too.
The producer is librdkafka's (linger 0, acks=all) in a process of its own, which goes on until it is told to stop, so
that what the broker did meanwhile can be told apart by the clock.
"""

import gc
import json
import statistics
import subprocess
import sys
import threading
import time
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import Self

from benchmarks.workload import Figures
from harness.servers import Server

RECORD_BYTES = 100
_TICK_SECONDS = 0.0005


class AcknowledgedLoad:
    """A context manager: the load runs inside, `percentiles` are asked for behind it."""

    def __init__(self, server: Server, topic: str, rate: int, *, partitions: int = 1) -> None:
        """`rate`: records a second, to the partitions in turn."""
        arguments = [server.bootstrap, topic, str(rate), str(partitions)]
        self._command = [sys.executable, "-m", "benchmarks.acknowledged", *arguments]
        self._waited: list[tuple[float, float, int]] = []

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            self._process.kill()
        output, _ = self._process.communicate("stop\n", timeout=90)
        if error is None:
            self._waited = [tuple(each) for each in json.loads(output)]

    def percentiles(self, started: float, ended: float) -> Figures:
        """Return p50 and p99 of the records that were due between two moments of time.monotonic()."""
        waited_ms = [waited for due_s, waited, _ in self._waited if started <= due_s < ended]
        cuts = statistics.quantiles(waited_ms, n=100, method="inclusive")
        return {"p50_ms": cuts[49], "p99_ms": cuts[98]}

    def longest_gap_ms(self, since: float, partition: int) -> float:
        """Return the longest time without an acknowledgement of a partition's, of those that ended after `since`."""
        times = sorted(due_s + waited / 1000 for due_s, waited, number in self._waited if number == partition)
        return max((after - before) * 1000 for before, after in pairwise(times) if after > since)


def _set_at_a_line(is_over: threading.Event) -> None:
    sys.stdin.readline()
    is_over.set()


def _produce(bootstrap: str, topic: str, rate: int, partitions: int) -> None:
    from confluent_kafka import KafkaError, Message, Producer

    waited: list[tuple[float, float, int]] = []

    def acknowledged(due: float, partition: int, error: KafkaError | None, message: Message) -> None:
        assert error is None, error
        waited.append((round(due, 4), round((time.monotonic() - due) * 1000, 4), partition))

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 4})
    producer.list_topics(topic, timeout=30)
    is_over = threading.Event()
    threading.Thread(target=_set_at_a_line, args=(is_over,), daemon=True).start()
    print("ready", flush=True)
    value = b"x" * RECORD_BYTES
    start = time.monotonic()
    sent = 0
    while not is_over.is_set():
        for number in range(sent, int((time.monotonic() - start) * rate)):
            partition = number % partitions
            on_delivery = partial(acknowledged, start + number / rate, partition)
            producer.produce(topic, value, partition=partition, on_delivery=on_delivery)
            sent = number + 1
        producer.poll(0)
        time.sleep(_TICK_SECONDS)
    assert producer.flush(60) == 0
    print(json.dumps(waited))


if __name__ == "__main__":
    gc.disable()
    _produce(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
