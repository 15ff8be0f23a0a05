"""Sends records to a topic, and counts what was delivered: for `produce` and `topics copy`."""

import time
from typing import Any, Final

from kafkapy.cli.output import counted

FLUSH_S: Final = 30.0
"""A broker that restarts is back by then."""
INTERRUPTED_FLUSH_S: Final = 0.3
"""Whoever pressed Ctrl-C wants to leave; what is on its way arrives within it."""
FLUSH_SLICE_S: Final = 0.2
"""A flush is not interruptible: Ctrl-C may be delayed by this time."""


class Sender:
    """A producer that records failures."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.count = 0
        self.failures: list[str] = []

    def send(self, record: dict[str, Any]) -> None:
        while True:
            try:
                self._producer.produce(self._topic, on_delivery=self._delivered, **record)
                break
            except BufferError:  # the queue is full: let it drain
                self._producer.poll(0.1)
        self._producer.poll(0)

    def finish(self, timeout_s: float) -> None:
        """Wait until all records are delivered or have failed; those still pending after timeout_s count as failed."""
        deadline_s = time.monotonic() + timeout_s
        remaining = len(self._producer)
        while remaining and time.monotonic() < deadline_s:
            remaining = self._producer.flush(FLUSH_SLICE_S)
        self.failures += ["not delivered in time"] * remaining

    def summary(self, verb: str = "Produced", source: str = "") -> str:
        """Say what was delivered. source: where the records come from, as ` of orders`."""
        done = f"{verb} {counted(self.count, 'record')}{source} to {self._topic}."
        return f"{done} {len(self.failures)} were not delivered." if self.failures else done

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error.str())
        else:
            self.count += 1
