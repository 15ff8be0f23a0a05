"""Address ranges as hosts of ACLs: `10.1.0.0/16`, `2001:db8::/32`, from metadata.version 4.4-IV1 on.

What is a range, and which addresses are in it, is as Apache Kafka 4.4.0 decides with Commons Net: numbers of IPv4 are
decimal even with leading zeros, 0.0.0.0 is in no range, and an IPv6 address that maps an IPv4 address is none.
"""

import re
from functools import lru_cache
from typing import Final

_IPV4: Final = re.compile(r"([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})\.([0-9]{1,3})")
_IPV4_RANGE: Final = re.compile(_IPV4.pattern + "/([0-9]{1,2})")
_PREFIX: Final = re.compile(r"\+?[0-9]{1,9}")
MAX_PARSED: Final = 4_096
"""Maximum cached ranges."""


def range_error(pattern: str) -> str | None:
    """Return why a pattern is no address range, None if it is one."""
    try:
        _parse(pattern)
    except ValueError as error:
        return str(error)
    return None


def is_in_range(host: str, pattern: str) -> bool:
    """Return whether an address is in the range; False if either cannot be read, or they are of different kinds."""
    if "/" not in pattern:
        return False
    try:
        is_ipv6, first, last = _parse(pattern)
        address = _ipv6(host) if is_ipv6 else _ipv4(host)
    except ValueError:
        return False
    return first <= address <= last and (is_ipv6 or address != 0)


@lru_cache(MAX_PARSED)
def _parse(pattern: str) -> tuple[bool, int, int]:
    """Return (is_ipv6, first address, last address). Raises ValueError."""
    if ":" in pattern:
        return (True, *_bounds(*_ipv6_range(pattern), 128))
    match = _IPV4_RANGE.fullmatch(pattern)
    if match is None:
        raise ValueError(f"Could not parse [{pattern}]")
    return (False, *_bounds(_of_octets(match.groups()[:4]), _checked(int(match[5]), 32), 32))


def _bounds(address: int, prefix_length: int, bit_count: int) -> tuple[int, int]:
    host_mask = (1 << (bit_count - prefix_length)) - 1
    first = address & ~host_mask
    return first, first | host_mask


def _ipv4(text: str) -> int:
    match = _IPV4.fullmatch(text)
    if match is None:
        raise ValueError(f"Could not parse [{text}]")
    return _of_octets(match.groups())


def _of_octets(octets: tuple[str, ...]) -> int:
    address = 0
    for octet in octets:
        address = address << 8 | _checked(int(octet), 255)
    return address


def _checked(value: int, highest: int) -> int:
    if value > highest:
        raise ValueError(f"Value [{value}] not in range [0,{highest}]")
    return value


def _ipv6_range(pattern: str) -> tuple[int, int]:
    address, slash, prefix = pattern.partition("/")
    if not slash:
        raise ValueError(f"Could not parse [{pattern}] - missing prefix length")
    if not _PREFIX.fullmatch(prefix):
        raise ValueError(f"Could not parse [{pattern}] - invalid prefix length")
    if int(prefix) > 128:
        raise ValueError(f"Could not parse [{pattern}] - prefix length must be between 0 and 128")
    return _ipv6(address), int(prefix)


def _ipv6(text: str) -> int:
    from ipaddress import IPv6Address

    try:
        address = IPv6Address(text)
    except ValueError:
        raise ValueError(f"Could not parse [{text}]") from None
    if address.ipv4_mapped is not None:
        raise ValueError(f"Could not parse [{text}] - not an IPv6 address")
    return int(address)
