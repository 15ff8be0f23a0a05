"""Connection rate limits per IP address: the client quota connection_creation_rate of `ip` entities (KIP-612).

A connection beyond its address's rate is not served and not counted in any rate. It is closed once the rate has dropped
to the limit, at most one window later, which slows down a client that reconnects immediately.
"""

from functools import lru_cache, partial
from ipaddress import IPv6Address, ip_address

from kafkapy.security.rate import RateTable, WindowedRate


class IpRates:
    """Limits in connections per second, and the measured rates, by address. Callers pass the time."""

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._limits: dict[bytes, float] = {}
        self._default: float | None = None
        self._window_ms = window_ms
        self._rates = RateTable[bytes, WindowedRate](partial(WindowedRate, window_count, window_ms))

    @property
    def is_empty(self) -> bool:
        return not self._limits and self._default is None

    def set_limit(self, ip: str | None, per_second: float | None) -> None:
        """Set or remove (None) the limit of an address; ip None is the default, which applies to each other address."""
        if ip is None:
            self._default = per_second
        elif per_second is None:
            self._limits.pop(_packed(ip), None)
        else:
            self._limits[_packed(ip)] = per_second

    def record(self, ip: str, now_ms: int) -> int:
        """Count a connection; return 0 to keep it, otherwise after how many ms to close it."""
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
    """Return an address in its canonical binary form; IPv4-mapped IPv6 addresses become IPv4."""
    address = ip_address(ip)
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        return address.ipv4_mapped.packed
    return address.packed
