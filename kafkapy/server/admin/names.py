"""Names of metrics in Prometheus: by the JMX exporter's rules that Strimzi ships, or those that Confluent ships.

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t [Count]
        strimzi     kafka_server_brokertopicmetrics_bytesin_total{topic="t"}      counter
        confluent   kafka_server_brokertopicmetrics_bytesinpersec{topic="t"}      untyped

kafkapy.metrics.names chooses; names without a group (kafka_exporter's, process_*, kafkapy's own) are the same in all.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final

from kafkapy.named_tuple import NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
SUMMARY: Final = "summary"
HISTOGRAM: Final = "histogram"

Tags = tuple[tuple[str, str], ...]


DEPRECATED_PREFIX: Final = "org.apache."
"""Of the domain of a MBean that Apache Kafka has under two names. Strimzi's rules make one name of both; then the JMX
exporter adds a label to distinguish them."""
OBJECT_NAME: Final = "_objectname"


def object_name(group: str, name: str) -> tuple[str, str]:
    """Return the label by which the JMX exporter distinguishes series that the rules give the same name."""
    domain, _, kind = group.partition(":type=")
    return OBJECT_NAME, f"{domain}<type={kind}, name={name}><>Value"


def sorted_tags(tags: Tags) -> Tags:
    return tuple(sorted(tags))


JOINED_TYPES: Final = ("raft-metrics", "broker-metadata-metrics", "raft-channel-metrics")
"""Types whose dashes Strimzi's rules remove."""
SOFTWARE: Final = ("kafka.server:type=socket-server-metrics", "connections")
QUORUM_TYPES: Final = ("raftmetrics", "raftchannelmetrics")
"""Types whose maxima are counters by Strimzi's rules."""
MAXIMUM_SUFFIX: Final = "_max_total"
"""The suffix of names of maxima."""
RETENTION_SIZE: Final = ("kafka.log:type=Log", "RetentionSizeInPercent")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9]+")
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Named(NamedTuple):
    """A metric's name, type, and what makes its labels of tags."""

    name: str
    kind: str
    labels: Callable[[Tags], Tags] = sorted_tags


def strimzi_name(group: str, name: str, *, is_counter: bool) -> Named:
    described = name
    domain, _, kind = group.removeprefix(DEPRECATED_PREFIX).partition(":type=")
    if kind in JOINED_TYPES:
        kind = kind.replace("-", "")
    if (group, name) == SOFTWARE:
        name = "connections-software"
    if is_counter:
        if name.endswith("PerSec"):
            name = name.removesuffix("PerSec") + "_total"
        elif name.endswith("-count"):
            name += "_total"
        elif not name.endswith("-total"):
            name += "_count_total"
    elif name.endswith("Percent"):
        name = name.removesuffix("Percent") + "_percent"
    elif kind in QUORUM_TYPES and name.endswith("-max"):
        name, is_counter = f"{name}-total", True
    type_of = COUNTER if is_counter else UNTYPED if name == "current-state" else GAUGE
    labels = topic_in_label if (group, described) == RETENTION_SIZE else sorted_tags
    return Named(_joined(domain, kind, name), type_of, labels)


def confluent_name(group: str, name: str, *, is_counter: bool) -> Named:
    domain, _, kind = group.partition(":type=")
    is_attribute = "-" in kind
    if kind == "socket-server-metrics":
        kind = "socketservermetrics"
    if is_counter and not (name.endswith(("PerSec", "-total", "BlockedPercent"))):
        name += "_count"
    elif name.endswith("HandlerAvgIdlePercent"):
        name += "_oneminuterate"
    return Named(_joined(domain, kind, name), GAUGE if is_attribute else UNTYPED, snake_case)


def _joined(domain: str, kind: str, name: str) -> str:
    return f"{domain}_{kind}_{name}".lower().replace(".", "_").replace("-", "_")


def snake_case(tags: Tags) -> Tags:
    return tuple((_CAPITAL.sub("_", label).lower().replace("-", "_"), value) for label, value in sorted(tags))


def topic_in_label(tags: Tags) -> Tags:
    """Return the one label that Strimzi's rules make of topic=t and partition=0: topic_t_partition="0".

    Their pattern for percentages expects one property of an MBean, and takes all up to the last = for its name.
    """
    values = dict(tags)
    return ((_label_with(values["topic"]), values["partition"]),)


@lru_cache(maxsize=10_000)
def _label_with(topic: str) -> str:
    return _UNSAFE.sub("_", f"topic={topic}, partition")


Dialect = Callable[..., Named]
DIALECTS: Final[dict[str, tuple[Dialect, ...]]] = {
    "strimzi": (strimzi_name,),
    "confluent": (confluent_name,),
    "both": (strimzi_name, confluent_name),
}
