"""Finds transactions that stay open too long: counts them in a gauge and logs the command that aborts them.

A transaction is late if its producer has been silent for transaction.max.timeout.ms plus five minutes: its coordinator
would have aborted it by then. It hangs if its coordinator does not know that the partition takes part, because a marker
was lost or the producer was never verified (KIP-664). It blocks the last stable offset at its first record.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.transaction import TransactionConfig
from kafkapy.replication.hosted_partitions import HostedPartitions
from kafkapy.seams import Clock
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.storage.producers.state import LateTransaction

CHECK_S: Final = 60
PARTITIONS_PER_SLICE: Final = 500
"""Partitions checked before other tasks run: under a millisecond."""

logger = logging.getLogger("kafkapy.transaction")


class LateTransactions:
    """Owns a task between start() and close()."""

    def __init__(
        self,
        partitions: HostedPartitions,
        config: Callable[[], TransactionConfig],
        *,
        is_expected: Callable[[int, TopicPartition], bool],
        is_known_here: Callable[[], bool],
        clock: Clock,
    ) -> None:
        """`is_expected(producer_id, partition)`: whether a coordinator here will end the transaction in the partition.

        `is_known_here`: whether all transactions are coordinated here, so that no other broker will.
        """
        self._partitions = partitions
        self._config = config
        self._is_expected = is_expected
        self._is_known_here = is_known_here
        self._clock = clock
        self._found: dict[TopicPartition, LateTransaction] = {}
        self._task: asyncio.Task[None] | None = None

    @property
    def partition_count(self) -> int:
        """The number of partitions with a late transaction, at the last check."""
        return len(self._found)

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._check_periodically())

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def check(self) -> None:
        """Check every partition that is led here; log the transactions that hang since the last check."""
        max_timeout_ms = self._config().transaction_max_timeout_ms
        found: dict[TopicPartition, LateTransaction] = {}
        for count, partition in enumerate(list(self._partitions), 1):
            if partition.log is not None and partition.is_leader:
                late = partition.log.producer_state.late_transaction(self._clock.wall_ms(), max_timeout_ms)
                if late is not None:
                    found[partition.topic_partition] = late
            if count % PARTITIONS_PER_SLICE == 0:
                await asyncio.sleep(0)
        before, self._found = self._found, found
        for topic_partition, late in found.items():
            if before.get(topic_partition) != late and not self._is_expected(late.producer_id, topic_partition):
                self._report(topic_partition, late)

    def _report(self, topic_partition: TopicPartition, late: "LateTransaction") -> None:
        topic, partition = topic_partition
        if self._is_known_here():
            advice = f"To abort it: kafkapy transactions abort {topic} {partition} --start-offset {late.first_offset}"
        else:
            command = f"kafkapy transactions find-hanging --topic {topic} --partition {partition}"
            advice = f"Whether a coordinator on another broker will end it: {command}"
        logger.warning(
            "A transaction hangs in %s: producer %d, open from offset %d on, silent for %d min. "
            "read_committed consumers wait there. %s",
            topic_partition,
            late.producer_id,
            late.first_offset,
            (self._clock.wall_ms() - late.last_timestamp_ms) // 60_000,
            advice,
        )

    async def _check_periodically(self) -> None:
        while True:
            await asyncio.sleep(CHECK_S)
            try:
                await self.check()
            except Exception:
                logger.exception("The check for hanging transactions failed, trying again in a minute")
