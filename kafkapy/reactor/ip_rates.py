"""How fast connections may come from one address: the client quota connection_creation_rate of ips (KIP-612).

A connection beyond its address's rate is not served, and counted in no rate; it is closed once the rate has come down,
after a window at most, so that a client that connects again at once is slowed down.
"""

from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address

from kafkapy.security.rate import RateTable, WindowedRate


class IpRates:
    """Limits by address, connections a second, and the rates of addresses that have one. The clock is the caller's."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._limits: dict[bytes, float] = {}
        self._default: float | None = None
        self._window_ms = window_ms
        self._rates = RateTable[bytes, WindowedRate](partial(WindowedRate, window_count, window_ms))

    @property
    def is_empty(self) -> bool:
        return not self._limits and self._default is None

    def set_limit(self, ip: str | None, per_second: float | None) -> None:
        """Set or remove the limit of an address, or the default, which each other address has for itself."""
        if ip is None:
            self._default = per_second
        elif per_second is None:
            self._limits.pop(_packed(ip), None)
        else:
            self._limits[_packed(ip)] = per_second

    def record(self, ip: str, now_ms: int) -> int:
        """Note that a connection came; return 0, or after how many ms it is to be closed."""
        address = _packed(ip)
        limit = self._limits.get(address, self._default)
        if limit is None:
            return 0
        rate = self._rates.get(address, now_ms)
        rate.record(1, now_ms)
        throttle_ms = min(rate.throttle_ms(limit, now_ms), self._window_ms)
        if throttle_ms > 0:
            rate.record(-1, now_ms)
        return throttle_ms


@lru_cache(maxsize=1024)
def _packed(ip: str) -> bytes:
    """Return an address as bytes: it may be written in several ways, and one of IPv4 as one of IPv6."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed
