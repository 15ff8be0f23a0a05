"""Reads recordings of Apache Kafka's group coordinator (tools/record_share_groups.py, record_streams_groups.py)."""

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from kafkapy.group.decision import Client
from kafkapy.group.records import CoordinatorRecord, decode_record

CLIENT: Final = Client("client", "localhost/127.0.0.1")
"""Java's text of the loopback address, with which the scripts were recorded."""
GROUP: Final = "g"


def steps(golden: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield each operation with what came of it."""
    outcome: list[str] = []
    operation = ""
    for line in gzip.decompress(golden.read_bytes()).decode().splitlines():
        if line.startswith("  "):
            outcome.append(line.strip())
            continue
        if operation:
            yield operation, outcome
        operation, outcome = line, []
    yield operation, outcome


def sent_epoch(word: str, last: int) -> int:
    """Return the member epoch that a script means; `last` is the one that was answered last."""
    sent = {"=": last, "<": max(last - 1, 1), ">": last + 5}.get(word)
    return int(word) if sent is None else sent


def plain_record(text: str) -> Any:
    """Return a recorded record, "KEY VALUE", as plain values."""
    return plain(recorded(text))


def recorded(text: str) -> CoordinatorRecord:
    """Return a record from "KEY VALUE"."""
    key, _, value = text.partition(" ")
    record = decode_record(bytes.fromhex(key), bytes.fromhex(value) if value else None)
    assert record is not None
    return record


def plain(record: CoordinatorRecord) -> Any:
    """Return a record as plain values, its lists sorted: Kafka's are in the order of hash maps."""
    return record.key.NAME, _plain(record.key), None if record.value is None else _plain(record.value)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return sorted((_plain(each) for each in value), key=repr)
    if hasattr(value, "field_names"):
        return {name: _plain(getattr(value, name)) for name in value.field_names()}
    if hasattr(value, "__slots__"):
        return {name: _plain(getattr(value, name)) for name in value.__slots__}
    return value


def unordered(value: Any) -> Any:
    """Return JSON with its lists sorted, but for those of numbers: Kafka's are in the order of hash maps."""
    if isinstance(value, dict):
        return {name: unordered(each) for name, each in value.items()}
    if isinstance(value, list):
        items = [unordered(each) for each in value]
        return items if all(isinstance(each, int) for each in items) else sorted(items, key=repr)
    return value
