"""Carries out the effects of the Raft core: appends and truncations, quorum-state, messages to peers."""

from collections.abc import Callable

from kafkapy.machine import Effect, Event
from kafkapy.raft.control_records import build_log_batch
from kafkapy.raft.effects import (
    AppendBatch,
    FlushLog,
    HighWatermarkAdvanced,
    InstallSnapshot,
    LeaderChanged,
    PersistElection,
    ResetLogToSnapshot,
    SendRequest,
    SendResponse,
    SendResponseWithRecords,
    SendResponseWithSnapshot,
    TruncateLog,
    WriteSnapshotPart,
)
from kafkapy.runtime.quorum.exchange import PeerExchange
from kafkapy.runtime.quorum.flush import QuorumFlushes
from kafkapy.runtime.quorum.listeners import Delivery
from kafkapy.seams import Clock
from kafkapy.storage.metadata.metadata_log import MetadataLog


class QuorumEffects:
    """Carries out one effect after the other. Created once the metadata log is recovered."""

    def __init__(
        self,
        log: MetadataLog,
        clock: Clock,
        *,
        delivery: Delivery,
        flushes: QuorumFlushes,
        exchange: PeerExchange,
        step_next: Callable[[Event], None],
    ) -> None:
        """step_next(event): steps the core with the event after the effects of the current step."""
        self._log = log
        self._clock = clock
        self._delivery = delivery
        self._flushes = flushes
        self._exchange = exchange
        self._step_next = step_next

    def run(self, effect: Effect) -> None:
        """Carry out one effect. Raises StorageError if the disk fails: the node must then stop."""
        match effect:
            case AppendBatch():
                self._append(effect)
            case FlushLog():
                self._flushes.request(effect)
            case HighWatermarkAdvanced():
                self._log.log.update_high_watermark(effect.high_watermark)
            case PersistElection():
                self._log.state_file.write(effect.state, effect.kraft_version, effect.voter_ids)
            case LeaderChanged():
                self._delivery.on_leader_changed(effect)
            case SendRequest():
                self._send(effect)
            case SendResponse():
                self._exchange.respond(effect)
            case SendResponseWithRecords():
                self._exchange.respond_with_records(effect)
            case SendResponseWithSnapshot():
                self._exchange.respond_with_snapshot(effect)
            case TruncateLog():
                self._log.truncate_to(effect.end_offset)
                # they were kept in memory for their commit; another leader's batches have these offsets now
                self._delivery.forget_own_from(effect.end_offset)
            case WriteSnapshotPart():
                self._exchange.download.write(effect)
            case InstallSnapshot():
                self._step_next(self._exchange.install_snapshot(effect))
            case ResetLogToSnapshot():
                self._log.reset_to_snapshot(effect.snapshot_id, now_ms=self._clock.wall_ms())
                self._delivery.begin_with(effect.snapshot_id)

    def _send(self, effect: SendRequest) -> None:
        failure = self._exchange.send(effect)
        if failure is not None:
            self._step_next(failure)

    def _append(self, effect: AppendBatch) -> None:
        batch = effect.batch
        wall_ms = self._clock.wall_ms()
        if not effect.is_leader:
            assert isinstance(batch.data, bytes | memoryview)
            last_offset = self._log.append_fetched(batch.data, now_ms=wall_ms)
        else:
            data = build_log_batch(batch, wall_ms)
            last_offset = self._log.append(data, leader_epoch=batch.leader_epoch, now_ms=wall_ms)
            self._delivery.add_own_batch(effect, timestamp_ms=wall_ms, size_bytes=len(data))
        assert last_offset == batch.last_offset, f"appended up to {last_offset}, not {batch.last_offset}"
