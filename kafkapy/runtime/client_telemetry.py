"""Receives the metrics that clients push (KIP-714), for /metrics and for a collector elsewhere.

A push is decompressed by a worker, bounded by telemetry.max.bytes, and read in turns. It is taken as a whole or not at
all. Exists only while there is a receiver: with an admin listener, or with kafkapy.telemetry.otlp.endpoint.
"""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kafkapy.errors import ApiError
from kafkapy.metadata.image import RESOURCE_CLIENT_METRICS, ConfigResource, MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.record.compression import NONE, decompress, inflated_at_most
from kafkapy.record.errors import RecordsError
from kafkapy.telemetry.instances import ClientInstance, ClientInstances
from kafkapy.telemetry.otlp import Point, points_of
from kafkapy.telemetry.protobuf import OtlpError
from kafkapy.telemetry.received import MAX_OF_INSTANCE, ReceivedMetrics

if TYPE_CHECKING:
    from kafkapy.runtime.pool import HeavyWork
    from kafkapy.runtime.turns import Walk
    from kafkapy.timer.wheel import TimingWheel
    from kafkapy.types import Uuid

MAGIC: Final = 2
READ_AT_ONCE: Final = 4
"""Pushes that are decompressed and read at a time: each may take several times telemetry.max.bytes of memory."""


class Forwarder(Protocol):
    """Sends what was received elsewhere, without ever blocking the caller."""

    def send(self, data: bytes, attributes: dict[str, str]) -> None:
        """Send an encoded MetricsData; `attributes`: what the broker knows of the client."""
        ...

    def close(self) -> None: ...

    @property
    def counts(self) -> dict[str, int]:
        """The numbers of pushes that were sent, that failed, and that were dropped."""
        ...


class ClientTelemetry:
    """The subscriptions, the instances and the metrics received, of one broker."""

    def __init__(
        self,
        *,
        wheel: "TimingWheel",
        new_uuid: "Callable[[], Uuid]",
        max_bytes: int,
        forwarder: Forwarder | None,
        on_unusable: Callable[[str], None],
    ) -> None:
        """max_bytes: telemetry.max.bytes. `on_unusable`: called with a subscription's name if its patterns cannot be
        evaluated."""
        self.max_bytes = max_bytes
        self.forwarder = forwarder
        self.received = ReceivedMetrics()
        self.instances = ClientInstances(wheel, new_uuid, self._forgotten)
        self.push_count = 0
        self.failure_count = 0
        self._on_unusable = on_unusable
        self._reading = asyncio.Semaphore(READ_AT_ONCE)

    def apply_delta(self, changed: Iterable[ConfigResource], image: MetadataImage) -> None:
        """Apply changed subscriptions."""
        for resource in changed:
            if resource.resource_type == RESOURCE_CLIENT_METRICS:
                configs = image.configs.of(RESOURCE_CLIENT_METRICS, resource.name)
                subscription = self.instances.update(resource.name, configs)
                if subscription is not None and subscription.patterns is None:
                    self._on_unusable(resource.name)

    def disconnected(self, connection_id: str) -> None:
        self.instances.disconnected(connection_id)

    async def receive(
        self, instance: ClientInstance, metrics: bytes, compression: int, *, heavy_work: "HeavyWork", way: "Walk"
    ) -> None:
        """Take a push. Raises ApiError INVALID_RECORD if it is too large decompressed, or not OTLP."""
        async with self._reading:
            try:
                data = await self._decompressed(bytes(metrics), compression, heavy_work)
                points = await _read(data, way)
            except (RecordsError, OtlpError) as error:
                self.failure_count += 1
                instance.record_failure()
                raise ApiError(ErrorCode.INVALID_RECORD, str(error)) from error
        self.push_count += 1
        self._keep(instance, points)
        if self.forwarder is not None:
            self.forwarder.send(data, dict(instance.attributes))

    def _keep(self, instance: ClientInstance, points: Iterable[Point]) -> None:
        if not self.instances.is_known(instance):
            return  # its connection has closed meanwhile
        identity_characters = sum(map(len, instance.attributes.values()))
        for point in points:
            self.received.add(instance.client_instance_id, point, identity_characters=identity_characters)

    async def _decompressed(self, metrics: bytes, compression: int, heavy_work: "HeavyWork") -> bytes:
        if compression == NONE:
            return metrics
        needed_bytes = 2 * inflated_at_most(compression, metrics, self.max_bytes)
        return await heavy_work.run(partial(decompress, compression, metrics, MAGIC, self.max_bytes), needed_bytes)

    def _forgotten(self, instance: ClientInstance) -> None:
        self.received.forget(instance.client_instance_id)


async def _read(data: bytes, way: "Walk") -> list[Point]:
    """Return the points of a push. Points beyond an instance's limit are read, but dropped."""
    points: list[Point] = []
    async for point in way.over(points_of(data)):
        if point is not None and len(points) <= MAX_OF_INSTANCE:
            points.append(point)
    return points
