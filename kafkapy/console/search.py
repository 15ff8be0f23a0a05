"""Searches the records of a topic up to its end, or follows it (a tail). Joins no group and commits nothing.

A search begins at the last N records, at an offset, at a time or at the beginning, and ends at the end that each
partition had when it began. Memory is bounded: rows, bytes of a row, and the records that librdkafka fetches ahead.
"""

import heapq
import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

from kafkapy.cli.client import confluent
from kafkapy.console.brokers import BadRequest, Brokers, ClusterError
from kafkapy.console.client import Clients, failures
from kafkapy.console.marks import Marks
from kafkapy.console.masks import HIDDEN, MaskedDecoders, Masks, shown_bytes
from kafkapy.console.row import Row, Shown
from kafkapy.console.settings import Settings
from kafkapy.console.topics import EARLIEST, LATEST, check_any_partition, offsets
from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import Decoded, Decoders
from kafkapy.decoders.json_path import JsonPath
from kafkapy.decoders.row import ConsumedRecord
from kafkapy.decoders.row import row_of as json_row

AnyDecoders: TypeAlias = Decoders | MaskedDecoders

MAX_ROWS: Final = 500
"""Rows of a page."""
MAX_LAST: Final = 100_000
"""The maximum of `last N`; for more there are searches from a time or an offset."""
MAX_TEXT: Final = 256
"""Characters of the searched text."""
MAX_DECODED_BYTES: Final = 1 << 20
"""Larger values are shown as bytes: decoding them in Python would hold up the search."""
MAX_SHOWN_CHARACTERS: Final = 8192
"""Characters of a key, value or header in a list."""
MAX_RECORD_CHARACTERS: Final = 1 << 18
"""Characters of a key, value or header on the page of one record."""
MAX_HEADERS: Final = 50
"""Headers of a record that are shown."""
MAX_LINE_CHARACTERS: Final = 1 << 16
"""Characters of a record as a JSON line, to download, copy or produce again; longer records have none."""
MAX_NAME_CHARACTERS: Final = 256
"""Characters of a header's name."""
STEP_BYTES: Final = 4 << 20
"""Memory of one step."""
STEP_MESSAGES: Final = 1000
"""Records that one step may match before progress is shown."""
STEP_S: Final = 0.25
"""The longest step: a stop, or a closed tab, is noticed only after it."""
MAX_DEEP_STEPS: Final = 3
"""Steps at any depth of a JSON path: each takes a second or more for a record of MAX_DECODED_BYTES."""
REGEX_MEMORY: Final = 8 << 20
MAX_REGEX_INSTRUCTIONS: Final = 2000
"""If RE2's automaton does not fit its memory, the time for a byte rises with the number of instructions."""


@dataclass(frozen=True, slots=True)
class Query:
    """`begin`: last, beginning, offset, time or positions; `value`: N, the offset, or ms since the epoch.

    `key`, `text`, `regex`, `header`, `json_path` and `until_ms` must all match; an empty one matches everything.
    `header`: NAME or NAME=VALUE. `until_ms`: the latest timestamp. `is_latest`: only the newest record of each key.
    `has_marks`: whether read_uncommitted marks the records of aborted and open transactions, which reads them twice.
    """

    topic: str
    partitions: tuple[int, ...] = ()
    begin: str = "last"
    value: int = 50
    positions: Mapping[int, int] | None = None
    key: str = ""
    text: str = ""
    regex: str = ""
    header: str = ""
    json_path: str = ""
    until_ms: int | None = None
    is_latest: bool = False
    limit: int = MAX_ROWS
    key_format: str = "auto"
    value_format: str = "auto"
    isolation: str = "read_committed"
    has_marks: bool = True
    is_live: bool = False
    max_characters: int = MAX_SHOWN_CHARACTERS


@dataclass(frozen=True, slots=True)
class Step:
    """The result of one step of a search; `skipped`: matching records that were not shown, as too many came at once."""

    rows: list[Row]
    skipped: int
    is_done: bool
    problem: str | None = None


class Search:
    """One search or tail: start(), step() until it is done, close(). Methods block: they run in a thread.

    A search reads each partition up to the end that it had at the start; a live one (a tail) goes on from there.
    """

    def __init__(self, query: Query, clients: Clients, brokers: Brokers, settings: Settings) -> None:
        """`settings`: registry and masks. Raises BadRequest for a query that cannot be."""
        self.query = query
        self._clients = clients
        self._brokers = brokers
        try:
            decoders = Decoders(query.key_format, query.value_format, settings.registry)
        except DecodeError as error:
            raise BadRequest(str(error)) from error
        masks = Masks(settings.masks).paths_of(query.topic)
        self._decoders: AnyDecoders = MaskedDecoders(decoders, masks) if masks else decoders
        self._matches = matcher(query, self._decoders)
        self._consumer: Any = None
        self._ends: dict[int, int] = {}
        """The end of each partition at the start."""
        self._open: set[int] = set()
        """Partitions that are not read to their ends yet."""
        self._last: list[tuple[int, int, int, Row]] = []
        """For a search for the newest matches: a heap of them, the oldest first."""
        self._latest: dict[bytes | None, Any] = {}
        """For a search for the latest record of each key: these records, by key."""
        has_marks = query.has_marks and query.isolation == "read_uncommitted"
        self._marks = Marks(brokers, clients, query.topic) if has_marks else None
        self.has_more_keys = False
        self._mean_bytes = 1000.0
        """A moving average of record sizes: a step asks for as many records as have STEP_BYTES together."""
        self._shown = 0
        self.positions: dict[int, int] = {}
        self.scanned = 0
        self.matched = 0
        self.total = 0

    def start(self) -> None:
        """Find where partitions start and end, and assign the consumer. Raises ClusterError, NotFound."""
        topic = self._brokers.topic(self.query.topic)
        if self.query.partitions:
            check_any_partition(topic, self.query.partitions)
        starts, ends = offsets(self._brokers, [topic], EARLIEST), offsets(self._brokers, [topic], LATEST)
        at_time = {}
        if self.query.begin == "time":
            at_time = offsets(self._brokers, [topic], max(0, self.query.value))
        for each, start in starts.items():
            if each not in ends or (self.query.partitions and each.partition not in self.query.partitions):
                continue
            end = ends[each]
            self.positions[each.partition] = self._begin(each.partition, start, end, at_time.get(each, -1))
            self._ends[each.partition] = end
        if not self.positions:
            raise ClusterError("None of the partitions has a leader that answers.")
        self.total = sum(end - self.positions[each] for each, end in self._ends.items())
        self._open = {each for each, end in self._ends.items() if self.query.is_live or self.positions[each] < end}
        kafka = confluent()
        if self._marks is not None:
            self._marks.start(topic)
        with failures():
            self._consumer = self._clients.consumer(self.query.isolation)
            self._consumer.assign(
                [kafka.TopicPartition(self.query.topic, each, self.positions[each]) for each in sorted(self._open)]
            )

    def _begin(self, partition: int, start: int, end: int, at_time: int) -> int:
        query = self.query
        if query.begin == "positions":
            begin = (query.positions or {}).get(partition, end)
        elif query.begin == "last":
            begin = end - query.value
        elif query.begin == "time":
            begin = end if at_time < 0 else at_time
        else:
            begin = query.value if query.begin == "offset" else start
        return min(max(start, begin), end)

    def step(self) -> Step:
        """Read for at most STEP_S and return what matches. Raises ClusterError."""
        if not self._open:
            return self._finish()
        count = int(min(STEP_MESSAGES, max(1, STEP_BYTES // self._mean_bytes)))
        with failures():
            messages = self._consumer.consume(count, STEP_S)
        found, problem = [], None
        for message in messages:
            if message.error() is not None:
                problem = self._end_or_problem(message) or problem
            elif self._read(message):
                found.append(message)
        # The newest records, and the latest of each key, are known at the end only: until then no rows are shown.
        if self.query.is_latest:
            self._keep_latest(found)
            return Step([], 0, False, problem) if self._open else self._finish()
        if self.query.begin == "last" and not self.query.is_live:
            self._keep_last(found)
            return Step([], 0, False, problem) if self._open else self._finish()
        room = min(MAX_ROWS, self.query.limit if self.query.is_live else self.query.limit - self._shown)
        shown = found[-room:] if self.query.is_live else found[:room]
        self._shown += len(shown)
        is_full = not self.query.is_live and self._shown >= self.query.limit
        rows = self._marked([self._row_of(each) for each in shown])
        return Step(rows, len(found) - len(rows), is_full or not self._open, problem)

    def close(self) -> None:
        if self._marks is not None:
            self._marks.close()
        if self._consumer is not None:
            self._consumer.close()

    def _end_or_problem(self, message: Any) -> str | None:
        error = message.error()
        if error.code() != confluent().KafkaError._PARTITION_EOF:
            return str(error.str())
        if not self.query.is_live:
            self._open.discard(message.partition())
        return None

    def _read(self, message: Any) -> bool:
        """Record the position and the counts of a record; return whether it matches."""
        partition, offset = message.partition(), message.offset()
        if partition not in self._open:
            return False
        self._mean_bytes += 0.05 * (len(message.value() or b"") + len(message.key() or b"") + 100 - self._mean_bytes)
        if not self.query.is_live and offset >= self._ends[partition]:
            self._open.discard(partition)
            return False
        self.positions[partition] = offset + 1
        self.scanned += 1
        if not self.query.is_live and offset + 1 >= self._ends[partition]:
            self._open.discard(partition)
        is_match = self._matches(message)
        self.matched += is_match
        return is_match

    def _keep_last(self, messages: list[Any]) -> None:
        """Keep the newest matches; only these are decoded."""
        for message in messages:
            place = _place(message)
            if len(self._last) < self.query.limit:
                heapq.heappush(self._last, (*place, self._row_of(message)))
            elif place > self._last[0][:3]:
                heapq.heapreplace(self._last, (*place, self._row_of(message)))

    def _keep_latest(self, messages: list[Any]) -> None:
        """Keep the newest record of each key, of `limit` keys at most."""
        for message in messages:
            key = message.key()
            if key in self._latest or len(self._latest) < self.query.limit:
                before = self._latest.get(key)
                if before is None or _place(message) >= _place(before):
                    self._latest[key] = message
            else:
                self.has_more_keys = True

    def _finish(self) -> Step:
        rows = [entry[-1] for entry in sorted(self._last, key=lambda entry: entry[:3], reverse=True)]
        latest = sorted(self._latest.items(), key=lambda entry: entry[0] or b"")
        rows += [self._row_of(each) for _, each in latest]
        self._last, self._latest = [], {}
        return Step(self._marked(rows), 0, True)

    def _row_of(self, message: Any) -> Row:
        return row_of(message, self._decoders, self.query.max_characters)

    def _marked(self, rows: list[Row]) -> list[Row]:
        return rows if self._marks is None else self._marks.marked(rows)


def _place(message: Any) -> tuple[int, int, int]:
    return message.timestamp()[1], message.partition(), message.offset()


def row_of(message: Any, decoders: AnyDecoders, most: int) -> Row:
    topic, key, value = message.topic(), message.key(), message.value()
    kind, timestamp_ms = message.timestamp()
    shown_key, of_key = _shown(key, lambda: decoders.key(topic, key), most)
    is_masked = isinstance(decoders, MaskedDecoders)
    sent = value
    shown_value, of_value = _shown(value, lambda: decoders.value(topic, key, sent), most, is_masked=is_masked)
    line = ""
    if of_key is not None and of_value is not None and len(key or b"") + len(value or b"") < MAX_LINE_CHARACTERS:
        place = topic, message.partition(), message.offset(), timestamp_ms
        if is_masked and value is not None:
            value = shown_bytes(of_value.value)
        line = _line(ConsumedRecord(*place, key, value, _headers(message)), of_key, of_value)
    return Row(
        topic=topic,
        partition=message.partition(),
        offset=message.offset(),
        timestamp_ms=timestamp_ms if kind else None,
        key=shown_key,
        value=shown_value,
        headers=tuple(_shown_headers(_headers(message)[:MAX_HEADERS], most)),
        line=line,
        is_masked=is_masked,
    )


def _line(record: ConsumedRecord, key: Decoded, value: Decoded) -> str:
    """Return a record as JSON that restores it; what JSON cannot hold, half of a surrogate pair, is escaped."""
    line = json.dumps(json_row(record, key, value), ensure_ascii=True)
    return line if len(line) <= MAX_LINE_CHARACTERS else ""


def _shown_headers(headers: list[tuple[str, bytes | None]], most: int) -> Iterator[tuple[str, str | None]]:
    """Yield the headers; their values have `most` characters in all."""
    for name, value in headers:
        shown = None if value is None else _cut(_text(value), most)
        most -= len(shown or "")
        yield name[:MAX_NAME_CHARACTERS], shown


def matcher(query: Query, decoders: AnyDecoders) -> Callable[[Any], bool]:
    """Return a predicate: does a message match? Raises BadRequest for a broken regular expression.

    Text and regular expressions are searched in the bytes of key and value, and in the decoded value where the format
    is not text.
    """
    key, text = query.key.encode(), query.text.encode()
    header, equals, header_value = query.header.partition("=")
    pattern = _pattern(query.regex)
    path = _path(query.json_path)
    is_plain = not isinstance(decoders, MaskedDecoders) and query.value_format in ("auto", "text", "json")

    def matches(message: Any) -> bool:
        if key and message.key() != key and not _is_shown_as(decoders, message, query.key):
            return False
        if query.until_ms is not None and message.timestamp()[1] > query.until_ms:
            return False
        if header and not _has_header(message, header, header_value.encode() if equals else None):
            return False
        if path is not None and not _meets(path, message, decoders):
            return False
        if not text and pattern is None:
            return True
        found = (message.key() or b"") + b"\n" + _looked_through(message, is_plain, decoders)
        return text in found and (pattern is None or pattern.search(found) is not None)

    return matches


def _path(text: str) -> JsonPath | None:
    """Read the JSON path of a search, None without one. Raises BadRequest."""
    if not text:
        return None
    try:
        path = JsonPath(text, lambda pattern: _pattern(pattern, is_text=True))
    except DecodeError as error:
        raise BadRequest(f"JSON path: {error}") from error
    if path.deep_count > MAX_DEEP_STEPS:
        raise BadRequest(f"JSON path: at most {MAX_DEEP_STEPS} steps with `..`.")
    return path


def _meets(path: JsonPath, message: Any, decoders: AnyDecoders) -> bool:
    value = message.value()
    if value is None or len(value) > MAX_DECODED_BYTES:
        return False
    decoded = decoders.value(message.topic(), message.key(), value)
    if not isinstance(decoded.value, str):
        return path.is_met(decoded.value)
    try:
        return decoded.format == "text" and path.is_met(json.loads(decoded.value))
    except (ValueError, RecursionError):
        return False


def _looked_through(message: Any, is_plain: bool, decoders: AnyDecoders) -> bytes:
    value = message.value() or b""
    if len(value) > MAX_DECODED_BYTES and isinstance(decoders, MaskedDecoders):
        return b""
    if is_plain or not value or len(value) > MAX_DECODED_BYTES:
        return bytes(value)
    decoded = decoders.value(message.topic(), message.key(), value).value
    return decoded.encode("utf-8", "replace") if isinstance(decoded, str) else json.dumps(decoded).encode()


def _is_shown_as(decoders: AnyDecoders, message: Any, text: str) -> bool:
    if message.key() is None or len(message.key()) > MAX_DECODED_BYTES:
        return False
    shown = decoders.key(message.topic(), message.key()).value
    return (shown if isinstance(shown, str) else json.dumps(shown)) == text


def _has_header(message: Any, name: str, value: bytes | None) -> bool:
    return any(each == name and (value is None or found == value) for each, found in _headers(message))


def _headers(message: Any) -> list[tuple[str, bytes | None]]:
    try:
        return message.headers() or []
    except UnicodeDecodeError:  # Kafka's clients write UTF-8, but other bytes are possible
        return [("(names that are not UTF-8)", None)]


def _pattern(text: str, *, is_text: bool = False) -> Any:
    """Return a pattern of RE2 for bytes, or for text. Raises BadRequest."""
    if not text:
        return None
    try:
        import re2
    except ImportError:
        raise BadRequest("A search by a regular expression needs google-re2, which is not installed here.") from None
    options = re2.Options()
    options.max_mem = REGEX_MEMORY
    options.log_errors = False
    try:
        pattern = re2.compile(text if is_text else text.encode(), options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise BadRequest(f"The regular expression is broken: {text}") from error
    if pattern.programsize > MAX_REGEX_INSTRUCTIONS:
        raise BadRequest("The regular expression is too large: repeat less in it.")
    return pattern


def _shown(
    data: bytes | None, decode: Callable[[], Decoded], most: int, *, is_masked: bool = False
) -> tuple[Shown, Decoded | None]:
    """Return the shown text of a key or value, and its decoded form: None if it is too large for that."""
    if data is None:
        return Shown(None, "null", None, False, 0), Decoded(None, "null")
    if len(data) > MAX_DECODED_BYTES:
        return Shown(HIDDEN if is_masked else _text(data[:most]), "text", None, True, len(data)), None
    decoded = decode()
    value, used, error = decoded
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return Shown(_cut(text, most), used, error, len(text) > most, len(data)), decoded


def _text(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _cut(text: str, most: int) -> str:
    """Return the shown part of a text, without halves of surrogate pairs (possible in JSON), which cannot be sent."""
    return text[:most].encode("utf-8", "backslashreplace").decode()
