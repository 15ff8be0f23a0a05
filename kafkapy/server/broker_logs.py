"""A broker's logs at its start: loaded with the topics' configs, each judged by the metadata."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from kafkapy.metadata.image import RESOURCE_TOPIC
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.runtime.logs.recovery import LogRecovery
from kafkapy.server.node import Node
from kafkapy.storage.log.log import Log
from kafkapy.storage.manager.loading import LogLoading
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy import seams


class BrokerLogs:
    """Loads the logs of a node, and configures its LogManager as the dynamic configuration changes."""

    def __init__(self, node: Node, new_helper: "Callable[[asyncio.AbstractEventLoop], seams.HelperProcess]") -> None:
        """new_helper: starts the process that recovers logs."""
        self._node = node
        self._new_helper = new_helper

    async def load(self) -> None:
        """Load all logs, recovering those that need it. Logs of no replica of this broker are renamed to `-stray`."""
        image = self._node.controller.image
        self._node.update_dynamic_config(image)
        self.configure_manager()
        loading = LogLoading(
            self._node.log_manager,
            now_ms=self._node.clock.wall_ms(),
            clock_ms=self._node.clock.monotonic_ms,
            config_for=lambda topic: self._node.dynamic_config.log_config(image.configs.of(RESOURCE_TOPIC, topic)),
            is_stray=lambda log: self._registration_of(log) is None,
            assigned_directory=self._assigned_directory,
        )
        self._node.conditions["logs"] = lambda: loading.missing
        config = self._node.dynamic_config.current
        recovery = LogRecovery(
            loading,
            new_helper=self._new_helper,
            threads_per_directory=config.log.num_recovery_threads_per_data_dir,
            producer_id_expiration_ms=config.transaction.producer_id_expiration_ms,
            clock=self._node.clock,
            on_loaded=self._node.notify_applied,
        )
        await recovery.load_all()
        if len(config.log_dirs) > 1:
            _import_moves()

    def configure_manager(self) -> None:
        """Apply the configuration in force to the LogManager: cordoned directories, how long producers are kept.

        Defaults of topics are not applied here: HostedPartitions updates the logs.
        """
        config = self._node.dynamic_config.current
        self._node.log_manager.directories.cordon(config.log.cordoned_log_dirs)
        self._node.log_manager.configure_producers(
            expiration_ms=config.transaction.producer_id_expiration_ms,
            is_verification_enabled=config.transaction.transaction_partition_verification_enable,
            max_producers=config.transaction.kafkapy_producers_max,
        )

    def _registration_of(self, log: Log) -> PartitionRegistration | None:
        """Return the registration of a log's partition; None if the metadata assigns no such replica to this broker."""
        topic = self._node.controller.image.topics.by_name.get(log.topic_partition.topic)
        if topic is None or (log.topic_id is not None and log.topic_id != topic.topic_id):
            return None
        partition = topic.partitions.get(log.topic_partition.partition)
        return partition if partition is not None and self._node.config.node_id in partition.replicas else None

    def _assigned_directory(self, log: Log) -> Uuid | None:
        registration = self._registration_of(log)
        return registration.directory_of(self._node.config.node_id) if registration is not None else None


def _import_moves() -> None:
    """Import what the first move to another directory needs: 6 to 8 ms, for which that would hold up all clients.

    A node with one directory moves nothing, and need not.
    """
    from kafkapy.handlers.cluster import alter_replica_log_dirs as _requests  # noqa: F401
    from kafkapy.replication import log_move as _moves  # noqa: F401
    from kafkapy.storage.log import replacement as _end  # noqa: F401
