"""Hides fields of records' values: `--mask '$.card.number'`, or `--mask 'payments-*:$..iban'` for some topics only.

A masked field is replaced as soon as the value is decoded, so pages, downloads and searches have only the replacement.
In a topic with a mask a value that is not JSON is hidden as a whole, in every format. Keys are not masked.
"""

import fnmatch
import json
from collections.abc import Iterable
from typing import Any, Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.formats import Decoded, Decoders
from kafkapy.decoders.json_path import JsonPath

MASKED: Final = "•••"
HIDDEN: Final = "(hidden: a mask is set for this topic, and this is no JSON)"


@dataclass(frozen=True, slots=True)
class Mask:
    """One --mask. `topics`: the names of its topics, a pattern with * and ?."""

    topics: str
    path: JsonPath

    @classmethod
    def parse(cls, text: str) -> "Mask":
        """Return the mask that an option's text describes. Raises DecodeError, which names the option."""
        topics, colon, path = text.partition(":$")
        try:
            return cls(topics, JsonPath(f"${path}")) if colon else cls("*", JsonPath(text))
        except DecodeError as error:
            raise DecodeError(f"--mask: {error}") from error


class Masks:
    """The masks of the command line."""

    def __init__(self, texts: Iterable[str]) -> None:
        """Raises DecodeError."""
        self._masks = [Mask.parse(text) for text in texts]

    def paths_of(self, topic: str) -> list[JsonPath]:
        """Return the paths of the fields that are hidden in a topic's values."""
        return [each.path for each in self._masks if fnmatch.fnmatchcase(topic, each.topics)]


class MaskedDecoders:
    """Decodes keys and values like `decoders`, and replaces the fields of values that the paths select."""

    def __init__(self, decoders: Decoders, paths: list[JsonPath]) -> None:
        self._decoders = decoders
        self._paths = paths

    def key(self, topic: str, key: bytes | None) -> Decoded:
        return self._decoders.key(topic, key)

    def value(self, topic: str, key: bytes | None, value: bytes | None) -> Decoded:
        decoded = self._decoders.value(topic, key, value)
        found = decoded.value
        if found is None:
            return decoded
        try:
            if isinstance(found, str):
                found = json.loads(value or b"")
            if not isinstance(found, dict | list):
                return Decoded(HIDDEN, "masked")
            for path in self._paths:
                found = path.replaced(found, MASKED)
        except (ValueError, RecursionError):
            return Decoded(HIDDEN, "masked")
        return Decoded(found, decoded.format if not isinstance(decoded.value, str) else "json")


def shown_bytes(decoded: Any) -> bytes:
    """Return a masked value as the bytes of a record."""
    return (decoded if isinstance(decoded, str) else json.dumps(decoded)).encode("utf-8", "backslashreplace")
