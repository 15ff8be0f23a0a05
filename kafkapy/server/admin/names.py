"""Names of metrics in Prometheus: by the JMX exporter's rules that Strimzi ships, or those that Confluent ships.

    kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec,topic=t [Count]
        strimzi     kafka_server_brokertopicmetrics_bytesin_total{topic="t"}      counter
        confluent   kafka_server_brokertopicmetrics_bytesinpersec{topic="t"}      untyped

kafkapy.metrics.names chooses; names without a group (kafka_exporter's, process_*, kafkapy's own) are the same in all.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"
SUMMARY: Final = "summary"

Tags = tuple[tuple[str, str], ...]

JOINED_TYPES: Final = ("raft-metrics", "broker-metadata-metrics", "raft-channel-metrics")
"""Types whose dashes Strimzi's rules remove."""
SOFTWARE: Final = ("kafka.server:type=socket-server-metrics", "connections")
_CAPITAL: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


class Named(NamedTuple):
    """A metric's name, type, and how its labels are called."""

    name: str
    kind: str
    label: Callable[[str], str] = str


def strimzi_name(group: str, name: str, *, is_counter: bool) -> Named:
    domain, _, kind = group.partition(":type=")
    if kind in JOINED_TYPES:
        kind = kind.replace("-", "")
    if (group, name) == SOFTWARE:
        name = "connections-software"
    if is_counter:
        if name.endswith("PerSec"):
            name = name.removesuffix("PerSec") + "_total"
        elif not name.endswith("-total"):
            name += "_count_total"
    elif name.endswith("Percent"):
        name = name.removesuffix("Percent") + "_percent"
    type_of = COUNTER if is_counter else UNTYPED if name == "current-state" else GAUGE
    return Named(_joined(domain, kind, name), type_of)


def confluent_name(group: str, name: str, *, is_counter: bool) -> Named:
    domain, _, kind = group.partition(":type=")
    is_attribute = "-" in kind
    if kind == "socket-server-metrics":
        kind = "socketservermetrics"
    if is_counter and not (name.endswith(("PerSec", "-total"))):
        name += "_count"
    elif name.endswith("HandlerAvgIdlePercent"):
        name += "_oneminuterate"
    return Named(_joined(domain, kind, name), GAUGE if is_attribute else UNTYPED, _snake)


def _joined(domain: str, kind: str, name: str) -> str:
    return f"{domain}_{kind}_{name}".lower().replace(".", "_").replace("-", "_")


def _snake(label: str) -> str:
    return _CAPITAL.sub("_", label).lower().replace("-", "_")


Dialect = Callable[..., Named]
DIALECTS: Final[dict[str, tuple[Dialect, ...]]] = {
    "strimzi": (strimzi_name,),
    "confluent": (confluent_name,),
    "both": (strimzi_name, confluent_name),
}
