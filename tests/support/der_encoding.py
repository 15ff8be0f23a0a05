"""DER that the tests write."""

from kafkapy.security.der import OBJECT_IDENTIFIER


def encode(tag: int, *contents: bytes) -> bytes:
    """Return an encoded element whose content is the concatenation of `contents`."""
    content = b"".join(contents)
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes((tag, 0x80 | len(length))) + length + content


def encode_oid(dotted: str) -> bytes:
    """Return an encoded object identifier, given in dotted notation."""
    first, second, *rest = map(int, dotted.split("."))
    content = bytearray()
    for number in (40 * first + second, *rest):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        content += bytes(reversed(groups))
    return encode(OBJECT_IDENTIFIER, bytes(content))
