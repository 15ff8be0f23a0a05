"""Writes the markers of decided transactions to their partitions, with retries until each has its marker.

A marker for a partition in which no other transaction is open is written at once. The others wait for the next turn of
the event loop: it writes all markers of a partition by one append, and all completions of a shard's transactions, too.
If all partitions are led here and accept theirs, the transaction is complete when `tried` returns. A partition that
cannot take its marker now (offline directory, full disk, no leader) delays no response: it is retried, with back-off
and when leaders change, until it has the marker or its topic is deleted.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.coordinators.markers import Marker, MarkerSink
from kafkapy.seams import Clock
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from kafkapy.types import TopicPartition

if TYPE_CHECKING:
    from kafkapy.runtime.coordinators.transaction_host import TransactionHost
    from kafkapy.transaction.decision import WriteMarkers

logger = logging.getLogger("kafkapy.transaction")

FIRST_BACKOFF_MS: Final = 50
MAX_BACKOFF_MS: Final = 5000
"""Between tries of a transaction whose partitions refuse their markers; a change of leaders is tried at once."""
MARKERS_PER_FLUSH: Final = 200
"""Markers written before other tasks run: some milliseconds, if each is for another partition."""
MAX_MARKERS_NOW: Final = 4
"""Markers of a transaction that are written with its decision: a connection may have 32 of these in one turn."""

LOGGED_REFUSALS: Final = 5
"""The number of refused partitions, or of transactional ids, that a log line names."""

WRITTEN: Final = frozenset(
    (
        ErrorCode.NONE,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.INVALID_PRODUCER_EPOCH,
    )
)
"""Codes after which a partition needs no marker any more.

Deviation: Apache Kafka leaves the transaction prepared for ever after INVALID_PRODUCER_EPOCH. Here it goes on, because
a partition returns that code only if a later epoch of the producer has written to it, so nothing of this transaction is
open there.
"""


class PendingMarkers(TimerEntry):
    """The markers of one transaction that are not written yet. In the timing wheel while waiting for a retry."""

    def __init__(
        self, host: "TransactionHost", effect: "WriteMarkers", retry: "Callable[[PendingMarkers], None]"
    ) -> None:
        super().__init__()
        self.host = host
        self.effect = effect
        self.marker = _marker_of(effect)
        self.to_write = effect.partitions
        """Partitions that the current try has not reached yet."""
        self.refused: dict[TopicPartition, ErrorCode] = {}
        """Partitions that could not take their marker, to be retried."""
        self.is_queued = False
        self._was_tried = False
        self._waiters: list[asyncio.Future[None]] = []
        self._retry = retry
        self._backoff_ms = FIRST_BACKOFF_MS

    def pop(self, most: int) -> tuple[TopicPartition, ...]:
        """Take up to `most` partitions to write to now."""
        taken, self.to_write = self.to_write[:most], self.to_write[most:]
        return taken

    def on_tried(self) -> None:
        """Wake the callers of `tried`: the markers are written, or wait for a retry."""
        self._was_tried = True
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def tried(self) -> None:
        """Return after the first try."""
        await asyncio.sleep(0)  # the flush was scheduled before: mostly it is all there is to wait for
        if not self._was_tried:
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            await waiter

    def next_backoff(self) -> int:
        """Return the back-off before the next try in ms, and double it."""
        backoff_ms, self._backoff_ms = self._backoff_ms, min(2 * self._backoff_ms, MAX_BACKOFF_MS)
        return backoff_ms

    def forget_backoff(self) -> None:
        """Reset the back-off, as conditions have changed."""
        self._backoff_ms = FIRST_BACKOFF_MS

    def begin_again(self) -> None:
        """Put the refused partitions into the next try."""
        self.to_write, self.refused = (*self.to_write, *self.refused), {}

    def on_timeout(self, now_ms: int) -> None:
        self._retry(self)


Parts: TypeAlias = "Sequence[tuple[PendingMarkers, tuple[TopicPartition, ...]]]"
"""The content of one write: for each transaction, some or all of its partitions."""


class MarkerWriter:
    """All pending markers of transactions that are coordinated here."""

    def __init__(
        self,
        sink: MarkerSink,
        *,
        clock: Clock,
        wheel: TimingWheel,
        timeout_ms: Callable[[], int],
        is_gone: Callable[[TopicPartition], bool],
    ) -> None:
        """timeout_ms: time limit of replication. is_gone: whether a partition was deleted from the metadata."""
        self._sink = sink
        self._clock = clock
        self._wheel = wheel
        self._timeout_ms = timeout_ms
        self._is_gone = is_gone
        self._queued: deque[PendingMarkers] = deque()
        self._is_scheduled = False
        self._untried: dict[str, PendingMarkers] = {}
        """Transactions whose first try is not over, by transactional id."""
        self._waiting: set[PendingMarkers] = set()
        """Transactions that wait for the next try."""
        self._is_closed = False

    @property
    def waiting_count(self) -> int:
        """The number of transactions that wait for a retry."""
        return len(self._waiting)

    def enqueue(self, host: "TransactionHost", effect: "WriteMarkers") -> None:
        """Write the markers of a decided transaction in the next turn of the loop."""
        if not self._is_closed:
            pending = PendingMarkers(host, effect, self._try_again)
            self._untried[effect.transactional_id] = pending
            self._enqueue(pending)

    def write_now(self, host: "TransactionHost", effect: "WriteMarkers") -> bool:
        """Write the markers of a decided transaction, unless some wait for others; return whether all were tried.

        If another transaction is open in a partition, it may end in this pass of the loop, too: then the marker waits
        for the flush, which writes the markers of both together. Mostly nothing is left to do at the end, so that the
        transaction becomes pending only if something is.
        """
        if self._is_closed:
            return True
        written: list[TopicPartition] = []
        refused: dict[TopicPartition, ErrorCode] = {}
        if len(effect.partitions) <= MAX_MARKERS_NOW:
            try:
                self._write_sole(effect, written, refused)
            except BaseException:
                self.enqueue(host, effect)  # the decision remains: its markers must be written whatever has failed
                raise
        if len(written) < len(effect.partitions):
            return self._queue_rest(PendingMarkers(host, effect, self._try_again), written, refused)
        try:
            host.mark_written(effect, written)
        except ApiError as error:
            pending = PendingMarkers(host, effect, self._try_again)
            pending.to_write = ()
            _log_incomplete([pending], error)
            self._end_or_retry(pending, is_recorded=False)
        return True

    def _write_sole(
        self, effect: "WriteMarkers", written: list[TopicPartition], refused: dict[TopicPartition, ErrorCode]
    ) -> None:
        """Write markers until one has to wait for others; add each partition to `written` or `refused`."""
        marker = _marker_of(effect)
        for partition in effect.partitions:
            code = self._sink.write_sole(partition, marker)
            if code is None:
                return
            if code in WRITTEN or self._is_gone(partition):
                written.append(partition)
            else:
                refused[partition] = ErrorCode(code)

    def _queue_rest(
        self, pending: PendingMarkers, written: Sequence[TopicPartition], refused: dict[TopicPartition, ErrorCode]
    ) -> bool:
        """Queue what the first try has not reached, or retry the refused later; return whether all were tried."""
        done = len(written) + len(refused)
        pending.to_write, pending.refused = pending.effect.partitions[done:], refused
        if not pending.to_write:
            self._record_written(pending, written)
            return True
        pending.begin_again()  # else the refused would wait for the responses to the others, which may take long
        self._untried[pending.effect.transactional_id] = pending
        self._enqueue(pending)
        if written:
            self._record_written(pending, written)
        return False

    def leaders_changed(self) -> None:
        """Retry waiting transactions at once: their partitions may have a leader now."""
        for pending in list(self._waiting):
            pending.cancel()
            pending.forget_backoff()
            self._try_again(pending)

    async def tried(self, transactional_id: str) -> None:
        """Return once all markers of the id's transaction were tried, or wait for another node."""
        pending = self._untried.get(transactional_id)
        if pending is not None:
            await pending.tried()

    def close(self) -> None:
        """Stop writing; a later start continues."""
        self._is_closed = True
        for pending in self._waiting:
            pending.cancel()
        self._waiting.clear()
        for pending in list(self._untried.values()):
            self._end_try(pending)

    def _enqueue(self, pending: PendingMarkers) -> None:
        if not pending.is_queued:
            pending.is_queued = True
            self._queued.append(pending)
        if not self._is_scheduled:
            self._schedule()

    def _schedule(self) -> None:
        self._is_scheduled = True
        asyncio.get_running_loop().call_soon(self._flush)

    def _try_again(self, pending: PendingMarkers) -> None:
        self._waiting.discard(pending)
        pending.begin_again()
        self._enqueue(pending)

    def _end_try(self, pending: PendingMarkers) -> None:
        pending.on_tried()
        if self._untried.get(pending.effect.transactional_id) is pending:
            del self._untried[pending.effect.transactional_id]

    # -- writing --------------------------------------------------------------------------------------------------

    def _flush(self) -> None:
        self._is_scheduled = False
        parts = self._pop_parts()
        try:
            if parts:
                self._write(parts)
        finally:
            for pending, _ in parts:
                if not pending.to_write:  # else it has more partitions than one flush takes
                    self._end_try(pending)

    def _pop_parts(self) -> Parts:
        """Return the markers that one flush writes; the next one gets the rest."""
        parts: list[tuple[PendingMarkers, tuple[TopicPartition, ...]]] = []
        room = MARKERS_PER_FLUSH
        while self._queued and room > 0:
            pending = self._queued.popleft()
            pending.is_queued = False
            if self._is_closed or not pending.host.is_active:
                self._end_try(pending)
                continue
            parts.append((pending, pending.pop(room)))
            room -= max(len(parts[-1][1]), 1)
            if pending.to_write:
                self._enqueue(pending)
        if self._queued and not self._is_scheduled:
            self._schedule()
        return parts

    def _write(self, parts: Parts) -> None:
        """Write markers; those of deleted partitions count as written."""
        by_partition: dict[TopicPartition, list[PendingMarkers]] = {}
        for pending, partitions in parts:
            gone = []
            for partition in partitions:
                if self._is_gone(partition):
                    gone.append(partition)
                else:
                    by_partition.setdefault(partition, []).append(pending)
            if gone or not partitions:
                self._record_written(pending, gone)
        markers = {partition: [each.marker for each in waiting] for partition, waiting in by_partition.items()}
        self._sink.write(
            markers, timeout_ms=self._timeout_ms(), on_done=lambda results: self._on_written(by_partition, results)
        )

    def _on_written(
        self,
        by_partition: Mapping[TopicPartition, Sequence[PendingMarkers]],
        results: Mapping[TopicPartition, Sequence[int]],
    ) -> None:
        written: dict[PendingMarkers, list[TopicPartition]] = {}
        for partition, codes in results.items():
            for pending, code in zip(by_partition[partition], codes, strict=True):
                of_pending = written.setdefault(pending, [])
                if code in WRITTEN or self._is_gone(partition):
                    of_pending.append(partition)
                else:
                    pending.refused[partition] = ErrorCode(code)
        by_host: dict[TransactionHost, list[tuple[PendingMarkers, Sequence[TopicPartition]]]] = {}
        for pending, partitions in written.items():
            by_host.setdefault(pending.host, []).append((pending, partitions))
        for host, of_host in by_host.items():
            if len(of_host) == 1:
                self._record_written(*of_host[0])
            else:
                self._record_all_written(host, of_host)

    def _record_written(self, pending: PendingMarkers, written: Sequence[TopicPartition]) -> None:
        """Record the written markers, which may complete the transaction; schedule a retry of the refused ones."""
        is_recorded = True
        try:
            pending.host.mark_written(pending.effect, written)
        except ApiError as error:
            is_recorded = False
            _log_incomplete([pending], error)
        self._end_or_retry(pending, is_recorded)

    def _record_all_written(
        self, host: "TransactionHost", written: Sequence[tuple[PendingMarkers, Sequence[TopicPartition]]]
    ) -> None:
        """Like `_record_written`, for transactions of one shard: their completions are one write."""
        is_recorded = True
        try:
            host.mark_all_written([(pending.effect, partitions) for pending, partitions in written])
        except ApiError as error:
            is_recorded = False
            _log_incomplete([pending for pending, _ in written], error)
        for pending, _ in written:
            self._end_or_retry(pending, is_recorded)

    def _end_or_retry(self, pending: PendingMarkers, is_recorded: bool) -> None:
        """Schedule a retry if a partition has refused its marker, or if what was written could not be recorded."""
        transactional_id = pending.effect.transactional_id
        if self._is_closed or not pending.host.is_active:
            self._end_try(pending)
        elif ErrorCode.TRANSACTION_COORDINATOR_FENCED in pending.refused.values():
            logger.info("Leaving the markers of the transaction of %s to its new coordinator", transactional_id)
            self._end_try(pending)
            self._waiting.discard(pending)
            pending.cancel()
        elif (pending.refused or not is_recorded) and pending not in self._waiting and not pending.is_queued:
            logger.info(
                "Could not write all markers of the transaction of %s, trying again%s",
                transactional_id,
                _refusals(pending.refused),
            )
            self._waiting.add(pending)
            self._wheel.add(pending, self._clock.monotonic_ms() + pending.next_backoff())


def _marker_of(effect: "WriteMarkers") -> Marker:
    return Marker(
        effect.producer_id,
        effect.producer_epoch,
        effect.is_commit,
        effect.coordinator_epoch,
        effect.transaction_version,
    )


def _log_incomplete(transactions: Sequence[PendingMarkers], error: ApiError) -> None:
    ids = [pending.effect.transactional_id for pending in transactions[:LOGGED_REFUSALS]]
    rest = len(transactions) - len(ids)
    logger.warning(
        "Could not write the completion of the transactions of %s, trying again: %s",
        ", ".join(ids) + (f" and {rest} more" if rest else ""),
        error,
    )


def _refusals(refused: Mapping[TopicPartition, ErrorCode]) -> str:
    """Return ": partition: code, ..." for a log line; some of them if they are many."""
    some = [f"{partition}: {code.name}" for partition, code in islice(refused.items(), LOGGED_REFUSALS)]
    rest = len(refused) - len(some)
    return "".join((": " if some else "", ", ".join(some), f" and {rest} more" if rest else ""))
