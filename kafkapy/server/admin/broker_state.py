"""BrokerState: how far a broker's start or stop is, by Apache Kafka's numbers.

While a broker starts, this is the only metric of /metrics: its other parts do not exist yet.
"""

from collections.abc import Collection, Iterator
from enum import IntEnum

from kafkapy.gauge import Gauge
from kafkapy.runtime.broker.lifecycle import LifecycleState


class BrokerState(IntEnum):
    NOT_RUNNING = 0
    STARTING = 1
    """The broker follows the metadata up to what is committed."""
    RECOVERY = 2
    """The broker knows the metadata, loads its logs and waits to be unfenced."""
    RUNNING = 3
    PENDING_CONTROLLED_SHUTDOWN = 6
    """The broker hands over its leaderships."""
    SHUTTING_DOWN = 7


def broker_state(
    conditions: Collection[str], lifecycle: LifecycleState | None, *, has_begun_to_stop: bool
) -> BrokerState:
    """Return the state. conditions: those of /readyz that the start has added. lifecycle: None before it exists."""
    if has_begun_to_stop:
        is_leaving = lifecycle in (LifecycleState.RUNNING, LifecycleState.SHUTTING_DOWN)
        return BrokerState.PENDING_CONTROLLED_SHUTDOWN if is_leaving else BrokerState.SHUTTING_DOWN
    for condition, state in (
        ("listeners", BrokerState.RUNNING),
        ("registration", BrokerState.RECOVERY),
        ("metadata", BrokerState.STARTING),
    ):
        if condition in conditions:
            return state
    return BrokerState.NOT_RUNNING


def state_gauges(state: BrokerState) -> Iterator[Gauge]:
    yield Gauge("kafka.server:type=KafkaServer", "BrokerState", int(state))
