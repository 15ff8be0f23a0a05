"""Reads a search from a form's fields, each within its bounds."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from kafkapy.cli.group_offsets import ResetTarget
from kafkapy.console.brokers import BadRequest
from kafkapy.console.fields import choice, number
from kafkapy.console.search import MAX_LAST, MAX_ROWS, MAX_TEXT, Query
from kafkapy.types import INT64_MAX

MAX_NAME: Final = 249
"""Characters of a topic's name."""
MAX_STRING_BYTES: Final = 2**15 - 1
"""Bytes of a group's name or a transactional id: strings that are not compact have a length of 16 bits."""
MAX_PARTITIONS: Final = 1000
"""A form names them one by one; none means all of a topic."""
MAX_OFFSET: Final = INT64_MAX
MORE_FIELDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("json_path", "key", "header", "regex", "until", "partitions", "latest"), ""),
    "limit": "100",
    "key_format": "auto",
    "value_format": "auto",
    "isolation": "read_committed",
}
"""Fields that the page hides until one of them is used, and what they are without."""
BEGINS: Final = ("last", "beginning", "offset", "time", "positions")
ISOLATIONS: Final = ("read_committed", "read_uncommitted")


def query_of(fields: Mapping[str, str], *, is_live: bool = False) -> Query:
    """Read a query from the fields of its form. Raises BadRequest, which names the field."""
    begin = choice(fields, "from", BEGINS, BEGINS[0])
    return Query(
        topic=topic_name(fields),
        partitions=_partitions(fields.get("partitions", "")),
        begin=begin,
        value=_value(fields, begin),
        positions=_positions(fields.get("at", "")) if begin == "positions" else None,
        key=_text(fields, "key"),
        text=_text(fields, "text"),
        regex=_text(fields, "regex"),
        header=_text(fields, "header"),
        json_path=_text(fields, "json_path"),
        until_ms=_time(fields["until"].strip()) if fields.get("until", "").strip() else None,
        is_latest=not is_live and fields.get("latest") == "1",
        limit=number(fields, "limit", 100, 1, MAX_ROWS),
        key_format=fields.get("key_format") or "auto",
        value_format=fields.get("value_format") or "auto",
        isolation=choice(fields, "isolation", ISOLATIONS, ISOLATIONS[0]),
        is_live=is_live,
    )


def topic_name(fields: Mapping[str, str]) -> str:
    name = fields.get("name", "")
    if not 0 < len(name) <= MAX_NAME:
        raise BadRequest("The name of a topic has 1 to 249 characters.")
    return name


def group_name(fields: Mapping[str, str]) -> str:
    return _kafka_string(fields, "name", "The name of a group")


def transactional_id(fields: Mapping[str, str]) -> str:
    return _kafka_string(fields, "id", "A transactional id")


def _kafka_string(fields: Mapping[str, str], name: str, subject: str) -> str:
    """A longer string fits into no request: librdkafka would repeat one with a wrong length until its time-out."""
    text = fields.get(name, "")
    if not 0 < len(text.encode()) <= MAX_STRING_BYTES:
        raise BadRequest(f"{subject} has 1 to {MAX_STRING_BYTES} bytes.")
    return text


def _value(fields: Mapping[str, str], begin: str) -> int:
    if begin == "last":
        return number(fields, "count", 50, 1, MAX_LAST)
    if begin == "offset":
        return number(fields, "offset", 0, 0, MAX_OFFSET)
    return _time(fields.get("time", "").strip()) if begin == "time" else 0


def _time(text: str) -> int:
    """Return ms since the epoch: of a time as forms and ISO 8601 write it (without a zone: UTC), or -PT1H for ago."""
    if not text:
        return int((datetime.now(UTC) - timedelta(hours=1)).timestamp() * 1000)
    try:
        if text.startswith("-P"):
            return ResetTarget.parse(text).value
        time = datetime.fromisoformat(text)
        return round((time if time.tzinfo is not None else time.replace(tzinfo=UTC)).timestamp() * 1000)
    except (ValueError, OverflowError):
        raise BadRequest(f"time: {text[:MAX_TEXT]} is no time: 2026-01-31T12:00, or -PT1H for an hour ago.") from None


def _partitions(text: str) -> tuple[int, ...]:
    if not text.strip():
        return ()
    parts = text.split(",")
    if len(parts) > MAX_PARTITIONS or not all(part.strip().isdecimal() and len(part.strip()) < 10 for part in parts):
        raise BadRequest("partitions: numbers with commas between them.")
    return tuple(int(part) for part in parts)


def _positions(text: str) -> dict[int, int]:
    """Parse PARTITION:OFFSET,..., the position of a tail."""
    found = {}
    for part in text.split(",")[:MAX_PARTITIONS] if text else ():
        partition, _, offset = part.partition(":")
        if not (partition.isdecimal() and offset.isdecimal() and len(part) < 30):
            raise BadRequest("at: PARTITION:OFFSET,...")
        found[int(partition)] = int(offset)
    return found


def _text(fields: Mapping[str, str], name: str) -> str:
    text = fields.get(name, "")
    if len(text) > MAX_TEXT:
        raise BadRequest(f"{name}: at most {MAX_TEXT} characters.")
    return text
