"""Limits how fast moved partitions are replicated (KIP-73), by the configs that kafka-reassign-partitions.sh sets.

A broker's rates apply to the replicas in two lists of the topic, as `partition:broker`: one list has the replicas that
are read from, the other those that are being added. Replicas in sync are not throttled. The rates are set as the
cluster's default. Apache Kafka's tool sets them for each broker, which takes a request to each of them, and misses
those that do not run.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.response_error import response_error
from kafkapy.server.cluster.queries import TOPICS_AT_ONCE, Ask

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
LISTS: Final = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
TOPIC: Final = 2
BROKER: Final = 4
SET, DELETE = 0, 1
ALL_BROKERS: Final = ""
OWN_SOURCES: Final = (1, 3)
"""Sources of configs: set for this topic, as the default of all brokers."""
TIMEOUT_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that moves: where replicas are read from, and where new ones arrive."""

    topic: str
    partition: int
    sources: Collection[int]
    added: Collection[int]


@dataclass(slots=True)
class Throttle:
    """A config that is set: a topic's list, or the rate of all brokers, whose topic is ""."""

    topic: str
    key: str
    value: str


def limit(ask: Ask, rate: int, moves: Collection[Move]) -> None:
    """Set the rate (bytes a second) and the lists of the moved replicas. Raises ApiError, OSError, ProtocolError."""
    changes = [_change(BROKER, ALL_BROKERS, dict.fromkeys(RATES, str(rate)))]
    for topic in sorted({each.topic for each in moves}):
        of_topic = [each for each in moves if each.topic == topic]
        lists = ([(each, each.sources) for each in of_topic], [(each, each.added) for each in of_topic])
        named = [",".join(f"{each.partition}:{node}" for each, nodes in pairs for node in nodes) for pairs in lists]
        changes.append(_change(TOPIC, topic, dict(zip(LISTS, named, strict=True))))
    _alter(ask, changes)


def lift(ask: Ask, topics: Iterable[str]) -> None:
    """Delete the rates, and the lists of these topics. Raises as `limit`."""
    changes = [_change(TOPIC, topic, dict.fromkeys(LISTS)) for topic in topics]
    _alter(ask, [_change(BROKER, ALL_BROKERS, dict.fromkeys(RATES)), *changes])


def throttles(ask: Ask, topics: Iterable[str]) -> Iterator[Throttle]:
    """Yield the limits that are set. Raises as `limit`."""
    resources = [DescribeConfigsResource(BROKER, resource_name=ALL_BROKERS, configuration_keys=[*RATES])]
    resources += [DescribeConfigsResource(TOPIC, resource_name=each, configuration_keys=[*LISTS]) for each in topics]
    for start in range(0, len(resources), TOPICS_AT_ONCE):
        for result in ask(DescribeConfigsRequest(resources=resources[start : start + TOPICS_AT_ONCE])).results:
            if result.error_code:
                raise response_error(result.error_code, result.error_message)
            for each in result.configs:
                if each.config_source in OWN_SOURCES and each.value:
                    yield Throttle(result.resource_name, each.name, each.value)


def _change(kind: int, name: str, values: Mapping[str, str | None]) -> AlterConfigsResource:
    """Return the changes of one resource; a config whose value is None is deleted."""
    configs = [
        AlterableConfig(key, config_operation=DELETE if value is None else SET, value=value)
        for key, value in values.items()
    ]
    return AlterConfigsResource(kind, resource_name=name, configs=configs)


def _alter(ask: Ask, changes: list[AlterConfigsResource]) -> None:
    for start in range(0, len(changes), TOPICS_AT_ONCE):
        request = IncrementalAlterConfigsRequest(resources=changes[start : start + TOPICS_AT_ONCE])
        for each in ask(request, timeout_s=TIMEOUT_S).responses:
            if each.error_code:
                raise response_error(each.error_code, each.error_message)
