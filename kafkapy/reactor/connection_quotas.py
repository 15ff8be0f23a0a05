"""Connection limits: the number of connections per broker, listener and address, and their creation rates.

At max.connections (of the broker or of the listener) nothing is accepted until a connection closes. The inter-broker
listener is exempt from the broker-wide limits if other listeners exist: when it exceeds them, the longest-idle
connection of another listener is closed. Rates are measured like Kafka's metrics (KIP-612): over quota.window.num
windows, of which at least all but one count as full, so a burst after a quiet time passes. An address may have its own
rate limit (ip_rates.py).
"""

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING

from kafkapy.reactor.limits import UNLIMITED, ReactorLimits
from kafkapy.security.rate import WindowedRate

if TYPE_CHECKING:
    from kafkapy.reactor.ip_rates import IpRates


class ConnectionRate:
    """Connections per second over the last windows. Callers pass the time."""

    __slots__ = ("_rate", "_window_ms")

    def __init__(self, window_count: int, window_ms: int) -> None:
        self._rate = WindowedRate(window_count, window_ms)
        self._window_ms = window_ms

    def record(self, now_ms: int, per_second: int) -> int:
        """Count a connection; return how many ms to pause until the rate is within the limit, at most one window."""
        self._rate.record(1, now_ms)
        if per_second >= UNLIMITED:
            return 0
        return min(self._rate.throttle_ms(per_second, now_ms), self._window_ms)


class ConnectionQuotas:
    """Counts the broker's open connections and measures their creation rates."""

    def __init__(self, limits: ReactorLimits) -> None:
        self.update(limits)
        self._by_listener: Counter[str] = Counter()
        self._by_ip: Counter[str] = Counter()
        self._listeners: list[str] = []
        self._rate = self._new_rate()
        self._listener_rates: dict[str, ConnectionRate] = {}
        self._ip_rates: IpRates | None = None
        """None while no address has a rate limit."""
        self.count = 0

    def update(self, limits: ReactorLimits) -> None:
        """Change the limits; then `is_exceeded` is whether connections must be closed."""
        self._limits = limits

    def _new_rate(self) -> ConnectionRate:
        return ConnectionRate(self._limits.quota_window_num, self._limits.quota_window_ms)

    def add_listener(self, listener_name: str) -> None:
        self._listeners.append(listener_name)
        self._listener_rates[listener_name] = self._new_rate()

    def remove_listener(self, listener_name: str) -> None:
        """Forget a listener that accepts no more; its connections are counted until they close."""
        self._listeners.remove(listener_name)
        del self._listener_rates[listener_name]

    def is_protected(self, listener_name: str) -> bool:
        """Whether a listener is the inter-broker listener, and not the only one."""
        return listener_name == self._limits.inter_broker_listener_name and len(self._listeners) > 1

    def has_room(self, listener_name: str) -> bool:
        if self._by_listener[listener_name] >= self._limits.listener_max_connections.get(listener_name, UNLIMITED):
            return False
        return self.is_protected(listener_name) or self.count < self._limits.max_connections

    @property
    def is_exceeded(self) -> bool:
        return self.count > self._limits.max_connections

    def set_ip_rate(self, ip: str | None, per_second: float | None) -> None:
        """Set or remove (None) the connections per second allowed from `ip`; ip None is the default for all others."""
        if self._ip_rates is None:
            from kafkapy.reactor.ip_rates import IpRates  # imported only if used

            self._ip_rates = IpRates(self._limits.quota_window_num, self._limits.quota_window_ms)
        self._ip_rates.set_limit(ip, per_second)
        if self._ip_rates.is_empty:
            self._ip_rates = None

    def record_from(self, ip: str, now_ms: int) -> int:
        """Count a connection from an address; return 0 to keep it, otherwise after how many ms to close it."""
        return self._ip_rates.record(ip, now_ms) if self._ip_rates is not None else 0

    def may_connect(self, ip: str) -> bool:
        limits = self._limits
        return self._by_ip[ip] < limits.max_connections_per_ip_overrides.get(ip, limits.max_connections_per_ip)

    def record_creation(self, listener_name: str, now_ms: int) -> int:
        """Count a new connection; return how many ms it must wait, and all later ones on its listener."""
        throttle_ms = 0
        if not self.is_protected(listener_name):
            throttle_ms = self._rate.record(now_ms, self._limits.max_connection_creation_rate)
        by_listener: Mapping[str, int] = self._limits.listener_max_connection_creation_rate
        own_rate = self._listener_rates[listener_name]
        return max(throttle_ms, own_rate.record(now_ms, by_listener.get(listener_name, UNLIMITED)))

    def add(self, listener_name: str, ip: str) -> None:
        self.count += 1
        self._by_listener[listener_name] += 1
        self._by_ip[ip] += 1

    def remove(self, listener_name: str, ip: str) -> None:
        self.count -= 1
        self._by_listener[listener_name] -= 1
        if not self._by_listener[listener_name]:
            del self._by_listener[listener_name]
        self._by_ip[ip] -= 1
        if not self._by_ip[ip]:
            del self._by_ip[ip]
