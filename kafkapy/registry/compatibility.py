"""The seven levels of compatibility: the versions with which a new schema is compared, and in which direction."""

from collections.abc import Callable, Sequence
from typing import Any, Final

from kafkapy.registry.errors import InvalidSchemaError
from kafkapy.registry.formats.parsed import ParsedSchema, TooManyTypesError
from kafkapy.registry.model import Level

MAX_SHOWN: Final = 10 * 1024
"""A response has at most so many characters of the old schema."""
DIFFERENT_KINDS: Final = "Incompatible because of different schema type"


class Previous:
    """A version to compare with; parsed when needed."""

    def __init__(self, version: int, parse: Callable[[], ParsedSchema]) -> None:
        self.version = version
        self._parse = parse
        self._parsed: ParsedSchema | None = None

    @property
    def schema(self) -> ParsedSchema:
        if self._parsed is None:
            self._parsed = self._parse()
        return self._parsed


def incompatibilities(
    level: Level, new: ParsedSchema, previous: Sequence[Previous], *, lenient: bool = False
) -> list[str]:
    """Return why a schema may not follow others; `previous`: ascending by version. Empty if it may."""
    if level is Level.NONE:
        return []
    is_transitive = level.value.endswith("_TRANSITIVE")
    for each in reversed(previous if is_transitive else previous[-1:]):
        found = _between(level, new, each, lenient=lenient)
        if found:
            return found
    return []


def _between(level: Level, new: ParsedSchema, previous: Previous, *, lenient: bool) -> list[str]:
    old = previous.schema
    if old.kind != new.kind:
        return [DIFFERENT_KINDS]
    found: list[str] = []
    if level.value.startswith(("FORWARD", "FULL")):
        found += [_worded(each, "old", "new") for each in _errors(old, new, lenient)]
        if found and level.value.startswith("FORWARD"):
            return found + _old_schema(previous)
    if level.value.startswith(("BACKWARD", "FULL")):
        backward = [_worded(each, "new", "old") for each in _errors(new, old, lenient)]
        found += backward + (_old_schema(previous) if backward else [])
    return found


def _errors(reader: Any, writer: Any, lenient: bool) -> list[str]:
    try:
        found: list[str] = reader.backward_errors(writer, lenient=lenient)
    except TooManyTypesError as error:
        raise InvalidSchemaError(f"The schema and an earlier one cannot be compared: {error}") from error
    except RecursionError as error:
        text = "The schema and an earlier one cannot be compared: their types are nested too deeply"
        raise InvalidSchemaError(text) from error
    return found


def _worded(text: str, reader: str, writer: str) -> str:
    return text.replace("%s", reader, 1).replace("%s", writer, 1)


def _old_schema(previous: Previous) -> list[str]:
    text = previous.schema.canonical
    shown = f"'{text}'" if len(text) <= MAX_SHOWN else f"<truncated> '{text[:MAX_SHOWN]}...'"
    return [f"{{oldSchemaVersion: {previous.version}}}", f"{{oldSchema: {shown}}}"]
