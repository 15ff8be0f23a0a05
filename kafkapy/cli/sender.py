"""Sends records to a topic, and counts the delivered ones: for `produce` and `topics copy`."""

import time
from typing import Any, Final

from kafkapy.cli.output import counted, not_delivered

FLUSH_S: Final = 30.0
"""The time for the delivery of the last records: a restarted broker is back by then."""
INTERRUPTED_FLUSH_S: Final = 0.3
"""After Ctrl-C: long enough for requests that are on their way."""
FLUSH_SLICE_S: Final = 0.2
"""A flush is not interruptible: Ctrl-C may be delayed by this time."""


class Sender:
    """A producer that records failures."""

    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic
        self.count = 0
        self._place = ""
        """Of the first delivered record."""
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
        """Return a line with the number of delivered records, and the place of a single one.

        source: a text after the number, as ` of orders`.
        """
        done = (
            f"{verb} {counted(self.count, 'record')}{source} to {self._topic}{self._place if self.count == 1 else ''}."
        )
        return f"{done} {not_delivered(len(self.failures))}." if self.failures else done

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.failures.append(error.str())
        else:
            self.count += 1
            offset = message.offset()  # None with acks=0
            if self.count == 1 and offset is not None:
                self._place = f", partition {message.partition()}, offset {offset}"
