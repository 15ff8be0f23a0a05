"""A node with only the controller role: it votes, decides, and serves the controller listeners (KIP-631, KIP-919).

It opens no topic's log and registers no broker. Start: lock and check the directories -> bind listeners -> recover the
metadata log, join the quorum -> register as a controller, in the background: a quorum without a leader may need this
node's vote first. Stop is the reverse.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING

from kafkapy.config.broker import BrokerConfig
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import MetadataImage, QuotaEntity
from kafkapy.reactor.io_pool import ThreadIoPool
from kafkapy.server.node import Node
from kafkapy.server.quorum_node import SOCKETS, Network
from kafkapy.server.stopping import StopOrder
from kafkapy.storage.file_names import partition_directories

if TYPE_CHECKING:
    from kafkapy import seams
    from kafkapy.gauge import Measured

logger = logging.getLogger("kafkapy.server")


class ControllerServer:
    """A controller on one event loop; started and stopped like server.broker.BrokerServer."""

    def __init__(
        self,
        config: BrokerConfig,
        *,
        disk: "seams.Disk",
        clock: "seams.Clock",
        random: "seams.Random",
        new_io_pool: "Callable[[asyncio.AbstractEventLoop, int], seams.IoPool]" = ThreadIoPool,
        network: Network = SOCKETS,
    ) -> None:
        assert config.is_controller, "a node without the role controller is a BrokerServer"
        assert not config.is_broker, "a node with the role broker is a BrokerServer"
        self.config = config
        self.node_id = config.node_id
        self._node = Node(
            config,
            disk=disk,
            clock=clock,
            random=random,
            new_io_pool=new_io_pool,
            network=network,
        )
        self._catch_up: asyncio.Task[None] | None = None

    @property
    def node(self) -> Node:
        """The node, for tests and for the process that runs it."""
        return self._node

    @property
    def cluster_id(self) -> str:
        return self._node.cluster_id

    @property
    def failed(self) -> "asyncio.Future[BaseException] | None":
        """Completed with the error when the node cannot continue; the owner of the node then stops it."""
        return self._node.failed

    @property
    def bootstrap_servers(self) -> str:
        """host:port of the first controller listener, as bound: for --bootstrap-controller."""
        endpoint = self._node.quorum_node.endpoints[0]
        return f"{endpoint.host}:{endpoint.port}"

    async def start(self) -> None:
        """Start; other nodes may connect when this returns. Raises as BrokerServer.start does."""
        await self._node.run(self._start)
        logger.info("Kafka Server started (kafkapy.server.ControllerServer)")

    async def stop(self) -> None:
        """Resign and stop in order. Takes all steps, then raises the first error."""
        logger.info("Beginning controlled shutdown")
        await self._node.stops.stop()
        logger.info("Shut down completed")

    async def _start(self) -> None:
        node = self._node
        if node.counts is not None:
            from kafkapy.server.admin.serve import serve_admin  # not needed by most nodes

            serve_admin(node)
        node.open_directories(self._close_directories)
        await node.start_quorum()
        image = node.controller.image
        node.update_dynamic_config(image)
        self._apply_quotas(image, image.client_quotas)
        node.controller.add_image_listener(self._on_image)
        if self._is_metadata_known():
            node.metadata_is_known()
        else:
            self._catch_up = node.loop.create_task(self._await_metadata())
            node.stops.add(StopOrder.METADATA_PUBLISHER, self._end_catch_up)
        node.check_not_failed()
        node.gauges = self._gauges
        node.conditions["listeners"] = node.quorum_node.missing_listeners

    def _gauges(self) -> "Iterator[Measured | None]":
        from kafkapy.server.admin.gauges import node_gauges  # used by /metrics only

        return node_gauges(self._node)

    def _on_image(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self._node.apply_config_changes(delta.config_changes, image)
        self._apply_quotas(image, delta.quota_changes)

    def _apply_quotas(self, image: MetadataImage, changed: Collection[QuotaEntity]) -> None:
        services = self._node.quorum_node.services
        if changed and services is not None:
            from kafkapy.server.client_quotas import apply_quotas  # most controllers have none

            for _ in apply_quotas([services], image, changed):
                pass

    def _is_metadata_known(self) -> bool:
        """Whether the image has reached the first high watermark that a leader has reported since the start.

        This node's own snapshot may be long out of date, and so may its ACLs.
        """
        quorum, image = self._node.quorum_node.quorum, self._node.controller.image
        return quorum.has_learned_high_watermark and quorum.high_watermark <= image.provenance.last_offset + 1

    async def _await_metadata(self) -> None:
        """Use the image's ACLs once it has reached that high watermark."""
        await self._node.quorum_node.quorum.wait_until(self._is_metadata_known)
        self._node.metadata_is_known()

    async def _end_catch_up(self) -> None:
        assert self._catch_up is not None
        self._catch_up.cancel()
        await asyncio.gather(self._catch_up, return_exceptions=True)

    async def _close_directories(self) -> None:
        """Close the directories without touching topic logs left from a former broker role.

        An unrecovered directory is not marked clean, unless it holds no partition.
        """
        node = self._node
        for directory in node.log_manager.directories.live:
            if directory.was_clean_shutdown or not partition_directories(node.disk, directory.path):
                directory.write_clean_shutdown(node.previous_broker_epoch)
        node.log_manager.close()
