"""XXH3, the 64-bit variant with seed 0. Kafka uses it to hash a group's subscribed topics (KIP-1101).

In plain Python because the inputs are small (a topic's name, ids and racks) and the results are kept per topic. Source:
the XXH3 specification (github.com/Cyan4973/xxHash, doc/xxhash_spec.md); checked against hash4j, which Kafka uses.
"""

from struct import unpack_from
from typing import Final

_PRIME32_1: Final = 0x9E3779B1
_PRIME32_2: Final = 0x85EBCA77
_PRIME32_3: Final = 0xC2B2AE3D
_PRIME64_1: Final = 0x9E3779B185EBCA87
_PRIME64_2: Final = 0xC2B2AE3D27D4EB4F
_PRIME64_3: Final = 0x165667B19E3779F9
_PRIME64_4: Final = 0x85EBCA77C2B2AE63
_PRIME64_5: Final = 0x27D4EB2F165667C5
_PRIME_MX1: Final = 0x165667919E3779F9
_PRIME_MX2: Final = 0x9FB21C651E98DF25
_MASK: Final = (1 << 64) - 1

_SECRET: Final = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_STRIPE_BYTES: Final = 64
_STRIPES_PER_BLOCK: Final = (len(_SECRET) - _STRIPE_BYTES) // 8
_BLOCK_BYTES: Final = _STRIPE_BYTES * _STRIPES_PER_BLOCK


def xxh3_64(data: bytes) -> int:
    """Return the hash as a signed 64-bit integer, like Java's long."""
    length = len(data)
    if length <= 16:
        hashed = _hash_to_16(data)
    elif length <= 128:
        hashed = _hash_17_to_128(data)
    elif length <= 240:
        hashed = _hash_129_to_240(data)
    else:
        hashed = _hash_long(data)
    return hashed - (1 << 64) if hashed >> 63 else hashed


def _hash_to_16(data: bytes) -> int:
    length = len(data)
    if length > 8:
        low = _u64(data, 0) ^ _u64(_SECRET, 24) ^ _u64(_SECRET, 32)
        high = _u64(data, length - 8) ^ _u64(_SECRET, 40) ^ _u64(_SECRET, 48)
        swapped = int.from_bytes(low.to_bytes(8, "little"), "big")
        return _avalanche(length + swapped + high + _folded_product(low, high))
    if length >= 4:
        (first,) = unpack_from("<I", data, 0)
        (second,) = unpack_from("<I", data, length - 4)
        return _rrmxmx((second + (first << 32)) ^ _u64(_SECRET, 8) ^ _u64(_SECRET, 16), length)
    if length:
        combined = data[0] << 16 | data[length >> 1] << 24 | data[-1] | length << 8
        low, high = unpack_from("<II", _SECRET, 0)
        return _xxh64_avalanche(combined ^ low ^ high)
    return _xxh64_avalanche(_u64(_SECRET, 56) ^ _u64(_SECRET, 64))


def _hash_17_to_128(data: bytes) -> int:
    length = len(data)
    total = length * _PRIME64_1
    for index in range((length - 1) // 32 + 1):
        total += _mix16(data, 16 * index, 32 * index)
        total += _mix16(data, length - 16 * (index + 1), 32 * index + 16)
    return _avalanche(total)


def _hash_129_to_240(data: bytes) -> int:
    length = len(data)
    total = length * _PRIME64_1
    for index in range(8):
        total += _mix16(data, 16 * index, 16 * index)
    total = _avalanche(total)
    for index in range(8, length // 16):
        total += _mix16(data, 16 * index, 16 * (index - 8) + 3)
    return _avalanche(total + _mix16(data, length - 16, 136 - 17))


def _hash_long(data: bytes) -> int:
    length = len(data)
    lanes = [_PRIME32_3, _PRIME64_1, _PRIME64_2, _PRIME64_3, _PRIME64_4, _PRIME32_2, _PRIME64_5, _PRIME32_1]
    block_count = (length - 1) // _BLOCK_BYTES
    for block in range(block_count):
        for stripe in range(_STRIPES_PER_BLOCK):
            _accumulate(lanes, data, block * _BLOCK_BYTES + stripe * _STRIPE_BYTES, 8 * stripe)
        _scramble(lanes)
    start = block_count * _BLOCK_BYTES
    for stripe in range((length - 1 - start) // _STRIPE_BYTES):
        _accumulate(lanes, data, start + stripe * _STRIPE_BYTES, 8 * stripe)
    _accumulate(lanes, data, length - _STRIPE_BYTES, len(_SECRET) - _STRIPE_BYTES - 7)
    total = length * _PRIME64_1
    keys = unpack_from("<8Q", _SECRET, 11)
    for index in range(0, 8, 2):
        total += _folded_product(lanes[index] ^ keys[index], lanes[index + 1] ^ keys[index + 1])
    return _avalanche(total)


def _accumulate(lanes: list[int], data: bytes, position: int, secret_position: int) -> None:
    values = unpack_from("<8Q", data, position)
    keys = unpack_from("<8Q", _SECRET, secret_position)
    for index in range(8):
        value = values[index]
        keyed = value ^ keys[index]
        lanes[index ^ 1] = (lanes[index ^ 1] + value) & _MASK
        lanes[index] = (lanes[index] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(lanes: list[int]) -> None:
    for index, key in enumerate(unpack_from("<8Q", _SECRET, len(_SECRET) - _STRIPE_BYTES)):
        lane = lanes[index]
        lanes[index] = ((lane ^ lane >> 47 ^ key) * _PRIME32_1) & _MASK


def _mix16(data: bytes, position: int, secret_position: int) -> int:
    low, high = unpack_from("<QQ", data, position)
    low_key, high_key = unpack_from("<QQ", _SECRET, secret_position)
    return _folded_product(low ^ low_key, high ^ high_key)


def _u64(data: bytes, position: int) -> int:
    return int.from_bytes(data[position : position + 8], "little")


def _folded_product(left: int, right: int) -> int:
    product = left * right
    return (product & _MASK) ^ (product >> 64)


def _avalanche(value: int) -> int:
    value &= _MASK
    value = ((value ^ value >> 37) * _PRIME_MX1) & _MASK
    return value ^ value >> 32


def _xxh64_avalanche(value: int) -> int:
    value = ((value ^ value >> 33) * _PRIME64_2) & _MASK
    value = ((value ^ value >> 29) * _PRIME64_3) & _MASK
    return value ^ value >> 32


def _rrmxmx(value: int, length: int) -> int:
    value ^= _rotated(value, 49) ^ _rotated(value, 24)
    value = (value * _PRIME_MX2) & _MASK
    value ^= (value >> 35) + length
    value = (value * _PRIME_MX2) & _MASK
    return value ^ value >> 28


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & _MASK
