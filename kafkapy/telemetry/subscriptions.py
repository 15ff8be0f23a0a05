"""Client metrics subscriptions (KIP-714): which metrics the clients that match are asked for, and how often.

A subscription is a config resource of type CLIENT_METRICS with the keys `metrics` (prefixes of names; `*` is all),
`interval.ms` and `match` (selector=regular expression; a client matches if all of them do; none matches all clients).

Deviation: Apache Kafka's patterns are Java's. Here they are RE2's, because its time is linear in the text. A pattern
that RE2 cannot compile (a lookahead, a back reference) is refused; one that a controller of Apache Kafka has accepted
matches no client.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kafkapy.config.definitions import client_metrics_definitions
from kafkapy.config.patterns import PatternError, compiled, selector_and_pattern
from kafkapy.dataclass import dataclass
from kafkapy.named_tuple import NamedTuple
from kafkapy.record.crc import crc32c
from kafkapy.types import Uuid

DEFAULT_INTERVAL_MS: Final = 5 * 60 * 1000
"""Apache Kafka's (KIP-714)."""
ALL_METRICS: Final = "*"
Attributes = Mapping[str, str]
"""A client's attributes, by selector: client_id, client_instance_id, client_software_name, client_software_version,
client_source_address, client_source_port. An unknown one is left out, and no pattern matches it."""


class RequestedMetrics(NamedTuple):
    """The metrics that a client is to push. `metrics`: sorted prefixes; without any it has nothing to push."""

    metrics: tuple[str, ...]
    push_interval_ms: int


@dataclass(frozen=True, slots=True)
class Subscription:
    """One subscription. `patterns`: compiled by RE2, by selector; None if one of them cannot be compiled."""

    metrics: tuple[str, ...]
    interval_ms: int
    patterns: Mapping[str, Any] | None

    @classmethod
    def of(cls, configs: Mapping[str, str]) -> "Subscription":
        """Return the subscription with these configs, which were validated when they were set."""
        known = client_metrics_definitions()
        values: dict[str, Any] = {key: known[key].parse(text) for key, text in configs.items() if key in known}
        return cls(
            metrics=tuple(values.get("metrics", ())),
            interval_ms=values.get("interval.ms", DEFAULT_INTERVAL_MS),
            patterns=_patterns(values.get("match", ())),
        )

    def matches(self, attributes: Attributes) -> bool:
        """Return whether all patterns match the whole of the client's attributes."""
        if self.patterns is None:
            return False
        for selector, pattern in self.patterns.items():
            value = attributes.get(selector)
            if value is None or pattern.fullmatch(value) is None:
                return False
        return True


def wanted_of(subscriptions: Iterable[Subscription], attributes: Attributes) -> RequestedMetrics:
    """Return the request of all matching subscriptions to a client: all their metrics, at the shortest interval."""
    matching = [each for each in subscriptions if each.matches(attributes)]
    metrics = {name for each in matching for name in each.metrics}
    interval_ms = min((each.interval_ms for each in matching), default=DEFAULT_INTERVAL_MS)
    shown = (ALL_METRICS,) if ALL_METRICS in metrics else tuple(sorted(metrics))
    return RequestedMetrics(shown, min(interval_ms, DEFAULT_INTERVAL_MS))


def subscription_id_of(requested: RequestedMetrics, client_instance_id: Uuid) -> int:
    """Return the subscription id: an int32 that changes with what a client is asked for.

    CRC-32C of the metrics and the interval, XORed with the instance id's hash, as in Apache Kafka.
    """
    text = f"[{', '.join(requested.metrics)}]{requested.push_interval_ms}"
    folded = int.from_bytes(client_instance_id[:8], "big") ^ int.from_bytes(client_instance_id[8:], "big")
    unsigned = crc32c(text.encode()) ^ (folded >> 32) ^ (folded & 0xFFFFFFFF)
    return unsigned - (1 << 32) if unsigned >= 1 << 31 else unsigned


def _patterns(listed: Iterable[str]) -> Mapping[str, Any] | None:
    """Return the patterns by selector, of one selector the last; None if one cannot be compiled."""
    pairs = [selector_and_pattern(entry) for entry in listed]
    if None in pairs:
        return None
    try:
        return {selector: compiled(pattern) for selector, pattern in dict(filter(None, pairs)).items()}
    except PatternError:
        return None
