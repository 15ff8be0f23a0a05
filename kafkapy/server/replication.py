"""Replication with other brokers: fetchers for the partitions it follows, ISR updates for those it leads."""

from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING

from kafkapy.config.dynamic import DynamicConfig
from kafkapy.metadata.image import RESOURCE_BROKER
from kafkapy.runtime.broker.active_controller import ActiveController

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.broker.isr_updates import IsrUpdates
    from kafkapy.runtime.followers.replica_fetchers import ReplicaFetchers
    from kafkapy.seams import Clock
    from kafkapy.server.quorum_node import QuorumNode
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager


class Replication:
    """Its parts are created when a second broker registers; a single broker never imports their modules."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        log_manager: "LogManager",
        quorum_node: "QuorumNode",
        *,
        dynamic_config: DynamicConfig,
        broker_epoch: Callable[[], int],
        flush: "Callable[[Log], Awaitable[None]]",
        clock: "Clock",
    ) -> None:
        """`flush(log)` makes a log durable."""
        self._replica_manager = replica_manager
        self._log_manager = log_manager
        self._quorum_node = quorum_node
        self._dynamic_config = dynamic_config
        self._node_id = replica_manager.node_id
        self._broker_epoch = broker_epoch
        self._flush = flush
        self._clock = clock
        self._fetchers: ReplicaFetchers | None = None
        self._isr_updates: IsrUpdates | None = None

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage", now_ms: int) -> Iterator[None]:
        """Apply a metadata change to the replicas; each next() does one step.

        The fetchers are there before: each partition that this broker follows is fetched once its role is set.
        """
        if self._fetchers is None and len(image.cluster.brokers) > 1:
            self._start_isr_updates()
            self._fetchers = self._new_fetchers()
            self._set_throttles(self._fetchers)
        elif self._fetchers is not None:
            if any(resource.resource_type == RESOURCE_BROKER for resource in delta.config_changes):
                self._set_throttles(self._fetchers)
            yield from self._fetchers.maybe_resize()
        yield from self._replica_manager.apply_delta(delta, image, now_ms)
        if delta.broker_changes and self._isr_updates is not None:
            self._isr_updates.on_brokers_changed()

    @property
    def fetchers(self) -> "ReplicaFetchers | None":
        """None while no second broker is registered."""
        return self._fetchers

    @property
    def isr_updates(self) -> "IsrUpdates | None":
        return self._isr_updates

    async def stop(self) -> None:
        if self._isr_updates is not None:
            await self._isr_updates.stop()
        if self._fetchers is not None:
            await self._fetchers.stop()

    def _set_throttles(self, fetchers: "ReplicaFetchers") -> None:
        """Apply the rates of the replication throttles. Only dynamic configs count, not the properties file."""
        from kafkapy.replication.throttle import ReplicationThrottle, ThrottledSide, changed_throttle

        config = self._dynamic_config
        dynamic = (config.broker, config.cluster)

        def new(side: ThrottledSide, bytes_per_second: int) -> ReplicationThrottle:
            return ReplicationThrottle(
                side, bytes_per_second, node_id=self._node_id, quota=config.current.quota, clock=self._clock
            )

        watches = self._replica_manager.watches
        watches.throttle = changed_throttle(watches.throttle, ThrottledSide.LEADER, dynamic, new)
        fetchers.throttle = changed_throttle(fetchers.throttle, ThrottledSide.FOLLOWER, dynamic, new)

    def _new_fetchers(self) -> "ReplicaFetchers":
        from kafkapy.runtime.followers.replica_fetchers import ReplicaFetchers

        return ReplicaFetchers(
            self._replica_manager,
            self._log_manager,
            config=lambda: self._dynamic_config.current,
            broker_epoch=self._broker_epoch,
            new_peer=self._quorum_node.peers.new_broker_peer,
            flush=self._flush,
            clock=self._clock,
        )

    def _start_isr_updates(self) -> None:
        """Start the task that adds followers to ISRs and removes them."""
        from kafkapy.runtime.broker.isr_updates import IsrUpdates

        self._isr_updates = IsrUpdates(
            self._replica_manager,
            ActiveController(self._quorum_node.controller, self._quorum_node.new_channel),
            node_id=self._node_id,
            broker_epoch=self._broker_epoch,
            max_lag_ms=lambda: self._dynamic_config.current.replication.replica_lag_time_max_ms,
            clock=self._clock,
        )
        self._replica_manager.on_isr_wanted = self._isr_updates.enqueue
        self._isr_updates.start()
