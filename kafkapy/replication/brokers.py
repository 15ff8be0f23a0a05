"""The brokers of other replicas in the newest metadata: whether they are alive and eligible for an ISR. KIP-903."""

from collections.abc import Callable
from typing import Final

from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.types import Uuid

UNKNOWN_BROKER_EPOCH: Final = -1
"""The broker epoch of a fetch whose version has none: it is not compared."""
DEFAULT_MAX_LAG_MS: Final = 30_000


def default_max_lag_ms() -> int:
    return DEFAULT_MAX_LAG_MS


class ReplicaBrokers:
    """The registered brokers in the last announced image: fencing counts before partitions apply that metadata."""

    def __init__(self, max_lag_ms: Callable[[], int] = default_max_lag_ms) -> None:
        """`max_lag_ms()` is replica.lag.time.max.ms."""
        self._image: MetadataImage = EMPTY_IMAGE
        self._max_lag_ms = max_lag_ms

    def announce(self, image: MetadataImage) -> None:
        self._image = image

    @property
    def max_lag_ms(self) -> int:
        return self._max_lag_ms()

    def is_alive(self, broker_id: int) -> bool:
        """Return whether a broker is registered and not fenced."""
        broker = self._image.cluster.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def is_eligible(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether a broker may be in an ISR: not fenced, not shutting down, and registered with this epoch."""
        broker = self._image.cluster.brokers.get(broker_id)
        return broker is not None and broker.is_active and broker_epoch in (UNKNOWN_BROKER_EPOCH, broker.epoch)

    def has_online_directory(self, broker_id: int, directory: Uuid) -> bool:
        """Return whether a broker serves replicas in a directory: neither the directory nor the replica is lost."""
        broker = self._image.cluster.brokers.get(broker_id)
        return broker is not None and broker.has_online_directory(directory)

    def is_registered(self, broker_id: int) -> bool:
        """Return whether a broker is registered, fenced or not."""
        return broker_id in self._image.cluster.brokers

    def is_stale(self, broker_id: int, broker_epoch: int) -> bool:
        """Return whether the broker is registered with a later epoch."""
        broker = self._image.cluster.brokers.get(broker_id)
        return broker is not None and UNKNOWN_BROKER_EPOCH < broker_epoch < broker.epoch
