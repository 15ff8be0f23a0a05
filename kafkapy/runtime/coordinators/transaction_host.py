"""Runs a transaction shard on its partition, and starts the markers that its decisions require.

A decision that ends a transaction has the effect WriteMarkers. The host passes it to the MarkerWriter once the records
are committed, and appends CompleteCommit or CompleteAbort when all partitions have their marker.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Protocol

from kafkapy.runtime.coordinators.shard_host import ShardHost
from kafkapy.seams import failpoint
from kafkapy.transaction.decision import NeedsProducerId, TransactionDecision, WriteMarkers
from kafkapy.transaction.shard import TransactionShard
from kafkapy.types import TopicPartition

logger = logging.getLogger("kafkapy.transaction")

IDS_PER_SLICE: Final = 500
"""Transactional ids checked for expiry or time-out before other tasks run: about a millisecond."""


class TransactionMarkers(Protocol):
    """Writes the markers of the transactions that hosts have ended (marker_writer.py)."""

    def enqueue(self, host: "TransactionHost", effect: WriteMarkers) -> None:
        """Write the markers of a decided transaction in the next turn of the loop."""
        ...

    def write_now(self, host: "TransactionHost", effect: WriteMarkers) -> bool:
        """Write the markers of a decided transaction, unless some wait for others; return whether all were tried."""
        ...

    async def tried(self, transactional_id: str) -> None:
        """Return once all markers of the id's transaction were tried, or wait for another node."""
        ...


class TransactionHost(ShardHost[TransactionShard]):
    """Runs the transactional ids of one partition of `__transaction_state`."""

    markers: TransactionMarkers
    """Set by the creator of the host."""

    def describe_load(self) -> str:
        return f"{len(self.shard.transactions)} transactional ids"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Ignore a marker: WriteTxnMarkers takes any partition, but no transaction has records in this one."""

    def on_active(self) -> None:
        """Complete the transactions that were decided before the load."""
        failpoint("transaction.load.replayed")
        self._apply_decision(self.shard.on_loaded(self._clock.wall_ms()))

    # -- requests -------------------------------------------------------------------------------------------------

    async def decide(
        self, transactional_id: str, decide: Callable[[TransactionShard, int], TransactionDecision]
    ) -> Any:
        """Decide, append, replay; return the response once committed, and once the markers were tried.

        `decide(shard, wall clock ms)`. Raises ApiError, NeedsProducerId.
        """
        self.check_active()
        decision = decide(self.shard, self._clock.wall_ms())
        assert decision.response is not None, "no request is parked"
        # Nothing to write to other partitions: an added partition, a new producer epoch, a response alone.
        if not decision.effects:
            self._apply_decision(decision)
            if not self.log.is_committed(self.replayed_offset):
                await self.committed()
            return decision.response
        failpoint("transaction.prepare.before_append")
        self._write(decision, None)
        if not self.log.is_committed(self.replayed_offset):
            self._run_when_committed(decision.effects)
            await self.committed()
        else:
            (effect,) = decision.effects
            failpoint("transaction.prepare.after_append")
            if self.markers.write_now(self, effect):
                return decision.response
        await self.markers.tried(transactional_id)
        return decision.response

    @staticmethod
    def needs_producer_id(error: Exception) -> bool:
        """Whether `decide` failed because no producer id was available: call it again once one is."""
        return isinstance(error, NeedsProducerId)

    # -- the end of a transaction ---------------------------------------------------------------------------------

    def run_effect(self, effect: WriteMarkers) -> None:
        failpoint("transaction.prepare.after_append")
        self.markers.enqueue(self, effect)

    def mark_written(self, effect: WriteMarkers, partitions: Iterable[TopicPartition]) -> None:
        """Record that these partitions have their marker, or need none; the last one completes the transaction.

        Raises ApiError if the completion cannot be appended; call again with no partitions.
        """
        if self.is_active:
            self._complete(self.shard.markers_written(effect, partitions, self._clock.wall_ms()))

    def mark_all_written(self, written: Sequence[tuple[WriteMarkers, Iterable[TopicPartition]]]) -> None:
        """Like `mark_written`, for several transactions: the completions are one write."""
        if self.is_active:
            now_ms = self._clock.wall_ms()
            decisions = [self.shard.markers_written(effect, partitions, now_ms) for effect, partitions in written]
            completions = [record for decision in decisions for record in decision.records]
            self._complete(TransactionDecision(records=completions, is_atomic=False))

    def _complete(self, decision: TransactionDecision) -> None:
        if decision.records:
            failpoint("transaction.complete.before_append")
            self._write(decision, None)  # nobody waits for it: EndTxn was answered by the first record
            failpoint("transaction.complete.after_append")

    # -- time -----------------------------------------------------------------------------------------------------

    def timed_out(self, transactional_ids: Iterable[str]) -> list[str]:
        """Return those of the ids whose transaction has timed out."""
        return self.shard.timed_out(transactional_ids, self._clock.wall_ms()) if self.is_active else []

    def abort_timed_out(self, transactional_id: str, *, is_due: bool = False) -> None:
        """Abort a timed-out transaction; is_due: whether it has timed out or not. Raises ApiError, NeedsProducerId."""
        if self.is_active:
            logger.info("Aborting the transaction of %s: its transaction.timeout.ms has passed", transactional_id)
            self._apply_decision(self.shard.abort_timed_out(transactional_id, self._clock.wall_ms(), is_due=is_due))

    def expire(self, transactional_ids: Iterable[str]) -> None:
        """Remove those of the ids that were not used for transactional.id.expiration.ms. Raises ApiError."""
        if self.is_active:
            self._apply_decision(self.shard.expire(transactional_ids, self._clock.wall_ms()))
