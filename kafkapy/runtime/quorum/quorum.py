"""The driver of the Raft core: owns `__cluster_metadata-0`, its fsyncs, quorum-state, snapshots and listeners.

Everything runs on the loop's thread; only fsyncs run in the IO pool. A record is committed once a majority has it
*durable*; with one voter that is our own fsync. Appends are group-committed: at most one fsync is in flight.
listeners.py defines what listeners are notified of. A listener may append from within its callbacks. If the
metadata directory fails, or an invariant of the core does, `on_fatal` stops the process.

This module has the order of steps, notifications and the timer. Its parts: effect_queue.py and effects.py (carry out
the core's effects), flush.py (fsyncs), snapshots.py (this node's snapshots), exchange.py (messages to peers).
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.config.quorum import QuorumConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import Event
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.raft.core import RaftCore
from kafkapy.raft.effects import ElectionState
from kafkapy.raft.events import (
    AppendRequested,
    KraftUpgradeRequested,
    LogPrefixDeleted,
    RequestReceived,
    ResignRequested,
    SnapshotTaken,
    Started,
    TimePassed,
)
from kafkapy.raft.messages import AddVoterRequest, RemoveVoterRequest, Request, Response, UpdateVoterRequest
from kafkapy.raft.roles import LAST_EPOCH, Leader
from kafkapy.raft.voters import Endpoint, VoterSet
from kafkapy.runtime.quorum.effect_queue import EffectQueue
from kafkapy.runtime.quorum.effects import QuorumEffects
from kafkapy.runtime.quorum.exchange import PeerExchange, RaftTransport
from kafkapy.runtime.quorum.flush import QuorumFlushes
from kafkapy.runtime.quorum.identity import MetadataDirectory, QuorumIdentity
from kafkapy.runtime.quorum.listeners import Delivery, QuorumListener, SnapshotSource
from kafkapy.runtime.quorum.snapshots import ImageSource, OwnSnapshots
from kafkapy.runtime.quorum.voter_candidates import VoterCandidates
from kafkapy.runtime.quorum.waiters import NotLeaderError, QuorumWaiters
from kafkapy.runtime.turns import PAUSE_MS, Turn
from kafkapy.seams import System
from kafkapy.storage.log.log import Log
from kafkapy.storage.metadata.metadata_log import CommittedBatch, MetadataLog
from kafkapy.types import OffsetAndEpoch, ReplicaKey

if TYPE_CHECKING:
    from kafkapy.metrics.quorum import QuorumCounts
    from kafkapy.runtime.quorum.counting import QuorumCounting
    from kafkapy.runtime.quorum.description import QuorumDescription

__all__ = ["CommittedBatch", "NotLeaderError", "Quorum", "QuorumListener", "RaftTransport", "SnapshotSource"]

logger = logging.getLogger(__name__)

RECORD_LIST_TOO_LARGE: Final = ErrorCode.RECORD_LIST_TOO_LARGE.value
BATCH_OVERHEAD_BYTES: Final = 61
RECORD_OVERHEAD_BYTES: Final = 21
"""Maximum size of a metadata record (no key, no headers) beyond its value."""
CHUNKS_PER_TURN: Final = 4
"""Maximum number of notifications, or of steps that listeners take, per turn of the loop."""
MAX_WAITING_EVENTS: Final = 1000
"""Events that wait for room on the disk; further requests of peers are lost, as in a network, and repeated."""
CLEAN_INTERVAL_MS: Final = 60_000
"""How often old snapshots and deleted files are cleaned up (as Apache Kafka's RaftMetadataLogCleaner)."""


class Quorum:
    """Steps the Raft core and carries out its effects, one at a time. Listeners must be added before start()."""

    def __init__(
        self,
        *,
        identity: QuorumIdentity,
        directory: MetadataDirectory,
        config: QuorumConfig,
        system: System,
        on_fatal: Callable[[BaseException], None],
        transport: RaftTransport | None = None,
        counts: "QuorumCounts | None" = None,
    ) -> None:
        """transport: None for a quorum of one. counts: the metrics, if any."""
        self.node_id = identity.node_id
        self.cluster_id = identity.cluster_id
        self._identity = identity
        self._directory = directory
        self._config = config
        self._disk, self._clock, self._random, _ = system
        self._on_fatal = on_fatal
        self._transport = transport
        self._counting = None if counts is None else _new_counting(counts, system)
        self._delivery = Delivery(identity.node_id, None if self._counting is None else self._counting.count_commits)
        self._flushes = QuorumFlushes(directory.flush_pool or system.io_pool, system.clock, self._step, self._fail)
        self._snapshots = OwnSnapshots(directory.path, system, self._on_snapshot_written)
        self._events: deque[Event] = deque()
        """Events to step next: those that came during a step, and the results of effects."""
        self._is_stepping = False
        self._is_notifying = False
        self._next_turn: asyncio.TimerHandle | None = None
        """Set while notifications remain after a full turn; then they continue."""
        now_ms = system.clock.monotonic_ms
        self._candidates = VoterCandidates(lambda: self._core, transport, now_ms=now_ms, step=self._receive)
        self._timer: asyncio.TimerHandle | None = None
        self._clean_timer: asyncio.TimerHandle | None = None
        self._waiters = QuorumWaiters()
        self._warned_of: set[ReplicaKey] = set()
        self._is_closed = False
        self._is_recovered = False
        self._fatal: BaseException | None = None
        self._log: MetadataLog
        self._core: RaftCore
        self.effects: EffectQueue

    # ---- properties

    @property
    def leader_id(self) -> int:
        """The leader's id, -1 while none is known."""
        return self._core.leader_id

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """The leader's endpoints; empty while it is unknown."""
        return self._core.role.leader_endpoints

    @property
    def leader_epoch(self) -> int:
        return self._core.leader_epoch

    @property
    def is_leader(self) -> bool:
        return self._core.is_leader

    @property
    def high_watermark(self) -> int:
        """The end of the records known to be committed (exclusive)."""
        return max(self._core.high_watermark, 0)

    @property
    def has_learned_high_watermark(self) -> bool:
        """Whether the high watermark comes from a leader, not from the last snapshot before the start."""
        return self._core.has_learned_high_watermark

    @property
    def log_end_offset(self) -> int:
        return self._core.log.end_offset

    @property
    def log_end_epoch(self) -> int:
        """The leader epoch of the last record."""
        return self._core.log.last_epoch

    @property
    def voted_id(self) -> int:
        """The node that this one has voted for in the current epoch, -1 if none; a leader has voted for itself."""
        voted = self._core.role.election_state().voted
        return self._core.local.node_id if self.is_leader else voted.node_id if voted is not None else -1

    @property
    def has_pending_voter_change(self) -> bool:
        """Whether a change of the voters is appended and not committed; known to the leader."""
        role = self._core.role
        return isinstance(role, Leader) and role.pending_voter_change is not None

    @property
    def snapshots(self) -> OwnSnapshots:
        """The snapshots that this node takes itself."""
        return self._snapshots

    @property
    def log(self) -> Log:
        """The metadata log, after its recovery."""
        return self._log.log

    @property
    def log_start_offset(self) -> int:
        return self._core.log.start_offset

    @property
    def latest_snapshot_id(self) -> OffsetAndEpoch | None:
        return self._core.log.latest_snapshot

    @property
    def finalized_kraft_version(self) -> int:
        return self._core.voters.kraft_version

    @property
    def voters(self) -> VoterSet:
        """The voters in force: the latest set appended."""
        return self._core.voters.current

    @property
    def is_voter(self) -> bool:
        """Whether this node is one of them, with this directory."""
        return self.voters.contains(self._core.local)

    def kraft_upgrade_refusal(self) -> ApiError | None:
        """Return why kraft.version cannot be upgraded from 0 to 1 now, or None. To be called on the leader."""
        if not self.is_leader or self.effects.waiting:  # the step may come later, when this node no longer leads
            return NotLeaderError("kraft.version is raised by the leader of the metadata quorum")
        refusal = self._core.kraft_upgrade_refusal()
        return None if refusal is None else ApiError(*refusal)

    async def upgrade_kraft_version(self) -> None:
        """Upgrade kraft.version from 0 to 1; return once that is committed. Raises ApiError."""
        refusal = self.kraft_upgrade_refusal()
        if refusal is not None:
            raise refusal
        if self.finalized_kraft_version > 0:
            return
        leader_epoch, offset = self.leader_epoch, self.log_end_offset
        self._step(KraftUpgradeRequested())
        await self.wait_until(lambda: self.high_watermark > offset + 1 or self.leader_epoch != leader_epoch)
        if self.leader_epoch != leader_epoch:
            raise NotLeaderError("another node leads: it is unknown whether kraft.version has risen")

    def describe(self) -> "QuorumDescription | None":
        """Return the content of a DescribeQuorum response; None on a node that is not the leader."""
        from kafkapy.runtime.quorum.description import describe_quorum

        return describe_quorum(self._core, wall_ms=self._clock.wall_ms(), monotonic_ms=self._clock.monotonic_ms())

    def add_listener(self, listener: QuorumListener) -> None:
        """Add a listener; only before start()."""
        self._delivery.listeners.append(listener)

    def set_snapshot_source(self, source: ImageSource) -> None:
        """Set the source of snapshots. The quorum decides when to take one (metadata.log.max.*); it writes slices."""
        self._snapshots.set_source(source)

    # ---- start and stop

    async def start(self) -> None:
        """Recover and join. On return a quorum of one has elected itself and delivered the committed LeaderChange.

        Raises StorageError if the directory cannot be used. Blocks the loop during recovery (nothing else runs yet).
        """
        self._recover()
        self._schedule_clean()
        self._step(Started())
        if self._core.is_only_voter:
            if self.leader_epoch == LAST_EPOCH and not self.is_leader:
                raise StorageError(self._directory.path, f"no epoch is left to elect a leader in after {LAST_EPOCH}")
            await self.wait_until(lambda: self.is_leader and not (self._delivery.has_notice or self._delivery.is_busy))

    @property
    def is_recovered(self) -> bool:
        """Whether the metadata log was read; before that nothing is written to it."""
        return self._is_recovered

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Return once `condition` holds; it is checked after every step.

        Raises the error that stopped the quorum; NotLeaderError once it is closed.
        """
        await self._waiters.wait(condition)

    async def close(self) -> None:
        """Resign if leader, cancel running work, fsync and close the log. Raises StorageError."""
        if self._is_closed or not self._is_recovered:
            return
        if self._next_turn is not None:
            self._next_turn.cancel()
            self._next_turn = None
        self._step(ResignRequested(self.leader_epoch))
        self._is_closed = True
        self._waiters.fail(NotLeaderError("the metadata quorum is closed"))
        for timer in (self._timer, self._clean_timer, self._next_turn):
            if timer is not None:
                timer.cancel()
        self.effects.close()
        await self._snapshots.cancel()
        await self._flushes.end_of_flush()
        if self._fatal is None:
            self._log.close()

    def _recover(self) -> None:
        wall_ms = self._clock.wall_ms()
        log = self._log = MetadataLog(
            self._disk,
            self._directory.path,
            self._config,
            now_ms=wall_ms,
            static_voters=self._identity.static_voters,
            was_clean_shutdown=self._directory.was_clean_shutdown,
            make_room=self._directory.make_room,
        )
        log.log.log_dir.on_flushed = self._directory.on_flushed
        election, file_voter_ids = log.state_file.read() or (ElectionState(), ())
        if not log.voters.current and file_voter_ids:
            log.voters.static_voters = self._identity.voters_of(file_voter_ids)
        raft_config = self._identity.raft_config(self._config, log.voters.current)
        self._core = RaftCore(raft_config, log.view, log.voters, election, self._random.randrange(0, 1 << 62))
        self.effects = self._new_effects(log)
        self._snapshots.begin(self._config, log.latest_snapshot_bytes)
        self._delivery.begin_with(log.view.latest_snapshot)
        self._is_recovered = True
        logger.info(
            "Recovered the metadata log [%d, %d), snapshot %s, epoch %d, voters %s",
            log.view.start_offset, log.view.end_offset, log.view.latest_snapshot or "none",
            max(election.leader_epoch, log.view.last_epoch), log.voters.current,
        )  # fmt: skip

    def _new_effects(self, log: MetadataLog) -> EffectQueue:
        exchange = PeerExchange(log, self._disk, self._directory.path, self._transport, self._step)
        effects = QuorumEffects(
            log, self._clock, delivery=self._delivery, flushes=self._flushes, exchange=exchange,
            step_next=self._events.append,
        )  # fmt: skip
        return EffectQueue(
            effects.run,
            make_room=self._directory.make_room,
            may_wait=lambda: not self._core.is_only_voter,
            on_room=lambda: self._step(TimePassed()),
            on_failed=self._fail,
        )

    # ---- calls of the state machine and of peers

    def append(self, records: list[bytes], leader_epoch: int) -> int:
        """Append the records as ONE atomic batch (framed as in metadata.record_serde); return the last offset.

        A plain call. Raises NotLeaderError, StorageError, and ApiError: RECORD_LIST_TOO_LARGE above a batch's limit,
        KAFKA_STORAGE_ERROR if the disk of a sole voter is full, with nothing changed. With others the leader resigns
        then: NotLeaderError, so that brokers ask the next one. The records are committed once on_commit has delivered
        that offset. If leadership is lost before, on_leader_change is called, and it is unknown whether they will be
        committed until a later on_commit.
        """
        core = self._core
        if self._is_closed or not core.is_leader or leader_epoch != core.leader_epoch:
            raise NotLeaderError(f"node {self.node_id} does not lead the metadata quorum in epoch {leader_epoch}")
        if self.effects.waiting:
            raise NotLeaderError("the metadata quorum waits for room on the disk")
        size_bytes = BATCH_OVERHEAD_BYTES + sum(map(len, records)) + RECORD_OVERHEAD_BYTES * len(records)
        if size_bytes > self._log.max_batch_bytes:
            raise ApiError(RECORD_LIST_TOO_LARGE, f"{size_bytes} bytes of metadata records in one batch")
        try:
            self._log.check_room(size_bytes)
        except StorageError as error:
            self._fail(error)
            raise
        except ApiError as error:
            if self._core.is_only_voter:
                raise
            logger.warning("Resigning as the active controller: %s", error.message)
            asyncio.get_running_loop().call_soon(self.resign, leader_epoch)  # not during a decision
            raise NotLeaderError(f"node {self.node_id} has no room for metadata: {error.message}") from error
        self._step(AppendRequested(leader_epoch, len(records), records, size_bytes))
        if self._fatal is not None:
            raise self._fatal
        return core.log.end_offset - 1

    def resign(self, leader_epoch: int) -> None:
        """Step down (used by a controller that failed); another election follows."""
        self._step(ResignRequested(leader_epoch))

    def receive(self, request: Request, respond: Callable[[Response], None]) -> None:
        """Handle a peer's request; `respond` is called once, now or later, on the loop's thread."""
        if isinstance(request, AddVoterRequest | RemoveVoterRequest | UpdateVoterRequest):
            self._candidates.receive(request, respond)
        else:
            self._receive(request, respond)

    def _receive(self, request: Request, respond: Callable[[Response], None]) -> None:
        if len(self._events) < MAX_WAITING_EVENTS:
            self._step(RequestReceived(respond, request))

    # ---- stepping

    def _step(self, event: Event) -> None:
        """Step the core and carry out the effects in order, then notify listeners and arm the timer.

        A listener's append re-enters this while listeners are notified: its effects are carried out before it returns.
        """
        if self._is_closed or self._fatal is not None:
            return
        self._events.append(event)
        if self._is_stepping or self.effects.waiting:
            return
        self._is_stepping = True
        try:
            while self._events:
                effects = self._core.step(self._events.popleft(), self._clock.monotonic_ms())
                if not self.effects.run(effects):
                    return
            if self._counting is not None:
                self._counting.record_role(self._core.role)
            self._flushes.maybe_start(self._log)
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_stepping = False
        self._notify()
        self._arm_timer()

    # ---- failure

    def _fail(self, error: BaseException) -> None:
        """Stop after a failure: further steps could contradict what the disk has and peers were promised."""
        if self._fatal is not None:
            return
        self._fatal = error
        logger.critical("Stopping this node's part in the metadata quorum: %s", error, exc_info=error)
        self.effects.close()
        self._waiters.fail(error)
        self._delivery.notify_end(self.leader_epoch)
        self._on_fatal(error)

    # ---- listeners

    def _notify(self) -> None:
        """Notify listeners in order, in turns. Not re-entrant: notifications that listeners cause come afterwards."""
        if self._is_notifying or self._next_turn is not None:
            return
        turn = Turn(self._clock, CHUNKS_PER_TURN)
        self._is_notifying = True
        try:
            while self._fatal is None and not self.effects.waiting:  # now the log is up to date with the core
                if not self._delivery.notify_next(self._log, self._core.high_watermark):
                    break
                if turn.is_over():
                    self._next_turn = asyncio.get_running_loop().call_later(PAUSE_MS / 1000, self._notify_on)
                    break
        except Exception as error:
            self._fail(error)
            return
        finally:
            self._is_notifying = False
        self._waiters.wake()
        if self._next_turn is None:
            self._maybe_take_snapshot()

    def _notify_on(self) -> None:
        self._next_turn = None
        if not self._is_closed:
            self._notify()

    # ---- snapshots of our own

    def _maybe_take_snapshot(self) -> None:
        if not self._is_closed and self._fatal is None:
            self._snapshots.maybe_take(self._delivery, self._core.log, self._core.voters)

    def _on_snapshot_written(self, snapshot_id: OffsetAndEpoch) -> None:
        latest = self.latest_snapshot_id
        is_outdated = snapshot_id.offset < self.log_start_offset or (latest is not None and latest >= snapshot_id)
        if self._is_closed or is_outdated:
            return
        logger.info("Wrote metadata snapshot %s", snapshot_id)
        self._step(SnapshotTaken(snapshot_id))
        self._clean()

    def _clean(self) -> None:
        """Delete the segments and snapshots that Kafka's retention keys no longer keep."""
        try:
            # nothing is deleted while responses wait that may need it
            snapshot_ids = [] if self.effects.waiting else self._core.log.snapshots
            self._log.clean(snapshot_ids, now_ms=self._clock.wall_ms())
        except (StorageError, OSError, ApiError) as error:
            self._fail(error)
            return
        if (start_offset := self._log.log.log_start_offset) > self._core.log.start_offset:
            self._step(LogPrefixDeleted(start_offset))

    # ---- time

    def _arm_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadline_ms = self._core.deadline_ms()
        if deadline_ms is None or self._is_closed or self._fatal is not None:
            return
        delay_ms = max(deadline_ms - self._clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._step, TimePassed())

    def _schedule_clean(self) -> None:
        self._clean_timer = asyncio.get_running_loop().call_later(CLEAN_INTERVAL_MS / 1000, self._on_clean_timer)

    def _on_clean_timer(self) -> None:
        from kafkapy.runtime.quorum.description import warn_of_replaced_voters

        if self._is_closed or self._fatal is not None:
            return
        self._clean()
        self._maybe_take_snapshot()
        warn_of_replaced_voters(self._core, self._warned_of)
        self._schedule_clean()


def _new_counting(counts: "QuorumCounts", system: System) -> "QuorumCounting":
    from kafkapy.runtime.quorum.counting import QuorumCounting  # most nodes have no metrics

    return QuorumCounting(counts, system.clock)
