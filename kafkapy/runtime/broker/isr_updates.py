"""Requests ISR changes from the controller (AlterPartition): many partitions per request, one in flight. KIP-497.

While its request is pending, a partition uses the maximal ISR (replication/partition.py). A response is applied at
once, before the metadata log delivers the same change. Errors, as in Apache Kafka's Partition:

    INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED    nothing was changed: the ISR is as before
    codes of DECIDED_BY_METADATA                   the change may have been made: the metadata will show it
    any other, of a partition or the whole         retried after RETRY_MS; logged once until the code changes
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_request import (
    AlterPartitionRequest,
    BrokerState,
    PartitionData,
    TopicData,
)
from kafkapy.protocol.messages.alter_partition_response import AlterPartitionResponse
from kafkapy.protocol.messages.alter_partition_response import PartitionData as PartitionResponse

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.partition import PendingIsr
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.broker.active_controller import ActiveController
    from kafkapy.seams import Clock

ALTER_PARTITION_VERSION: Final = 3
RETRY_MS: Final = 50
"""Apache Kafka's wait before an AlterPartition is sent again."""
PARTITIONS_PER_REQUEST: Final = 500
"""Partitions per request, some 5 ms to build and to apply. Apache Kafka puts all into one request."""
REJECTED: Final = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
DECIDED_BY_METADATA: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)

logger = logging.getLogger("kafkapy.runtime")


class IsrUpdates:
    """Monitors the lag of followers and has the controller change ISRs."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        controller: "ActiveController",
        *,
        node_id: int,
        broker_epoch: Callable[[], int],
        max_lag_ms: Callable[[], int],
        clock: "Clock",
    ) -> None:
        """`max_lag_ms()`: replica.lag.time.max.ms."""
        self._replica_manager = replica_manager
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._max_lag_ms = max_lag_ms
        self._clock = clock
        self._queued: dict[HostedPartition, PendingIsr] = {}
        self._has_queued = asyncio.Event()
        self._brokers_changed = asyncio.Event()
        self._failure: str | None = None
        """Why the last request failed."""
        self._refusals: dict[HostedPartition, ErrorCode] = {}
        """The last logged code of each partition that is being retried."""
        self._tasks: list[asyncio.Task[None]] = []
        self.shrink_count = self.expand_count = self.failure_count = 0
        """Changes that the controller has made, and its refusals, also of changes that are requested again."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_queued()), loop.create_task(self._watch_lag())]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def enqueue(self, partition: "HostedPartition") -> None:
        """Queue a partition's pending ISR for the next request."""
        assert partition.pending_isr is not None
        self._queued[partition] = partition.pending_isr
        self._has_queued.set()

    def on_brokers_changed(self) -> None:
        """Re-check the high watermarks soon: they may have waited for a broker that is fenced now.

        The controller may fence a broker in a later batch than the one that removes it from ISRs.
        """
        self._brokers_changed.set()

    async def _watch_lag(self) -> None:
        """Every half of max_lag_ms, remove followers that fell behind from ISRs and re-check the high watermarks."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._max_lag_ms() / 2000):
                    await self._brokers_changed.wait()
            self._brokers_changed.clear()
            now_ms = self._clock.monotonic_ms()
            for count, partition in enumerate(list(self._replica_manager.partitions)):
                try:
                    self._check_partition(partition, now_ms)
                except Exception:  # one partition's failure must not affect the others
                    logger.exception(
                        "Checking the ISR of %s for lagging replicas failed unexpectedly", partition.topic_partition
                    )
                if count % 200 == 199:
                    await asyncio.sleep(0)

    def _check_partition(self, partition: "HostedPartition", now_ms: int) -> None:
        isr = partition.isr_without_stragglers(now_ms)
        if isr is not None:
            logger.info("Shrinking ISR of %s from %s to %s", partition.topic_partition, _ids(partition.isr), _ids(isr))
            partition.begin_isr_change(isr)
            self.enqueue(partition)
        elif (
            partition.is_leader
            and not partition.is_alone
            and (partition.maybe_advance_high_watermark(now_ms) or partition.is_log_start_changed)
        ):
            self._replica_manager.complete_waiting(partition)

    async def _send_queued(self) -> None:
        while True:
            await self._has_queued.wait()
            await asyncio.sleep(0)  # lets changes of the same loop pass share a request
            sent = self._next_batch()
            if not sent:
                continue
            try:
                response = await self._send_request(sent)
                self._record_failure(ErrorCode(response.error_code).name if response.error_code else None)
                refused = self._apply_response(response, sent)
                if refused:
                    await self._send_again(refused)
            except ApiError as error:
                self._record_failure(str(error))
                await self._send_again(sent)
            except Exception:
                logger.exception("AlterPartition failed unexpectedly")
                await self._send_again(sent)

    def _next_batch(self) -> "dict[HostedPartition, PendingIsr]":
        """Take the next request's changes from the queue, at most PARTITIONS_PER_REQUEST."""
        self._has_queued.clear()
        sent = {}
        for partition in list(islice(self._queued, PARTITIONS_PER_REQUEST)):
            pending = self._queued.pop(partition)
            if partition.pending_isr is pending:
                sent[partition] = pending
            else:  # newer metadata has decided it, or the partition is gone
                self._refusals.pop(partition, None)
        if self._queued:
            self._has_queued.set()
        return sent

    def _record_failure(self, failure: str | None) -> None:
        """Log the failure of a request once, and when requests work again."""
        before, self._failure = self._failure, failure
        if failure is not None and failure != before:
            logger.warning("No response to AlterPartition, trying again every %d ms: %s", RETRY_MS, failure)
        elif failure is None and before is not None:
            logger.info("AlterPartition is answered again")

    async def _send_again(self, sent: "dict[HostedPartition, PendingIsr]") -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        for partition, pending in sent.items():  # queue them after newer ones
            self._queued.setdefault(partition, pending)
        self._has_queued.set()

    async def _send_request(self, sent: "dict[HostedPartition, PendingIsr]") -> AlterPartitionResponse:
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, TopicData] = {}
        for partition, pending in sent.items():
            topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[]))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=self._with_epochs(pending),
                )
            )
        request.topics = list(topics.values())
        return await self._controller.send_request(
            request,
            lambda controller, _: controller.partitions.decide_alter_partition(request, ALTER_PARTITION_VERSION),
        )

    def _with_epochs(self, pending: "PendingIsr") -> list[BrokerState]:
        return [
            BrokerState(
                broker_id=replica_id, broker_epoch=self._broker_epoch() if replica_id == self._node_id else broker_epoch
            )
            for replica_id, broker_epoch in zip(pending.isr, pending.broker_epochs, strict=True)
        ]

    def _apply_response(
        self, response: AlterPartitionResponse, sent: "dict[HostedPartition, PendingIsr]"
    ) -> "dict[HostedPartition, PendingIsr]":
        """Apply a response; return the changes to be sent again."""
        results = {
            (topic.topic_id, result.partition_index): result for topic in response.topics for result in topic.partitions
        }
        refused = {}
        for partition, pending in sent.items():
            result = results.get((partition.topic_id, partition.topic_partition.partition))
            if partition.pending_isr is not pending:  # newer metadata has decided it
                self._refusals.pop(partition, None)
                if result is not None and not result.error_code:
                    self._log_change(partition, pending)
            elif result is None or not self._apply_result(partition, pending, result):
                refused[partition] = pending
        return refused

    def _log_change(self, partition: "HostedPartition", made: "PendingIsr") -> None:
        """Count a change that the controller has made. Its metadata often arrives before its response."""
        self.shrink_count += made.added_count < 0
        self.expand_count += made.added_count > 0
        logger.info("ISR of %s updated to %s", partition.topic_partition, _ids(partition.isr))

    def _apply_result(self, partition: "HostedPartition", pending: "PendingIsr", response: PartitionResponse) -> bool:
        """Apply one partition's result; return False if the change is to be sent again."""
        if response.error_code:
            self.failure_count += 1
            code = ErrorCode(response.error_code)
            if self._refusals.get(partition) is not code:
                logger.info(
                    "Could not change the ISR of %s, which stays %s: %s",
                    partition.topic_partition,
                    _ids(partition.isr),
                    code.name,
                )
            if code not in REJECTED and code not in DECIDED_BY_METADATA:
                self._refusals[partition] = code
                return False
            self._refusals.pop(partition, None)
            if code in REJECTED:
                partition.reject_isr_change()
                self._replica_manager.notify_appended(partition)  # the high watermark need not wait for it now
            return True
        self._refusals.pop(partition, None)
        has_moved = partition.end_isr_change(
            response.isr,
            leader_epoch=response.leader_epoch,
            partition_epoch=response.partition_epoch,
            now_ms=self._clock.monotonic_ms(),
        )
        self._log_change(partition, pending)
        if has_moved:
            self._replica_manager.complete_waiting(partition)
        return True


def _ids(isr: Sequence[int]) -> str:
    """Return replica ids as Apache Kafka logs them: 1,2,3."""
    return ",".join(map(str, isr))
