"""Suggests what a refused config may have meant: another key, milliseconds, or bytes."""

import re
from collections.abc import Iterable
from typing import Final

from kafkapy.cli.moments import MS_OF_UNIT, PART

SIZE: Final = re.compile(r"([0-9]{1,9}) ?([kmgt])(?:i?b)?", re.IGNORECASE)
BYTES_OF_UNIT: Final = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}


def hint(settings: Iterable[tuple[str, str | None]]) -> str:
    """Return a sentence after a space, "" without a guess. `settings`: (key, value) as they were given."""
    from kafkapy.cli.explained_keys import explained, similar

    for key, value in settings:
        if all(each.definition.key != key for each in explained(key)):
            return similar(key)
        duration = PART.fullmatch(value or "")
        if duration is not None and key.endswith(".ms"):
            return f" {key} is in milliseconds: {key}={int(duration[1]) * MS_OF_UNIT[duration[2]]}"
        size = SIZE.fullmatch(value or "")
        if size is not None and "bytes" in key.split("."):
            return f" {key} is in bytes: {key}={int(size[1]) * BYTES_OF_UNIT[size[2].lower()]}"
    return ""
