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
from functools import lru_cache
from typing import Any, Final

from kafkapy.errors import ProtocolError
from kafkapy.protocol.element_budget import ElementBudget as ElementBudget
from kafkapy.protocol.message import COMPILED as COMPILED
from kafkapy.protocol.message import EMPTY as EMPTY
from kafkapy.protocol.message import EMPTY_STRUCT as EMPTY_STRUCT
from kafkapy.protocol.message import UNBOUNDED as UNBOUNDED
from kafkapy.protocol.message import Data as Data
from kafkapy.protocol.message import EncodeError as EncodeError
from kafkapy.protocol.message import Message as Message
from kafkapy.protocol.message import MessageStruct as MessageStruct
from kafkapy.protocol.message import Records as Records
from kafkapy.protocol.message import Writer as Writer
from kafkapy.protocol.message import new as new
from kafkapy.seams import FileRegion

ZERO_UUID: Final = bytes(16)
SPLICE_BYTES: Final = 16 * 1024
"""Records of at least this size are spliced, not copied: about where a copy costs more than an additional iovec."""
MAX_STRING_BYTES: Final = 0x7FFF
"""Kafka refuses longer strings in both directions, in the compact form too."""

_pack_int16: Final = struct.Struct(">h").pack
_pack_int32: Final = struct.Struct(">i").pack


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
        byte = data[position]
        if byte < 0x80:
            size = size & 0x7F | byte << 7
            position += 1
        else:
            size, position = uvarint_rest(data, position, size)
    if size <= 1:
        return nullable_records(data, position, size - 1)
    end = position + size - 1
    return memoryview(data)[position:end], end


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


@lru_cache(256)
def _counted_numbers(count: int, code: str) -> struct.Struct:
    return struct.Struct(f">B{count}{code}")


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
        tag, size = data[position], data[position + 1]
        if tag < 0x80 and size < 0x80:
            position += 2
        else:
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


def compact_ints(values: list[Any], code: str) -> bytes:
    """Return an array of fixed-size numbers with its compact count; `code` is their `struct` format."""
    count = len(values)
    if count < 0x7F:
        return _counted_numbers(count, code).pack(count + 1, *values)
    out = bytearray()
    write_uvarint(out, count + 1)
    write_ints(out, values, code)
    return bytes(out)


def write_tag_section(out: bytearray, tags: dict[int, bytes], unknown: dict[int, bytes] | None) -> None:
    """Append the tagged fields of a struct in increasing order of tag: the known ones, and the unknown ones as read.

    The known ones are in that order.
    """
    if unknown:
        if tags.keys() & unknown.keys():
            raise EncodeError(f"tags {sorted(tags.keys() & unknown.keys())} are known and unknown at once")
        tags = dict(sorted((tags | unknown).items()))
    write_uvarint(out, len(tags))
    for tag, value in tags.items():
        size = len(value)
        if tag < 0x80 and size < 0x80:
            out.append(tag)
            out.append(size)
        else:
            write_uvarint(out, tag)
            write_uvarint(out, size)
        out += value


def unwritable(field: str) -> EncodeError:
    """Return the error for a field that is set and not ignorable, but does not exist in the version."""
    return EncodeError(f"{field} is set, and this version has no such field")


def null_value(field: str) -> EncodeError:
    return EncodeError(f"{field} is null, which this version does not allow")
