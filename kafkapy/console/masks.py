"""Values of records that pages do not show: `--mask '$.card.number'`, or `--mask 'payments-*:$..iban'` of some topics.

What a mask selects is replaced before anything else sees it: what is shown, downloaded and searched. A value that is no
JSON is hidden as a whole, whatever format was asked for.
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
    """`topics`: a pattern with * and ?."""

    topics: str
    path: JsonPath

    @classmethod
    def parse(cls, text: str) -> "Mask":
        """Raises DecodeError, which names the option."""
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

    def of(self, topic: str) -> list[JsonPath]:
        return [each.path for each in self._masks if fnmatch.fnmatchcase(topic, each.topics)]


class MaskedDecoders:
    """Decoders whose values are masked."""

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
