"""The transaction coordinator: the shards of transactional ids whose `__transaction_state` partitions are led here.

Transaction modules are imported when a partition of that topic is first led here, or on the first request.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

from kafkapy.config.transaction import TransactionConfig
from kafkapy.errors import ApiError
from kafkapy.named_tuple import NamedTuple
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.broker.producer_ids import ProducerIdManager
from kafkapy.runtime.coordinators.coordinator import Coordinator
from kafkapy.seams import Clock, IoPool
from kafkapy.timer.wheel import TimingWheel
from kafkapy.transaction.settings import TRANSACTION_STATE_TOPIC, TransactionSettings

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.runtime.coordinators.marker_writer import MarkerWriter
    from kafkapy.runtime.coordinators.markers import MarkerSink
    from kafkapy.runtime.coordinators.transaction_host import TransactionHost
    from kafkapy.runtime.coordinators.writer import CoordinatorLog
    from kafkapy.transaction.decision import TransactionDecision
    from kafkapy.transaction.shard import TransactionShard
    from kafkapy.types import TopicPartition

logger = logging.getLogger("kafkapy.transaction")

ABORT_INTERVAL_KEY: Final = "transaction_abort_timed_out_transaction_cleanup_interval_ms"
EXPIRY_INTERVAL_KEY: Final = "transaction_remove_expired_transaction_cleanup_interval_ms"


class TransactionKeys(NamedTuple):
    """The configuration of a transaction coordinator. transaction_version: returns the finalized level."""

    config: Callable[[], TransactionConfig]
    transaction_version: Callable[[], int]
    request_timeout_ms: int


class TransactionCoordinator(Coordinator["TransactionHost", "TransactionShard"]):
    """All transactional ids that this node coordinates."""

    topic: ClassVar[str] = TRANSACTION_STATE_TOPIC
    logger: ClassVar[logging.Logger] = logging.getLogger("kafkapy.transaction")

    def __init__(
        self,
        *,
        replica_manager: ReplicaManager,
        keys: TransactionKeys,
        producer_ids: ProducerIdManager,
        new_sink: "Callable[[], MarkerSink]",
        clock: Clock,
        wheel: TimingWheel,
        io_pool: IoPool,
    ) -> None:
        """new_sink: makes the MarkerSink for partition leaders."""
        super().__init__(replica_manager=replica_manager, clock=clock, wheel=wheel, io_pool=io_pool)
        self._keys = keys
        self._producer_ids = producer_ids
        self._new_sink = new_sink
        self._log: CoordinatorLog | None = None
        self._markers: MarkerWriter | None = None
        self._tasks: list[asyncio.Task[None]] = []

    # -- requests -------------------------------------------------------------------------------------------------

    async def decide(
        self, transactional_id: str, decide: "Callable[[TransactionShard, int], TransactionDecision]"
    ) -> Any:
        """Run a decision on the id's shard; return the response once the state that it depends on is committed.

        `decide(shard, wall clock ms)` is called again when it needed a producer id. Raises ApiError NOT_COORDINATOR,
        COORDINATOR_LOAD_IN_PROGRESS or COORDINATOR_NOT_AVAILABLE.
        """
        host = self.host_of(transactional_id)
        while True:
            try:
                return await host.decide(transactional_id, decide)
            except Exception as error:
                if not host.needs_producer_id(error):
                    raise
            await self._producer_ids.at_hand()

    def takes_part(self, producer_id: int, topic_partition: "TopicPartition") -> bool:
        """Whether a transaction coordinated here (or in a shard still loading) will write its end to the partition."""
        return any(
            not host.is_active or host.shard.takes_part(producer_id, topic_partition) for host in self._hosts.values()
        )

    def is_only_coordinator(self) -> bool:
        """Whether this broker coordinates all transactions."""
        topic = self._replica_manager.partitions.newest_image.topics.by_name.get(self.topic)
        return topic is None or all(each.leader == self._replica_manager.node_id for each in topic.partitions.values())

    def apply_delta(self, delta: "MetadataDelta", image: "MetadataImage") -> "Iterator[None]":
        """Like Coordinator.apply_delta; also retries markers that wait for a partition leader."""
        yield from super().apply_delta(delta, image)
        if self._markers is not None and delta.topics_changed is not None:
            self._markers.leaders_changed()

    # -- hosts ----------------------------------------------------------------------------------------------------

    @property
    def default_partition_count(self) -> int:
        return self._keys.config().transaction_state_log_num_partitions

    def _new_host(self, partition: "HostedPartition") -> "TransactionHost":
        from kafkapy.runtime.coordinators.transaction_host import TransactionHost
        from kafkapy.transaction.shard import TransactionShard

        shard = TransactionShard(
            TransactionSettings(self._keys.config, self._keys.transaction_version),
            coordinator_epoch=partition.leader_epoch,
            allocate_producer_id=self._producer_ids.allocate,
        )
        host = TransactionHost(
            partition,
            shard,
            self._coordinator_log(),
            replica_manager=self._replica_manager,
            clock=self._clock,
            wheel=self._wheel,
            logger=logger,
        )
        host.markers = self._marker_writer()
        return host

    def _coordinator_log(self) -> "CoordinatorLog":
        if self._log is None:
            from kafkapy.runtime.coordinators.writer import CoordinatorLog
            from kafkapy.transaction import records

            self._log = CoordinatorLog(
                codec=records,
                compression=lambda: 0,
                commit_timeout_ms=lambda: self._keys.request_timeout_ms,
                load_buffer_bytes=lambda: self._keys.config().transaction_state_log_load_buffer_size,
            )
        return self._log

    def _marker_writer(self) -> "MarkerWriter":
        if self._markers is None:
            from kafkapy.runtime.coordinators.marker_writer import MarkerWriter

            self._markers = MarkerWriter(
                self._new_sink(),
                clock=self._clock,
                wheel=self._wheel,
                timeout_ms=lambda: self._keys.request_timeout_ms,
                is_gone=self._is_gone,
            )
        return self._markers

    def _is_gone(self, topic_partition: "TopicPartition") -> bool:
        """Whether the partition was deleted, so that it needs no marker.

        Deviation: Apache Kafka 4.3.1 also treats a partition as deleted that has no leader for the moment (for example
        while a killed broker restarts) and completes the transaction without that marker. Here the marker waits,
        because the transaction would hang there (KAFKA-20734).
        """
        image: MetadataImage = self._replica_manager.partitions.newest_image
        return image.topics.partition(*topic_partition) is None

    # -- periodic work --------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the periodic checks for timed-out transactions and expired transactional ids."""
        loop = asyncio.get_running_loop()
        self._tasks = [
            loop.create_task(self._regularly(ABORT_INTERVAL_KEY, self.abort_timed_out)),
            loop.create_task(self._regularly(EXPIRY_INTERVAL_KEY, self.expire)),
        ]

    def _own_tasks(self) -> "Iterable[asyncio.Task[None] | None]":
        return self._tasks

    async def close(self) -> None:
        """Fail pending requests with COORDINATOR_NOT_AVAILABLE; leave unwritten markers to the next coordinator."""
        await super().close()
        if self._markers is not None:
            self._markers.close()

    async def _regularly(self, interval_key: str, act: "Callable[[], Any]") -> None:
        while True:
            await asyncio.sleep(getattr(self._keys.config(), interval_key) / 1000)
            try:
                await act()
            except Exception:
                logger.exception(
                    "The check for transactions that are over their time failed, trying again after %s", interval_key
                )

    async def abort_at_once(self, transactional_id: str) -> bool:
        """Abort the open transaction of an id as if it had timed out; return whether there is one. Raises ApiError."""
        host = self.host_of(transactional_id)
        host.check_active()
        if transactional_id not in host.shard.ongoing():
            return False
        await self._abort_timed_out(host, transactional_id, is_due=True)
        return True

    async def abort_timed_out(self) -> None:
        """Abort the transactions that exceed their transaction.timeout.ms; check for them in slices.

        Run each transaction.abort.timed.out.transaction.cleanup.interval.ms.
        """
        for host in list(self._hosts.values()):
            for ids in _slices(host.shard.ongoing()):
                await self._abort_those_timed_out(host, ids)
                await asyncio.sleep(0)

    async def _abort_those_timed_out(self, host: "TransactionHost", transactional_ids: "Sequence[str]") -> None:
        for transactional_id in host.timed_out(transactional_ids):
            try:
                await self._abort_timed_out(host, transactional_id)
            except ApiError as error:
                logger.warning(
                    "Could not abort the timed-out transaction of %s, trying again: %s", transactional_id, error
                )

    async def _abort_timed_out(self, host: "TransactionHost", transactional_id: str, *, is_due: bool = False) -> None:
        from kafkapy.transaction.decision import NeedsProducerId

        try:
            host.abort_timed_out(transactional_id, is_due=is_due)
        except NeedsProducerId:
            await self._producer_ids.at_hand()
            host.abort_timed_out(transactional_id, is_due=is_due)
        await asyncio.sleep(0)

    async def expire(self) -> None:
        """Remove the transactional ids that were not used for transactional.id.expiration.ms, in slices."""
        for host in list(self._hosts.values()):
            for ids in _slices(list(host.shard.transactions)):
                try:
                    host.expire(ids)
                except ApiError as error:
                    logger.warning(
                        "Could not remove expired transactional ids of %s, trying again: %s",
                        host.partition.topic_partition,
                        error,
                    )
                    break
                await asyncio.sleep(0)


def _slices(transactional_ids: "Sequence[str]") -> "Iterator[Sequence[str]]":
    from kafkapy.runtime.coordinators.transaction_host import IDS_PER_SLICE

    for start in range(0, len(transactional_ids), IDS_PER_SLICE):
        yield transactional_ids[start : start + IDS_PER_SLICE]
