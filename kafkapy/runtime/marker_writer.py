"""Brings the markers of decided transactions to their partitions, until each has its own.

Markers that are asked for in one turn of the event loop go out together in the next: those for one partition are one
write. Where all partitions are led here and take theirs, the transactions are complete when `flushed` returns. A
partition that cannot take its marker now (its directory is offline, its disk is full, it has no leader) holds up no
answer: it is tried again, with back-off, until it has it or its topic is deleted.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.markers import Marker, MarkerSink
from kafkapy.seams import Clock
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.runtime.transaction_host import TransactionHost
    from kafkapy.transaction.decision import WriteMarkers

logger = logging.getLogger("kafkapy.transaction")

FIRST_BACKOFF_MS: Final = 50
MAX_BACKOFF_MS: Final = 5000
MARKERS_PER_FLUSH: Final = 1000
"""Markers written before others get their turn: some tens of milliseconds at worst."""

WRITTEN: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)
"""Codes after which a partition needs no marker any more.

Deviation: after INVALID_PRODUCER_EPOCH Kafka leaves the transaction prepared for good. A partition says so only when a
later epoch of the producer has written to it, so nothing of this transaction is open there.
"""


class PendingMarkers(TimerEntry):
    """The markers of one transaction that are still to be written. In the wheel while it waits for the next try."""

    def __init__(
        self, host: "TransactionHost", effect: "WriteMarkers", retry: "Callable[[PendingMarkers], None]"
    ) -> None:
        super().__init__()
        self.host = host
        self.effect = effect
        self.partitions = effect.partitions
        self.marker = Marker(
            effect.producer_id,
            effect.producer_epoch,
            effect.is_commit,
            effect.coordinator_epoch,
            effect.transaction_version,
        )
        self._retry = retry
        self._backoff_ms = FIRST_BACKOFF_MS

    def next_backoff_ms(self) -> int:
        backoff_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, MAX_BACKOFF_MS)
        return backoff_ms

    def on_timeout(self, now_ms: int) -> None:
        self._retry(self)


class MarkerWriter:
    """All markers that the transactions coordinated here wait for."""

    def __init__(
        self,
        sink: MarkerSink,
        *,
        clock: Clock,
        wheel: TimingWheel,
        timeout_ms: Callable[[], int],
        is_gone: Callable[[TopicPartition], bool],
    ) -> None:
        """timeout_ms: how long replicas may take. is_gone: whether the metadata has a partition no more."""
        self._sink = sink
        self._clock = clock
        self._wheel = wheel
        self._timeout_ms = timeout_ms
        self._is_gone = is_gone
        self._queued: list[PendingMarkers] = []
        self._flush_ended: asyncio.Future[None] | None = None
        self._waiting: set[PendingMarkers] = set()
        """Those that wait for the next try."""
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """How many transactions wait for another try of some partition."""
        return len(self._waiting)

    def enqueue(self, host: "TransactionHost", effect: "WriteMarkers") -> None:
        """Write the markers of a decided transaction, soon."""
        self._enqueue(PendingMarkers(host, effect, self._try_again))

    async def flushed(self) -> None:
        """Return once the markers asked for so far were tried."""
        if self._flush_ended is not None:
            await asyncio.shield(self._flush_ended)

    def close(self) -> None:
        """Write no more; a later start goes on."""
        self._is_closed = True
        for pending in self._waiting:
            pending.cancel()
        self._waiting.clear()

    def _enqueue(self, pending: PendingMarkers) -> None:
        if self._is_closed:
            return
        self._queued.append(pending)
        if self._flush_ended is None:
            loop = asyncio.get_running_loop()
            self._flush_ended = loop.create_future()
            loop.call_soon(self._flush)

    def _try_again(self, pending: PendingMarkers) -> None:
        self._waiting.discard(pending)
        self._enqueue(pending)

    # -- writing --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        ended, self._flush_ended = self._flush_ended, None
        assert ended is not None
        batch = self._take_queued()
        try:
            if batch and not self._is_closed:
                self._write(batch)
        finally:
            if not ended.done():
                ended.set_result(None)

    def _take_queued(self) -> list[PendingMarkers]:
        """Return what one flush writes; the rest goes with the next."""
        taken, marker_count = 0, 0
        while taken < len(self._queued) and marker_count < MARKERS_PER_FLUSH:
            marker_count += len(self._queued[taken].partitions)
            taken += 1
        batch, rest = self._queued[:taken], self._queued[taken:]
        self._queued = []
        for pending in rest:
            self._enqueue(pending)
        return [pending for pending in batch if pending.host.is_active]

    def _write(self, batch: Sequence[PendingMarkers]) -> None:
        by_partition: dict[TopicPartition, list[PendingMarkers]] = {}
        for pending in batch:
            for partition in pending.partitions:
                if not self._is_gone(partition):
                    by_partition.setdefault(partition, []).append(pending)
        markers = {partition: [each.marker for each in waiting] for partition, waiting in by_partition.items()}
        self._sink.write(
            markers,
            timeout_ms=self._timeout_ms(),
            on_done=lambda results: self._on_written(batch, by_partition, results),
        )

    def _on_written(
        self,
        batch: Sequence[PendingMarkers],
        by_partition: Mapping[TopicPartition, Sequence[PendingMarkers]],
        results: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        refused: dict[PendingMarkers, dict[TopicPartition, ErrorCode]] = {}
        for partition, codes in results.items():
            for pending, code in zip(by_partition[partition], codes, strict=True):
                if code not in WRITTEN:
                    refused.setdefault(pending, {})[partition] = ErrorCode(code)
        for pending in batch:
            self._settle(pending, refused.get(pending, {}))

    def _settle(self, pending: PendingMarkers, refused: Mapping[TopicPartition, ErrorCode]) -> None:
        """Complete a transaction, or see to the partitions that it still waits for."""
        written = [partition for partition in pending.partitions if partition not in refused]
        pending.partitions = tuple(refused)
        try:
            pending.host.note_written(pending.effect, written)
        except ApiError as error:
            logger.warning("The end of the transaction of %s waits: %s", pending.effect.transactional_id, error)
        else:
            if not refused:
                return
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in refused.values():
                logger.info("Another coordinator ends the transaction of %s", pending.effect.transactional_id)
                return
            logger.info("Transaction of %s: markers wait for %s", pending.effect.transactional_id, dict(refused))
        if pending.host.is_active and not self._is_closed:
            self._waiting.add(pending)
            self._wheel.add(pending, self._clock.monotonic_ms() + pending.next_backoff_ms())
