"""kafkapy beside Apache Kafka 4.4.0, with the same properties: both get the same requests."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import zip_longest
from typing import Any, TypeAlias

import pytest

from harness.servers import Kafkapy, Server
from tests.support.quick_kafka import QuickKafka

Told: TypeAlias = Sequence[tuple[str, Any]]
"""For each request: what it is about, and its response."""


@contextmanager
def both_brokers(directories: pytest.TempPathFactory, properties: dict[str, str]) -> Iterator[list[Server]]:
    """Yield kafkapy and Apache Kafka, running."""
    with ExitStack() as stack:
        yield [
            stack.enter_context(kind(directories.mktemp(kind.__name__) / "data", properties))
            for kind in (Kafkapy, QuickKafka)
        ]


def differing(ours: Told, javas: Told) -> list[tuple[Any, Any]]:
    """Return what differs: our request with its response, and Apache Kafka's."""
    return [(mine, its) for mine, its in zip_longest(ours, javas) if mine != its]
