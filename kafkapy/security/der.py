"""DER (X.690): a parser for certificates, names and private keys, and an encoder of elements.

An element is a tag byte, a length and the content. Tags of several bytes and indefinite lengths do not occur in DER
certificates and are refused. Damaged input raises only DerError.
"""

from collections.abc import Iterator
from typing import Final

from kafkapy.named_tuple import NamedTuple

BOOLEAN: Final = 0x01
INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
NULL: Final = 0x05
OBJECT_IDENTIFIER: Final = 0x06
UTF8_STRING: Final = 0x0C
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
SEQUENCE: Final = 0x30
SET: Final = 0x31


class DerError(ValueError):
    """The bytes are not valid DER, or not of the expected structure."""


class Element(NamedTuple):
    """One element: its tag byte, its content, and its whole encoding."""

    tag: int
    content: bytes
    encoded: bytes


def read_one(data: bytes) -> Element:
    """Return the element that fills all of `data`."""
    element, end = _read(data, 0)
    if end != len(data):
        raise DerError(f"{len(data) - end} bytes follow the element")
    return element


def read_all(data: bytes) -> Iterator[Element]:
    """Yield the consecutive elements in `data`."""
    position = 0
    while position < len(data):
        element, position = _read(data, position)
        yield element


def children(element: Element, tag: int = SEQUENCE) -> list[Element]:
    """Return the elements within an element, which must have this tag."""
    expect(element, tag)
    return list(read_all(element.content))


def fixed(element: Element, count: int) -> list[Element]:
    """Return the elements of a SEQUENCE, which must have `count` of them."""
    found = children(element)
    if len(found) != count:
        raise DerError(f"{len(found)} elements stand where {count} should")
    return found


def expect(element: Element, tag: int) -> bytes:
    """Return the content of an element, which must have this tag."""
    if element.tag != tag:
        raise DerError(f"tag {element.tag:#04x} stands where {tag:#04x} should")
    return element.content


def oid_text(element: Element) -> str:
    """Return an object identifier in dotted notation."""
    content = expect(element, OBJECT_IDENTIFIER)
    if not content or content[-1] & 0x80 or len(content) > 256:
        raise DerError("an object identifier is cut off")
    numbers: list[int] = []
    number = 0
    for byte in content:
        if byte == 0x80 and not number:
            raise DerError("a number of an object identifier begins with zeros")
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _read(data: bytes, position: int) -> tuple[Element, int]:
    start = position
    if len(data) - position < 2:
        raise DerError("the data end amid an element")
    tag, length = data[position], data[position + 1]
    position += 2
    if tag & 0x1F == 0x1F:
        raise DerError("tags of several bytes are not known")
    if length & 0x80:
        size_bytes = length & 0x7F
        if not 1 <= size_bytes <= 4:
            raise DerError(f"a length of {size_bytes} bytes is not known")
        length = int.from_bytes(data[position : position + size_bytes], "big")
        position += size_bytes
    end = position + length
    if end > len(data):
        raise DerError("the data end amid an element")
    return Element(tag, data[position:end], data[start:end]), end
