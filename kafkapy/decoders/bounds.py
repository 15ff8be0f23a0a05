"""Bounds on hostile data, checked before fastavro and msgpack get it: their C code has no bounds of its own.

A value whose schema refers to itself nests as deep as its bytes say, until the C stack ends. An array of nulls has
2^40 items in six bytes. MessagePack's arrays are allocated by the length that they claim.
"""

from collections.abc import Mapping
from typing import Any, Final

from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.zigzag import read_zigzag

MAX_DEPTH: Final = 64
"""How deep decoded values may be nested: json.dumps and templates walk them by recursion."""
MAX_SCHEMA_DEPTH: Final = 200
"""Well below the 1,000 calls at which Python's own parsers would fail."""
FREE_VALUES: Final = 100_000
VALUES_PER_BYTE: Final = 4
"""A value may have FREE_VALUES, and this many more for each of its bytes."""
MAX_DECIMAL_BYTES: Final = 1024
"""The time for a decimal number rises with the square of its length."""
LONG_BITS: Final = 70
FIXED_BYTES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}
KINDS: Final = frozenset(
    (*FIXED_BYTES, "int", "long", "bytes", "string", "fixed", "enum", "record", "error", "array", "map")
)
"""Never taken for the name of a schema, as fastavro does not."""


def check_schema_depth(schema: Any) -> None:
    """Raise DecodeError for a parsed JSON document nested deeper than MAX_SCHEMA_DEPTH."""
    level = [schema]
    for _ in range(MAX_SCHEMA_DEPTH):
        level = [item for each in level for item in _items(each)]
        if not level:
            return
    raise DecodeError(f"a schema nested deeper than {MAX_SCHEMA_DEPTH}")


def _items(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


class AvroBounds:
    """Walks one value by its schema without building it. `named`: the schemas by name, as fastavro parses them."""

    def __init__(self, named: Mapping[str, Any], data: bytes) -> None:
        self._named = named
        self._data = data
        self._position = 0
        self._values_left = FREE_VALUES + VALUES_PER_BYTE * len(data)

    def check(self, schema: Any, depth: int = 0) -> None:
        """Walk a value. Raises DecodeError if it is nested too deep, has too many values, or does not end."""
        self._values_left -= 1
        if self._values_left < 0:
            raise DecodeError("far more values than bytes")
        if depth > MAX_DEPTH:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
        kind, schema = self._resolved(schema)
        if kind in FIXED_BYTES:
            self._skip(FIXED_BYTES[kind])
        elif kind in ("int", "long"):
            self._long()
        elif kind in ("bytes", "string"):
            self._skip(_decimal_checked(schema, self._long()))
        elif kind == "fixed":
            self._skip(_decimal_checked(schema, schema["size"]))
        elif kind == "enum":
            self._index(len(schema["symbols"]))
        elif kind == "union":
            self.check(schema[self._index(len(schema))], depth)
        elif kind in ("record", "error"):
            for field in schema["fields"]:
                self.check(field["type"], depth + 1)
        else:
            self._blocks(schema["items"] if kind == "array" else schema["values"], depth, is_map=kind == "map")

    def _resolved(self, schema: Any) -> tuple[str, Any]:
        """Return the type's name, and the schema that has its fields."""
        for _ in range(MAX_SCHEMA_DEPTH):
            if isinstance(schema, list):
                return "union", schema
            kind = schema["type"] if isinstance(schema, dict) else schema
            if kind in KINDS:
                return kind, schema if isinstance(schema, dict) else {}
            if kind not in self._named:
                raise DecodeError(f"the unknown Avro type {kind}")
            schema = self._named[kind]
        raise DecodeError("an Avro type that does not end")

    def _blocks(self, item: Any, depth: int, *, is_map: bool) -> None:
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            for _ in range(count):
                if is_map:
                    self._skip(self._long())
                self.check(item, depth + 1)

    def _index(self, count: int) -> int:
        index = self._long()
        if not 0 <= index < count:
            raise DecodeError(f"no branch or symbol {index}")
        return index

    def _long(self) -> int:
        value, self._position = read_zigzag(self._data, self._position, LONG_BITS)
        return value

    def _skip(self, size: int) -> None:
        if not 0 <= size <= len(self._data) - self._position:
            raise DecodeError(f"{size} bytes, of which {len(self._data) - self._position} are there")
        self._position += size


def _decimal_checked(schema: Any, size: int) -> int:
    if schema.get("logicalType") == "decimal" and size > MAX_DECIMAL_BYTES:
        raise DecodeError(f"a decimal of {size} bytes")
    return size


# MessagePack's first bytes: how many bytes its length has, and how many bytes or values follow
_SCALARS: Final = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8, 0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}
_SCALARS_AND_EXTENSIONS: Final = (
    _SCALARS
    | {0xD0: 1, 0xD1: 2, 0xD2: 4, 0xD3: 8}
    | {0xD4 + power: 1 + (1 << power) for power in range(5)}
    | dict.fromkeys(range(0x80), 0)
    | dict.fromkeys(range(0xE0, 0x100), 0)
    | {0xA0 + size: size for size in range(32)}
)
_BYTES: Final = {0xC4: (1, 0), 0xC5: (2, 0), 0xC6: (4, 0), 0xC7: (1, 1), 0xC8: (2, 1), 0xC9: (4, 1)} | {
    0xD9: (1, 0),
    0xDA: (2, 0),
    0xDB: (4, 0),
}
"""Length's bytes, and the type's byte of an extension."""
_CONTAINERS: Final = {0xDC: (2, 1), 0xDD: (4, 1), 0xDE: (2, 2), 0xDF: (4, 2)}
"""Length's bytes, and the values of an item."""


def check_messagepack(data: bytes) -> None:
    """Raise DecodeError unless the data is one MessagePack value, with all that it claims, nested MAX_DEPTH at most."""
    # How many values each open container still has, the outermost first: a stack rather than recursion, whose depth
    # the data would decide.
    position, open_values = 0, [1]
    while open_values:
        if not open_values[-1]:
            open_values.pop()
            continue
        open_values[-1] -= 1
        if position >= len(data):
            raise DecodeError("not MessagePack: it ends too early")
        first = data[position]
        position += 1
        if first in _SCALARS_AND_EXTENSIONS:
            position += _SCALARS_AND_EXTENSIONS[first]
        elif first in _BYTES:
            width, more = _BYTES[first]
            position += width + more + int.from_bytes(data[position : position + width], "big")
        elif first < 0xA0:  # fixmap, whose entries are two values each, and fixarray
            open_values.append((first & 15) * (2 if first < 0x90 else 1))
        elif first in _CONTAINERS:
            width, each = _CONTAINERS[first]
            open_values.append(each * int.from_bytes(data[position : position + width], "big"))
            position += width
        else:
            raise DecodeError(f"not MessagePack: the byte {first:#x}")
        if len(open_values) > MAX_DEPTH + 1:
            raise DecodeError(f"nested deeper than {MAX_DEPTH}")
    if position != len(data):
        raise DecodeError("not MessagePack: it does not end where its bytes do")
