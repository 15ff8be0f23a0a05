"""PEM as Apache Kafka reads it: blocks anywhere in a text; other text is ignored (KIP-651)."""

import base64
import re
from typing import Final

from kafkapy.named_tuple import NamedTuple

_BEGIN: Final = re.compile(r"-+BEGIN\s+([A-Z0-9][A-Z0-9 ]*?)\s*-+")
_LINE: Final = 64


class Block(NamedTuple):
    """A block: its kind (CERTIFICATE, PRIVATE KEY, ENCRYPTED PRIVATE KEY, ...), bytes, and text from BEGIN to END."""

    kind: str
    data: bytes
    text: str

    @property
    def is_key(self) -> bool:
        return self.kind.endswith("PRIVATE KEY")

    @property
    def is_encrypted(self) -> bool:
        return self.kind.startswith("ENCRYPTED") or "Proc-Type: 4,ENCRYPTED" in self.text


def blocks(text: str) -> list[Block]:
    """Return the blocks of a text. A block may be on one line, as in a property. Raises ValueError."""
    found: list[Block] = []
    position = 0
    while (begin := _BEGIN.search(text, position)) is not None:
        end = re.compile(rf"-+END\s+{begin[1]}\s*-+").search(text, begin.end())
        if end is None:
            raise ValueError(f"{begin[0]} has no end")
        lines = text[begin.end() : end.start()].splitlines()
        body = "".join("".join(line.split()) for line in lines if ":" not in line)
        found.append(Block(begin[1], base64.b64decode(body, validate=True), text[begin.start() : end.end()]))
        position = end.end()
    return found


def encode(kind: str, data: bytes) -> str:
    """Return a PEM block with these bytes."""
    body = base64.b64encode(data).decode()
    lines = [body[start : start + _LINE] for start in range(0, len(body), _LINE)]
    return "\n".join([f"-----BEGIN {kind}-----", *lines, f"-----END {kind}-----", ""])
