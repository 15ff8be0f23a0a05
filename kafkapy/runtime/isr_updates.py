"""Asking the controller for other ISRs (AlterPartition): many partitions in a request, one request at a time. KIP-497.

A partition whose request is on its way counts the maximal ISR (replication/partition.py). What the controller answers
is taken over at once, before the metadata log tells the same. A request that finds no controller is sent again after
RETRY_MS; a refusal ends the change: the partition asks again when a fetch or the lag says so.
"""

import asyncio
import logging
from collections.abc import Callable
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
from kafkapy.protocol.messages.alter_partition_response import PartitionData as PartitionAnswer

if TYPE_CHECKING:
    from kafkapy.replication.hosted import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.active_controller import ActiveController
    from kafkapy.seams import Clock

ALTER_PARTITION_VERSION: Final = 3
RETRY_MS: Final = 50
"""Apache Kafka's wait before an AlterPartition is sent again."""
RETRIED: Final = frozenset((ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.STALE_BROKER_EPOCH))
INELIGIBLE: Final = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST))

logger = logging.getLogger("kafkapy.runtime")


class IsrUpdates:
    """Watches the lag of followers, and has the controller change ISRs."""

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
        """`max_lag_ms`: replica.lag.time.max.ms."""
        self._replica_manager = replica_manager
        self._controller = controller
        self._node_id = node_id
        self._broker_epoch = broker_epoch
        self._max_lag_ms = max_lag_ms
        self._clock = clock
        self._wanted: dict[HostedPartition, tuple[int, ...]] = {}
        self._is_wanted = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._send_wanted()), loop.create_task(self._watch_lag())]

    async def stop(self) -> None:
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def want(self, partition: "HostedPartition", isr: tuple[int, ...]) -> None:
        """Have the controller change a partition's ISR, soon."""
        partition.begin_isr_change(isr)
        self._wanted[partition] = isr
        self._is_wanted.set()

    async def _watch_lag(self) -> None:
        """Look every half of the allowed lag for followers that fell behind."""
        while True:
            await asyncio.sleep(self._max_lag_ms() / 2000)
            now_ms, max_lag_ms = self._clock.monotonic_ms(), self._max_lag_ms()
            for count, partition in enumerate(list(self._replica_manager.partitions)):
                isr = partition.isr_without_stragglers(now_ms, max_lag_ms)
                if isr is not None:
                    logger.info("Shrinking the ISR of %s from %s to %s", partition.topic_partition, partition.isr, isr)
                    self.want(partition, isr)
                if count % 200 == 199:
                    await asyncio.sleep(0)

    async def _send_wanted(self) -> None:
        while True:
            await self._is_wanted.wait()
            await asyncio.sleep(0)  # what is wanted in the same turn of the loop goes together
            self._is_wanted.clear()
            wanted, self._wanted = self._wanted, {}
            sent = {each: isr for each, isr in wanted.items() if each.is_leader and each.pending_isr == isr}
            if not sent:
                continue
            try:
                self._take(await self._ask(sent), sent)
            except ApiError as error:
                logger.info("AlterPartition was not answered: %s", error)
                await self._send_again(sent)
            except Exception:
                logger.exception("AlterPartition failed unexpectedly")
                await self._send_again(sent)

    async def _send_again(self, sent: "dict[HostedPartition, tuple[int, ...]]") -> None:
        await asyncio.sleep(RETRY_MS / 1000)
        self._wanted = sent | self._wanted
        self._is_wanted.set()

    async def _ask(self, sent: "dict[HostedPartition, tuple[int, ...]]") -> AlterPartitionResponse:
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=self._broker_epoch())
        topics: dict[bytes, TopicData] = {}
        for partition, isr in sent.items():
            topic = topics.setdefault(partition.topic_id, TopicData(topic_id=partition.topic_id, partitions=[]))
            topic.partitions.append(
                PartitionData(
                    partition_index=partition.topic_partition.partition,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr_with_epochs=[BrokerState(each, self._epoch_of(partition, each)) for each in isr],
                )
            )
        request.topics = list(topics.values())
        return await self._controller.ask(
            request,
            lambda controller, _: controller.partitions.decide_alter_partition(request, ALTER_PARTITION_VERSION),
        )

    def _epoch_of(self, partition: "HostedPartition", replica_id: int) -> int:
        if replica_id == self._node_id:
            return self._broker_epoch()
        follower = partition.followers.get(replica_id)
        return follower.broker_epoch if follower is not None else -1

    def _take(self, response: AlterPartitionResponse, sent: "dict[HostedPartition, tuple[int, ...]]") -> None:
        answers = {
            (topic.topic_id, answer.partition_index): answer for topic in response.topics for answer in topic.partitions
        }
        for partition, isr in sent.items():
            answer = answers.get((partition.topic_id, partition.topic_partition.partition))
            if partition.pending_isr != isr:
                continue  # newer metadata has settled it
            if answer is None or answer.error_code in RETRIED:
                self._wanted.setdefault(partition, isr)
                self._is_wanted.set()
            else:
                self._settle(partition, answer)

    def _settle(self, partition: "HostedPartition", answer: PartitionAnswer) -> None:
        if answer.error_code:
            code = ErrorCode(answer.error_code)
            logger.info("The ISR of %s stays %s: %s", partition.topic_partition, partition.isr, code.name)
            partition.give_up_isr_change(ineligible=code in INELIGIBLE)
            return
        has_moved = partition.end_isr_change(
            answer.isr, leader_epoch=answer.leader_epoch, partition_epoch=answer.partition_epoch
        )
        logger.info("The ISR of %s is %s now", partition.topic_partition, partition.isr)
        if has_moved:
            self._replica_manager.complete_waiting(partition)
