"""Record: a record with its key and value decoded, by the decoders of the console and of `kafkapy consume`."""

import json
from collections.abc import Callable, Hashable
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import AUTO, BY_SCHEMA, Decoders, check_format
from kafkapy.decoders.registry import SchemaRegistry
from kafkapy.embedded.observed.waiting import ObservationError
from kafkapy.record.batch import Record as StoredRecord
from kafkapy.types import TopicPartition

MAX_SHOWN: Final = 120
"""Characters of a value in a message."""


@dataclass(slots=True, frozen=True)
class Record:
    """A record as consumers get it. `key`, `value`: decoded; `key_bytes`, `value_bytes`: as they were sent.

    `error`: why a key or value is not in the format that was asked for; it is then decoded as text.
    """

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]
    key_bytes: bytes | None
    value_bytes: bytes | None
    error: str | None = None

    def __str__(self) -> str:
        about = f"{self.topic}-{self.partition} @{self.offset}"
        headers = f", headers {_short(dict(self.headers))}" if self.headers else ""
        return f"{about}: key {_short(self.key)}, value {_short(self.value)}{headers}"


@dataclass(slots=True, frozen=True)
class Formats:
    """The formats of keys and values. `registry`: returns the URL of a schema registry, or a directory of schemas."""

    key: str = AUTO
    value: str = AUTO
    registry: Callable[[], str | None] = lambda: None

    def decoder(self) -> "RecordDecoder":
        """Return the decoder of these formats. Raises ObservationError for an unknown format."""
        location = self.registry()
        if location is None and (self.key in BY_SCHEMA or self.value in BY_SCHEMA):
            raise ObservationError(f"{self.key if self.key in BY_SCHEMA else self.value} needs a registry: its URL")
        try:
            return RecordDecoder(Decoders(self.key, self.value, None if location is None else SchemaRegistry(location)))
        except DecodeError as error:
            raise ObservationError(str(error)) from error


class RecordDecoder:
    def __init__(self, decoders: Decoders) -> None:
        self._decoders = decoders

    def decode(self, partition: TopicPartition, stored: StoredRecord) -> Record:
        key = self._decoders.key(partition.topic, stored.key)
        value = self._decoders.value(partition.topic, stored.key, stored.value)
        return Record(
            topic=partition.topic,
            partition=partition.partition,
            offset=stored.offset,
            timestamp_ms=stored.timestamp_ms,
            key=key.value,
            value=value.value,
            headers=stored.headers,
            key_bytes=stored.key,
            value_bytes=stored.value,
            error=key.error or value.error,
        )


def check_formats(*names: str) -> None:
    """Raise ObservationError for a format that does not exist."""
    try:
        for name in names:
            check_format(name)
    except DecodeError as error:
        raise ObservationError(str(error)) from error


def hashable(value: Any) -> Hashable:
    """Return a decoded key or value as something that a dict or a set takes: objects and arrays as their JSON."""
    return json.dumps(value, sort_keys=True) if isinstance(value, dict | list) else value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= MAX_SHOWN else f"{text[:MAX_SHOWN]}..."
