"""Kafka's primitive types on the wire: the functions that the generated codecs in `messages/` call.

Reading: the generated code reads fixed-size fields, together with the first byte or bytes of the length that follows,
in one `struct` call. A function here therefore takes the start of the length as its `size` or `count` argument, and the
position after it. Memory is never allocated for a length that the data does not contain: a slice ends at the end of its
buffer, and a count is compared with the remaining bytes. A truncated value leaves a position past the end of the
buffer, at which every later read fails; `Message.read` turns all these failures into ProtocolError.

Writing appends to a `Writer`; large `records` values and file regions are not copied but spliced in.

Source: https://kafka.apache.org/protocol#protocol_types, KIP-482 (compact types and tagged fields).
"""

import struct
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, ClassVar, Final, Protocol, TypeAlias, TypeVar, cast

from kafkapy.errors import ProtocolError
from kafkapy.seams import FileRegion

Data: TypeAlias = bytes | memoryview
Records: TypeAlias = memoryview | bytes | FileRegion | None
NewT = TypeVar("NewT")

ZERO_UUID: Final = bytes(16)
SPLICE_BYTES: Final = 16 * 1024
"""Records of at least this size are spliced, not copied: about where a copy costs more than an additional iovec."""
MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka refuses longer strings in both directions, in the compact form too."""

UNBOUNDED: Final = 1 << 62
"""No bound on the elements of a message; for messages not sent by clients, such as records and received responses."""

EMPTY: Final[Any] = object()
"""Default of constructor arguments that means a new empty list or a new struct."""


class _New(Protocol):
    def __call__(self, cls: type[NewT], /) -> NewT: ...


new = cast(_New, object.__new__)
"""Creates an instance without calling its constructor: the readers set every field themselves, a third faster."""

_pack_int16 = struct.Struct(">h").pack
_pack_int32 = struct.Struct(">i").pack


class EncodeError(ProtocolError):
    """The version cannot represent the message, or a field's type cannot hold its value; the output is unusable."""


class MessageStruct:
    """Base class of the generated classes: equality and repr of all slots."""

    __slots__: tuple[str, ...] = ()

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


class Message(MessageStruct):
    """Base class of the generated top-level classes: requests, responses, headers, records and values."""

    __slots__ = ()

    NAME: ClassVar[str]
    API_KEY: ClassVar[int]
    MIN_VERSION: ClassVar[int]
    MAX_VERSION: ClassVar[int]
    FLEXIBLE_FROM: ClassVar[int]
    READERS: ClassVar[Mapping[int, Callable[[Data, int, "ElementBudget"], tuple[Any, int]]]]
    WRITERS: ClassVar[Mapping[int, Callable[["Writer", Any], None]]]

    @classmethod
    def read(
        cls: type["MessageT"], data: Data, position: int, version: int, max_elements: int = UNBOUNDED
    ) -> tuple["MessageT", int]:
        """Read a message of `version` at `position`; return it and the position after it.

        max_elements: the maximum total of its array entries and tagged fields. Raises ProtocolError.
        """
        reader = cls.READERS.get(version)
        if reader is None:
            raise ProtocolError(f"{cls.NAME} has no version {version}")
        try:
            message, end = reader(data, position, ElementBudget(max_elements))
        except (IndexError, struct.error) as error:
            raise ProtocolError(f"{cls.NAME} v{version} is cut short: {error}") from error
        except UnicodeDecodeError as error:
            raise ProtocolError(f"{cls.NAME} v{version} holds a string that is not UTF-8: {error}") from error
        except ProtocolError as error:
            raise ProtocolError(f"{cls.NAME} v{version}: {error}") from error
        if end > len(data):
            raise ProtocolError(f"{cls.NAME} v{version} is cut short: needs {end} bytes, has {len(data)}")
        return message, end

    @classmethod
    def decode(cls: type["MessageT"], data: Data, version: int) -> "MessageT":
        """Read a message that fills the whole buffer. Raises ProtocolError, also when bytes are left over."""
        message, end = cls.read(data, 0, version)
        if end != len(data):
            raise ProtocolError(f"{cls.NAME} v{version} ends at byte {end} of {len(data)}")
        return message

    def write(self, out: "Writer", version: int) -> None:
        """Append the message to `out` in the format of `version`. Raises EncodeError."""
        writer = self.WRITERS.get(version)
        if writer is None:
            raise EncodeError(f"{self.NAME} has no version {version}")
        try:
            writer(out, self)
        except EncodeError as error:
            raise EncodeError(f"{self.NAME} v{version}: {error}") from error
        except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
            # Raised by the generated code for a null, an int out of range or a lone surrogate.
            raise EncodeError(f"{self.NAME} v{version} has a value that its field cannot hold: {error}") from error

    def encode(self, version: int) -> bytes:
        """Return the bytes of the message, including spliced records. Raises EncodeError."""
        out = Writer()
        self.write(out, version)
        return out.joined()


MessageT = TypeVar("MessageT", bound=Message)


class Writer(bytearray):
    """The growing bytes of a frame, and the record payloads to insert between them.

    `splices` holds (position in this bytearray, payload) in increasing order. The frame is the bytearray with each
    payload inserted at its position; positions do not count inserted payloads.
    """

    __slots__ = ("splices",)

    def __init__(self) -> None:  # an empty bytearray needs no super().__init__(), which takes 150 ns
        self.splices: list[tuple[int, FileRegion | bytes | memoryview]] = []

    @property
    def wire_length(self) -> int:
        """The length of the frame, including all payloads."""
        return len(self) + sum(len(payload) for _, payload in self.splices)

    def joined(self) -> bytes:
        """Return the whole frame; reads file regions (may block)."""
        if not self.splices:
            return bytes(self)
        pieces: list[bytes | memoryview] = []
        start = 0
        for position, payload in self.splices:
            pieces.append(bytes(self[start:position]))
            pieces.append(payload.read() if isinstance(payload, FileRegion) else payload)
            start = position
        pieces.append(bytes(self[start:]))
        return b"".join(pieces)


# Reading.


def uvarint_rest(data: Data, position: int, first: int) -> tuple[int, int]:
    """Return an unsigned varint whose first byte `first` has its high bit set, and the position after it."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFF, position
    raise ProtocolError("unsigned varint is longer than 5 bytes")


def read_uvarint(data: Data, position: int) -> tuple[int, int]:
    """Return the unsigned varint at `position`, at most 5 bytes long, and the position after it."""
    first = data[position]
    if first < 0x80:
        return first, position + 1
    return uvarint_rest(data, position + 1, first)


def string(data: Data, position: int, size: int) -> tuple[str, int]:
    if size < 0:
        raise null_or_negative(size)
    end = position + size
    return str(data[position:end], "utf-8"), end


def nullable_string(data: Data, position: int, size: int) -> tuple[str | None, int]:
    if size == -1:
        return None, position
    return string(data, position, size)


def compact_string(data: Data, position: int, size: int) -> tuple[str, int]:
    if size > 0x7F:
        size, position = uvarint_rest(data, position, size)
        if size > MAX_STRING_BYTES + 1:
            raise ProtocolError(f"string of {size - 1} bytes")
    if size == 0:
        raise null_or_negative(-1)
    end = position + size - 1
    return str(data[position:end], "utf-8"), end


def compact_nullable_string(data: Data, position: int, size: int) -> tuple[str | None, int]:
    if size == 0:
        return None, position
    if size > 0x7F:
        length, end = uvarint_rest(data, position, size)
        if length == 0:  # a zero encoded in more bytes than necessary
            return None, end
    return compact_string(data, position, size)


def byte_string(data: Data, position: int, size: int) -> tuple[bytes, int]:
    if size < 0:
        raise null_or_negative(size)
    end = position + size
    return bytes(data[position:end]), end


def nullable_byte_string(data: Data, position: int, size: int) -> tuple[bytes | None, int]:
    if size == -1:
        return None, position
    return byte_string(data, position, size)


def compact_byte_string(data: Data, position: int, size: int) -> tuple[bytes, int]:
    if size > 0x7F:
        size, position = uvarint_rest(data, position, size)
    return byte_string(data, position, size - 1)


def compact_nullable_byte_string(data: Data, position: int, size: int) -> tuple[bytes | None, int]:
    if size > 0x7F:
        size, position = uvarint_rest(data, position, size)
    return nullable_byte_string(data, position, size - 1)


def records(data: Data, position: int, size: int) -> tuple[Records, int]:
    """Return a view of the record batches, valid as long as `data`."""
    if size < 0:
        raise null_or_negative(size)
    end = position + size
    return memoryview(data)[position:end], end


def nullable_records(data: Data, position: int, size: int) -> tuple[Records, int]:
    if size == -1:
        return None, position
    return records(data, position, size)


def compact_records(data: Data, position: int, size: int) -> tuple[Records, int]:
    if size > 0x7F:
        size, position = uvarint_rest(data, position, size)
    return records(data, position, size - 1)


def compact_nullable_records(data: Data, position: int, size: int) -> tuple[Records, int]:
    if size > 0x7F:
        size, position = uvarint_rest(data, position, size)
    return nullable_records(data, position, size - 1)


class ElementBudget:
    """The remaining number of elements (array entries and tagged fields) that one message may have.

    Each element costs time and memory even if it takes a single byte, like an empty string. An array's count is
    subtracted before its first element is read, so that a message with too many is refused before they cost anything.
    """

    __slots__ = ("left",)

    def __init__(self, most: int) -> None:
        self.left = most

    def exceeded(self, count: int) -> ProtocolError:
        """Return the error for `count` elements, which have already been subtracted."""
        return ProtocolError(f"{count} more array entries or tagged fields, where {self.left + count} more are allowed")


def check_count(data: Data, position: int, count: int, element_bytes: int, budget: ElementBudget) -> None:
    """Subtract `count` from the budget. Raises ProtocolError if it exceeds the budget or the rest of `data`.

    Each element takes at least `element_bytes`.
    """
    if count * element_bytes > len(data) - position or count < 0:
        if count < 0:
            raise null_or_negative(count)
        raise ProtocolError(f"array of {count} elements in {max(0, len(data) - position)} bytes")
    budget.left -= count
    if budget.left < 0:
        raise budget.exceeded(count)


def compact_count(data: Data, position: int, count: int, element_bytes: int, budget: ElementBudget) -> tuple[int, int]:
    """Return a compact array's count, checked like check_count, and the position after it. `count`: its first byte."""
    if count > 0x7F:
        count, position = uvarint_rest(data, position, count)
    elif count == 1:
        return 0, position
    count -= 1
    if count * element_bytes > len(data) - position or count < 0 or count > budget.left:
        check_count(data, position, count, element_bytes, budget)
    budget.left -= count
    return count, position


@lru_cache(256)
def _numbers(count: int, code: str) -> struct.Struct:
    return struct.Struct(f">{count}{code}")


def int_list(data: Data, position: int, count: int, code: str) -> list[Any]:
    """Return `count` fixed-size numbers; `code` is their `struct` format."""
    return list(_numbers(count, code).unpack_from(data, position))


def uuid_list(data: Data, position: int, count: int) -> list[bytes]:
    return [bytes(data[start : start + 16]) for start in range(position, position + 16 * count, 16)]


def tag_section(data: Data, position: int, count: int, budget: ElementBudget) -> tuple[dict[int, bytes] | None, int]:
    """Return the tagged fields of a struct by tag, unparsed, and the position after them.

    `count` is the section's first byte. Duplicate tags are refused; their order is not checked, as in Kafka.
    """
    if count > 0x7F:
        count, position = uvarint_rest(data, position, count)
    if count * 2 > len(data) - position:
        raise ProtocolError(f"{count} tagged fields in {max(0, len(data) - position)} bytes")
    budget.left -= count
    if budget.left < 0:
        raise budget.exceeded(count)
    tags: dict[int, bytes] = {}
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if end > len(data) or tag in tags:
            raise ProtocolError(f"tagged field {tag} is cut short or given twice")
        tags[tag] = bytes(data[position:end])
        position = end
    return tags or None, position


def check_tag_end(tag: int, value: bytes, end: int) -> None:
    """Raise ProtocolError unless a known tagged field was exactly as long as its size."""
    if end != len(value):
        raise ProtocolError(f"tagged field {tag} of {len(value)} bytes ends at byte {end}")


def null_or_negative(size: int) -> ProtocolError:
    return ProtocolError("null where the schema allows none" if size == -1 else f"negative length {size}")


# Writing.


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


def write_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    out += _pack_int16(len(raw))
    out += raw


def write_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out += b"\xff\xff"
    else:
        write_string(out, value)


def write_compact_string(out: bytearray, value: str) -> None:
    raw = value.encode()
    size = len(raw) + 1
    if size < 0x80:
        out.append(size)
    elif size > MAX_STRING_BYTES + 1:
        raise EncodeError(f"string of {size - 1} bytes")
    else:
        write_uvarint(out, size)
    out += raw


def write_compact_nullable_string(out: bytearray, value: str | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_string(out, value)


def write_byte_string(out: bytearray, value: bytes) -> None:
    out += _pack_int32(len(value))
    out += value


def write_nullable_byte_string(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_byte_string(out, value)


def write_compact_byte_string(out: bytearray, value: bytes) -> None:
    write_uvarint(out, len(value) + 1)
    out += value


def write_compact_nullable_byte_string(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_byte_string(out, value)


def write_records(out: Writer, value: Records) -> None:
    if value is None:
        raise EncodeError("null records where the schema allows none")
    out += _pack_int32(len(value))
    _splice(out, value)


def write_nullable_records(out: Writer, value: Records) -> None:
    if value is None:
        out += b"\xff\xff\xff\xff"
    else:
        write_records(out, value)


def write_compact_records(out: Writer, value: Records) -> None:
    if value is None:
        raise EncodeError("null records where the schema allows none")
    write_uvarint(out, len(value) + 1)
    _splice(out, value)


def write_compact_nullable_records(out: Writer, value: Records) -> None:
    if value is None:
        out.append(0)
    else:
        write_compact_records(out, value)


def _splice(out: Writer, value: FileRegion | bytes | memoryview) -> None:
    if isinstance(value, FileRegion) or len(value) >= SPLICE_BYTES:
        out.splices.append((len(out), value))
    else:
        out += value


def write_ints(out: bytearray, values: list[Any], code: str) -> None:
    """Append fixed-size numbers; `code` is their `struct` format."""
    out += _numbers(len(values), code).pack(*values)


def write_tag_section(out: bytearray, tags: dict[int, bytes], unknown: dict[int, bytes] | None) -> None:
    """Append the tagged fields of a struct in increasing order of tag: the known ones, and the unknown ones as read."""
    if unknown:
        if tags.keys() & unknown.keys():
            raise EncodeError(f"tags {sorted(tags.keys() & unknown.keys())} are known and unknown at once")
        tags = tags | unknown
    write_uvarint(out, len(tags))
    for tag in sorted(tags):
        value = tags[tag]
        write_uvarint(out, tag)
        write_uvarint(out, len(value))
        out += value


def unwritable(field: str) -> EncodeError:
    """Return the error for a field that is set and not ignorable, but does not exist in the version."""
    return EncodeError(f"{field} is set, and this version has no such field")


def null_value(field: str) -> EncodeError:
    return EncodeError(f"{field} is null, which this version does not allow")
