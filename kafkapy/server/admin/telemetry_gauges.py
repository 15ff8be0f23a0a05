"""The metrics that clients have pushed (KIP-714), and counts of their pushes.

A client's metric org.apache.kafka.producer.node.request.latency.avg is
kafkapy_client_producer_node_request_latency_avg{client_instance_id, client_id, ...}: each name has the prefix
kafkapy_client_, and kafkapy_client_reported_ where that would be a name of the broker's own, so that no client can
pretend to be this broker. kafkapy_client_info describes each instance. Histograms are Prometheus histograms, with
buckets. Of two metrics whose samples would have the same name, the later one is renamed.
"""

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kafkapy.gauge import BucketCounts, Gauge
from kafkapy.telemetry.histograms import Buckets

if TYPE_CHECKING:
    from kafkapy.runtime.client_telemetry import ClientTelemetry
    from kafkapy.telemetry.instances import ClientInstance

OWN: Final = ""
PREFIX: Final = "kafkapy_client_"
KAFKA: Final = "org.apache.kafka."
IDENTITY: Final = ("client_instance_id", "client_id")
TOTAL: Final = "_total"
INFO: Final = "info"
OF_THE_BROKER: Final = ("telemetry_", "instances")
SUFFIXES: Final = ("_bucket", "_sum", "_count")
"""The suffixes of a histogram's samples."""
BOUND: Final = "le"
"""The label of a histogram's buckets. A sample that had it twice would spoil the whole scrape."""
LABELS_PER_STEP: Final = 4
_NOT_IN_NAMES: Final = re.compile(r"[^a-zA-Z0-9]+")


def telemetry_gauges(telemetry: "ClientTelemetry | None") -> Iterator[Gauge | BucketCounts | None]:
    """Yield the counts of pushes, then each instance's metrics, one instance a step."""
    if telemetry is None:
        return
    instances = telemetry.instances
    yield Gauge(OWN, "kafkapy_client_instances", len(instances))
    counts = {
        "pushes": telemetry.push_count,
        "unreadable_pushes": telemetry.failure_count,
        "unknown_subscriptions": instances.unknown_subscription_count,
        "throttled": instances.throttle_count,
        "dropped_points": telemetry.received.dropped_count,
    }
    if telemetry.forwarder is not None:
        counts |= {f"forwards_{outcome}": count for outcome, count in telemetry.forwarder.counts.items()}
    for name, count in counts.items():
        yield Gauge(OWN, f"kafkapy_client_telemetry_{name}_total", count, is_counter=True)
    names = _Names()
    for instance in list(instances.known()):
        yield from _of_instance(telemetry, instance, names)
        yield None


class _Names:
    """The names of samples in use, and whether they are a histogram's."""

    def __init__(self) -> None:
        self._kinds: dict[str, bool] = {}

    def free(self, name: str, *, is_histogram: bool) -> str:
        """Return the name, or a longer one where other metrics have samples of that name."""
        while not self._maybe_take(name, is_histogram=is_histogram):
            name += "_histogram" if is_histogram else "_value"
        return name

    def _maybe_take(self, name: str, *, is_histogram: bool) -> bool:
        names = [name, *(name + suffix for suffix in SUFFIXES if is_histogram)]
        if any(self._kinds.get(each, is_histogram) != is_histogram for each in names):
            return False
        self._kinds.update(dict.fromkeys(names, is_histogram))
        return True


def _of_instance(
    telemetry: "ClientTelemetry", instance: "ClientInstance", names: _Names
) -> Iterator[Gauge | BucketCounts | None]:
    values = telemetry.received.of(instance.client_instance_id)
    if not values:
        return
    yield Gauge(OWN, PREFIX + INFO, 1, tuple(instance.attributes.items()))
    identity = tuple((label, instance.attributes.get(label, "")) for label in IDENTITY)
    shown: set[tuple[str, tuple[tuple[str, str], ...]]] = set()
    for (name, attributes, is_counter), value in values.items():
        is_histogram = isinstance(value, Buckets)
        wanted = _name(name, is_counter=is_counter and not is_histogram)
        series = (names.free(wanted, is_histogram=is_histogram), identity + _labels(attributes))
        if series not in shown:
            shown.add(series)
            if isinstance(value, Buckets):
                yield BucketCounts(OWN, series[0], *value, series[1])
            else:
                yield Gauge(OWN, series[0], value, series[1], is_counter=series[0].endswith(TOTAL))
        yield from (None,) * (len(attributes) // LABELS_PER_STEP)


def _name(name: str, *, is_counter: bool) -> str:
    """Return a Prometheus name. A counter's ends with _total, and no other's does."""
    text = _NOT_IN_NAMES.sub("_", name.removeprefix(KAFKA)).strip("_")
    while text.endswith(TOTAL):
        text = text.removesuffix(TOTAL)
    if text == INFO or f"{text}_".startswith(OF_THE_BROKER):
        text = f"reported_{text}"
    return PREFIX + (text + TOTAL if is_counter else text)


def _labels(attributes: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    """Return the attributes with names that labels may have; of equal ones the first."""
    labels: dict[str, str] = {}
    for key, value in attributes:
        label = _NOT_IN_NAMES.sub("_", key).strip("_")
        if label[:1].isdigit():
            label = f"n{label}"
        if label == BOUND:
            label = f"reported_{label}"
        if label and label not in IDENTITY:
            labels.setdefault(label, value)
    return tuple(labels.items())
