"""Runs the controller on the metadata quorum: decide -> append -> replay -> respond once committed; publishes images.

A long decision is made in steps (machine.Steps), spread over turns of the event loop. Other decisions wait in
decision_queue.py, except heartbeats that change nothing. Its records are encoded, replayed and delivered in turns as
well; those of an atomic decision are in one batch.

Every node maintains the image (`image`, passed to listeners with each committed change). The active controller also has
the controller's tables, which are ahead of the image by the records appended but not yet committed. They are built from
the image when a term begins and dropped when it ends.

An invariant that fails during replay means a bug or a corrupt log: `on_fatal` stops the process.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.errors import ApiError, StorageError
from kafkapy.machine import Decided, Decision
from kafkapy.metadata.bootstrap import decide_activation
from kafkapy.metadata.configs import MIN_INSYNC_REPLICAS, ConfigRules
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.features import record_version
from kafkapy.metadata.image import MetadataImage, Provenance
from kafkapy.metadata.leader_elections import ELECTIONS_PER_SLICE
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.record_serde import decode_record, encode_record
from kafkapy.metadata.snapshot import encoded_slices
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.decision_queue import DecisionQueue
from kafkapy.runtime.turns import PAUSE_MS, Turn
from kafkapy.seams import Clock, Random
from kafkapy.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.config.broker import BrokerConfig
    from kafkapy.metadata.delegation_tokens import TokenRules
    from kafkapy.runtime.quorum import CommittedBatch, Quorum, SnapshotSource

R = TypeVar("R")

ImageListener = Callable[[MetadataDelta, MetadataImage], None]
"""Called with each change and the committed image after it, in order, on the loop's thread."""

MAX_BATCH_BYTES: Final = 4 << 20
"""Below the quorum's 8 MiB: a decision that is not atomic is split into batches of at most this size."""
RECORDS_PER_STEP: Final = 100
"""Records that are encoded, appended or replayed per step; also the batch size of a decision that is not atomic."""
STEPS_PER_TURN: Final = 200
"""A turn ends after this many steps, whatever the clock says (it stands still in the simulator)."""
RECORDS_PER_IMAGE: Final = 1_000
"""If more records are committed at once, an image is published after each this many records (in whole batches)."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""Default time-out of requests that have none of their own."""
MIN_COMMIT_WAIT_MS: Final = 1000
"""Minimum time that a request with a time-out waits for the commit of appended records: it will most likely succeed."""
FENCE_CHECKS_PER_SESSION: Final = 8
"""Checks for expired broker sessions per session time-out (as Apache Kafka)."""

log = logging.getLogger(__name__)


class ControllerRuntime:
    """One node's part in the controller quorum. Implements QuorumListener."""

    def __init__(
        self,
        *,
        quorum: "Quorum",
        config: "BrokerConfig",
        cluster_id: str,
        rules: ConfigRules,
        clock: Clock,
        random: Random,
        bootstrap_records: Sequence[Any],
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._quorum = quorum
        self._config = config
        self._cluster_id = cluster_id
        self._rules = rules
        self._clock = clock
        self._random = random
        self._bootstrap_records = bootstrap_records
        self._on_fatal = on_fatal
        self._loader = ImageLoader()
        self._listeners: list[ImageListener] = []
        self._note_loaded: Callable[[int], None] = _ignore
        self._controller: Controller | None = None
        self._leader_epoch = -1
        self._ended_terms = 0
        """How often a term has ended, or none had begun: the epoch stays where a leader resigns."""
        self._appended: deque[tuple[int, list[Any]]] = deque()
        """(base offset, records) of own batches not yet committed, so that they need not be decoded again."""
        self._pending: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(last offset, future) of requests that wait for their commit, in offset order."""
        self._has_appended = False
        self._decisions = DecisionQueue()
        self._token_rules = _token_rules(config)
        self._fence_interval_ms = config.quorum.broker_session_timeout_ms // FENCE_CHECKS_PER_SESSION
        self._fences_checked_ms = 0
        self._committed_offset = -1
        self._tasks: list[asyncio.Task[None]] = []
        self._background: set[asyncio.Task[Any]] = set()
        quorum.add_listener(self)
        quorum.set_snapshot_source(self._snapshot)

    # -- public methods -------------------------------------------------------------------------------------------

    @property
    def image(self) -> MetadataImage:
        """The last committed image."""
        return self._loader.image

    @property
    def committed_offset(self) -> int:
        """The offset of the last record in the image; -1 before the first."""
        return self._committed_offset

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller: it leads the quorum and has built its tables."""
        return self._controller is not None

    def add_image_listener(self, listener: ImageListener) -> None:
        """Call `listener` with each image from now on. A listener added later must read `image` first."""
        self._listeners.append(listener)

    def set_load_listener(self, listener: Callable[[int], None]) -> None:
        """Call `listener` while a snapshot is loaded, with the number of records loaded since the last call."""
        self._note_loaded = listener

    async def write(
        self,
        decide: Callable[[Controller, int], Decided[Any, R]],
        *,
        timeout_ms: int | None = None,
        may_interrupt: bool = False,
    ) -> R:
        """Call `decide(controller, now_ms)`, append and replay its records; return its response once committed.

        The image contains the change when this returns. A decision without records is answered once everything that it
        could have read is committed. Raises what `decide` raises, and ApiError NOT_CONTROLLER if this node is not, or
        is no longer, the active controller; in the latter case the change may still be committed.

        timeout_ms: how long the client waits. With 0 or less, nothing is decided. Raises ApiError REQUEST_TIMED_OUT. If
        that happens while waiting for the commit, the change may still be committed. That wait lasts at least
        MIN_COMMIT_WAIT_MS; a deviation: Apache Kafka waits for as long as it may forward the request.

        may_interrupt: `decide` may also run between the steps of another decision; its response counts if it needs no
        records. Otherwise it must leave the tables unchanged, and runs again when its turn comes.
        """
        response, _ = await self.write_noting(decide, timeout_ms=timeout_ms, may_interrupt=may_interrupt)
        return response

    async def write_noting(
        self,
        decide: Callable[[Controller, int], Decided[Any, R]],
        *,
        timeout_ms: int | None = None,
        may_interrupt: bool = False,
    ) -> tuple[R, bool]:
        """As `write`; also return whether there were records."""
        if timeout_ms is not None and timeout_ms <= 0:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        controller = self._active()
        if may_interrupt and self._decisions.is_taken:
            decided = decide(controller, self._clock.monotonic_ms())
            if isinstance(decided, Decision) and not decided.records:
                await self._committed(controller.next_offset - 1, timeout_ms)
                return decided.response, False
        await self._decisions.take(timeout_ms)
        response, first_offset, end_offset = await self._decide(decide)
        await self._committed(end_offset - 1, timeout_ms)
        return response, end_offset > first_offset

    def write_soon(
        self,
        decide: Callable[[Controller, int], Decided[Any, R]],
        on_done: Callable[[R | BaseException], None],
        *,
        may_interrupt: bool = False,
    ) -> None:
        """As `write` without waiting; `on_done` gets the response or the error. close() cancels what still runs."""

        async def run() -> None:
            try:
                result: R | BaseException = await self.write(decide, may_interrupt=may_interrupt)
            except Exception as error:  # whatever it is, on_done must be called
                result = error
            on_done(result)

        task = asyncio.get_running_loop().create_task(run())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    def start(self) -> None:
        """Start the periodic tasks: no-op records, fencing, leader elections, expiry of delegation tokens."""
        loop = asyncio.get_running_loop()
        quorum, replication = self._config.quorum, self._config.replication
        sweep_ms = 0 if self._token_rules is None else self._config.security.delegation_token_expiry_check_interval_ms
        balance_s = (
            replication.leader_imbalance_check_interval_seconds if replication.auto_leader_rebalance_enable else 0
        )
        self._fences_checked_ms = self._clock.monotonic_ms()
        self._tasks += [
            loop.create_task(self._every(quorum.metadata_max_idle_interval_ms, self._write_no_op)),
            loop.create_task(self._every(self._fence_interval_ms, self._fence_expired)),
            loop.create_task(self._every(replication.unclean_leader_election_interval_ms, self._elect_uncleanly)),
            loop.create_task(self._every(balance_s * 1000, self._balance_leaders)),
            loop.create_task(self._every(sweep_ms, self._sweep_tokens)),
        ]

    async def close(self) -> None:
        """Cancel the tasks; pending writes fail. The owner closes the quorum after this."""
        self._end_term()
        tasks = [*self._tasks, *self._background]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    # -- the quorum's listener ------------------------------------------------------------------------------------

    def on_load_snapshot(self, reader: "SnapshotSource") -> Iterator[None]:
        """Replace the image by a snapshot's, in steps."""
        return self._guarded(self._load_snapshot(reader))

    def on_commit(self, batches: "list[CommittedBatch]") -> Iterator[None]:
        """Replay the batches into the image, notify listeners, complete the writes that waited for it; in steps."""
        return self._guarded(self._replay_committed(batches))

    def on_leader_change(self, leader_id: int, leader_epoch: int) -> Iterator[None] | None:
        """Begin a term with tables built from the image, in steps, or end one."""
        self._end_term()
        self._leader_epoch = leader_epoch
        if leader_id != self._config.node_id:
            return None
        return self._guarded(self._begin_term(leader_epoch, self._ended_terms))

    def _load_snapshot(self, reader: "SnapshotSource") -> Iterator[None]:
        snapshot_id = reader.snapshot_id
        provenance = Provenance(
            snapshot_id.offset - 1, snapshot_id.leader_epoch, reader.last_contained_log_timestamp_ms
        )
        yield from self._loader.load_snapshot(self._decoded(reader), provenance)
        yield from self._publish()
        self._note_committed(snapshot_id.offset - 1)

    def _decoded(self, reader: "SnapshotSource") -> Iterator[Any]:
        for batch in reader.batches():
            yield from map(decode_record, batch)
            self._note_loaded(len(batch))

    def _replay_committed(self, batches: "list[CommittedBatch]") -> Iterator[None]:
        count = 0
        for batch in batches:
            for records in _slices(self._records_of(batch)):
                self._loader.replay(records)
                yield
            self._loader.end_batch(Provenance(batch.last_offset, batch.leader_epoch, batch.append_timestamp_ms))
            count += len(batch.records)
            if count >= RECORDS_PER_IMAGE or batch is batches[-1]:
                count = 0
                yield from self._publish()
                self._note_committed(batch.last_offset)
                if batch is not batches[-1]:
                    yield

    def _note_committed(self, offset: int) -> None:
        self._committed_offset = offset
        while self._pending and self._pending[0][0] <= offset:
            _, future = self._pending.popleft()
            if not future.done():
                future.set_result(None)

    def _records_of(self, batch: "CommittedBatch") -> Iterable[Any]:
        while self._appended and self._appended[0][0] <= batch.base_offset:
            base_offset, records = self._appended.popleft()
            if base_offset == batch.base_offset and len(records) == len(batch.records):
                return records
        return map(decode_record, batch.records)

    def _publish(self) -> Iterator[None]:
        published = yield from self._loader.publish()
        if published is not None:
            for listener in self._listeners:
                listener(*published)

    def _guarded(self, steps: Iterator[None]) -> Iterator[None]:
        """Run the steps; fail the process on an error, as the state is not valid after it."""
        try:
            yield from steps
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.critical("The metadata cannot follow its log: %s", error, exc_info=error)
        self._end_term()
        self._on_fatal(error)

    # -- a term ---------------------------------------------------------------------------------------------------

    def _begin_term(self, leader_epoch: int, ended_terms: int) -> Iterator[None]:
        config = self._config
        self._fences_checked_ms = self._clock.monotonic_ms()  # no broker was to be fenced by this node before
        controller = Controller(
            node_id=config.node_id,
            cluster_id=self._cluster_id,
            rules=self._rules,
            random=self._random,
            session_timeout_ms=config.quorum.broker_session_timeout_ms,
            default_partition_count=config.node.num_partitions,
            default_replication_factor=config.replication.default_replication_factor,
            quorum_node_ids=config.quorum_voters,
            token_rules=self._token_rules,
        )
        image = self.image
        yield from controller.load_topics(image)
        if self._ended_terms != ended_terms:
            return  # another node leads by now, or this one has resigned
        assert image is self.image, "nothing is committed between the steps of a term's beginning"
        controller.load_rest(image, next_offset=self._quorum.log_end_offset, now_ms=self._clock.monotonic_ms())
        self._controller = controller
        min_insync_replicas = self._rules.effective_topic_config(MIN_INSYNC_REPLICAS, cluster={}, node={}, topic={})
        decision = decide_activation(
            self._bootstrap_records,
            is_log_empty=controller.features.is_empty,
            is_in_transaction=self._loader.is_in_transaction,
            min_insync_replicas=int(min_insync_replicas or 1),
        )
        for _ in self._append(controller, decision.records, is_atomic=decision.is_atomic):
            pass  # a few records
        log.info("Became the active controller at epoch %d, offset %d", leader_epoch, controller.next_offset)

    def _end_term(self) -> None:
        self._controller = None
        self._ended_terms += 1
        self._appended.clear()
        pending, self._pending = self._pending, deque()
        for _, future in pending:
            if not future.done():
                future.set_exception(self._not_controller())

    def _active(self) -> Controller:
        if self._controller is None:
            raise self._not_controller()
        return self._controller

    def _not_controller(self) -> ApiError:
        leader_id = self._quorum.leader_id
        if leader_id == -1 or leader_id == self._config.node_id:
            return ApiError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        return ApiError(ErrorCode.NOT_CONTROLLER, f"The active controller appears to be node {leader_id}.")

    async def _decide(self, decide: Callable[[Controller, int], Decided[Any, R]]) -> tuple[R, int, int]:
        """Decide, append, replay; return the response and the log end offset before and after. Needs the decision lock.

        If this takes more than a turn, the rest runs in a task: the caller may be cancelled, but the decision is
        completed.
        """
        is_released = False
        try:
            controller = self._active()
            controller.skip_to(self._quorum.log_end_offset)
            first_offset = controller.next_offset
            steps = self._carry_out(controller, decide(controller, self._clock.monotonic_ms()))
            turn = Turn(self._clock, STEPS_PER_TURN)
            while not turn.is_over(next(steps)):
                pass
            task = asyncio.get_running_loop().create_task(self._go_on(controller, steps, turn))
            is_released = True
        except StopIteration as end:
            return end.value, first_offset, controller.next_offset
        finally:
            if not is_released:
                self._decisions.release()
        self._background.add(task)
        task.add_done_callback(self._note_ended)
        response, end_offset = await asyncio.shield(task)
        self._check_term(controller)  # if it ended meanwhile, another leader's records may have these offsets
        return response, first_offset, end_offset

    async def _go_on(self, controller: Controller, steps: Generator[int, None, R], turn: Turn) -> tuple[R, int]:
        """Run the remaining turns of a decision."""
        try:
            while True:
                await asyncio.sleep(PAUSE_MS / 1000)
                self._check_term(controller)
                turn.begin()
                while not turn.is_over(next(steps)):
                    pass
        except StopIteration as end:
            return end.value, controller.next_offset

    def _note_ended(self, task: "asyncio.Task[Any]") -> None:
        """A decision that took more than a turn is done, or was cancelled, perhaps before its task began."""
        self._decisions.release()
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller, who gets it, may be gone

    def _carry_out(self, controller: Controller, decided: Decided[Any, R]) -> Generator[int, None, R]:
        """Take the steps of a decision, append and replay; yield the number of steps that each one counts for."""
        while not isinstance(decided, Decision):
            try:
                records = next(decided)
            except StopIteration as end:
                decided = end.value
                continue
            yield from self._append(controller, records)
            yield 1
        yield from self._append(controller, decided.records, is_atomic=decided.is_atomic)
        return decided.response

    def _append(self, controller: Controller, records: list[Any], *, is_atomic: bool = False) -> Iterator[int]:
        """Append and replay records in steps: as one batch if they are atomic, else in as many as needed.

        No other decision is made in between: at each decision the tables equal the log.
        """
        values: list[bytes] = []
        first, size_bytes = 0, 0
        for index, value in enumerate(self._encoded(controller, records)):
            is_full = len(values) == RECORDS_PER_STEP or size_bytes + len(value) > MAX_BATCH_BYTES
            if is_full and values and not is_atomic:
                yield from self._append_batch(controller, records[first:index], values)
                values, first, size_bytes = [], index, 0
            values.append(value)
            size_bytes += len(value)
            if is_atomic and len(values) % RECORDS_PER_STEP == 0:
                yield RECORDS_PER_STEP
        if values:
            yield from self._append_batch(controller, records[first:], values)

    def _encoded(self, controller: Controller, records: list[Any]) -> Iterator[bytes]:
        features = controller.features
        metadata_version = 0 if features.is_empty else features.metadata_version
        return (encode_record(record, record_version(record, metadata_version)) for record in records)

    def _append_batch(self, controller: Controller, records: list[Any], values: list[bytes]) -> Iterator[int]:
        self._check_term(controller)
        controller.skip_to(self._quorum.log_end_offset)
        base_offset = controller.next_offset
        last_offset = self._append_to_quorum(values)
        assert last_offset == base_offset + len(records) - 1, f"appended at {last_offset}, expected {base_offset}"
        self._appended.append((base_offset, records))
        self._has_appended = True
        for start in range(0, len(records), RECORDS_PER_STEP):
            part = records[start : start + RECORDS_PER_STEP]
            try:
                for offset, record in enumerate(part, base_offset + start):
                    controller.replay(record, offset)
            except Exception as error:
                self._fail(error)
                raise
            yield len(part)

    def _check_term(self, controller: Controller) -> None:
        """Raise ApiError NOT_CONTROLLER if the decision's term has ended: its tables are no longer in use."""
        if self._controller is not controller:
            raise self._not_controller()

    def _append_to_quorum(self, values: list[bytes]) -> int:
        try:
            return self._quorum.append(values, self._leader_epoch)
        except StorageError as error:
            raise ApiError(ErrorCode.NOT_CONTROLLER, f"The controller stops: {error}") from error

    async def _committed(self, offset: int, timeout_ms: int | None) -> None:
        """Wait until `offset` is committed and in the image. Raises ApiError REQUEST_TIMED_OUT."""
        if offset <= self._committed_offset:
            return
        loop = asyncio.get_running_loop()
        future: asyncio.Future[None] = loop.create_future()
        self._wait_for(offset, future)
        if timeout_ms is None:
            await future
            return
        timer = loop.call_later(max(timeout_ms, MIN_COMMIT_WAIT_MS) / 1000, _time_out, future)
        try:
            await future
        finally:
            timer.cancel()

    def _wait_for(self, offset: int, future: "asyncio.Future[None]") -> None:
        """Complete `future` once `offset` is committed. Keeps _pending sorted: later decisions may already wait."""
        later = []
        while self._pending and self._pending[-1][0] > offset:
            later.append(self._pending.pop())
        self._pending.append((offset, future))
        self._pending.extend(reversed(later))

    # -- periodic work --------------------------------------------------------------------------------------------

    async def _every(self, interval_ms: int, step: Callable[[], Any]) -> None:
        """Run `step` every interval_ms while this node is the active controller; never if interval_ms is 0."""
        while interval_ms > 0:
            await asyncio.sleep(interval_ms / 1000)
            if self._controller is None:
                continue
            try:
                await step()
            except ApiError as error:
                log.info("Periodic work of the controller was not done: %s", error)
            except Exception:
                log.exception("Periodic work of the controller goes on after an unexpected error")

    async def _write_no_op(self) -> None:
        """Write a NoOpRecord, unless the log has grown since the last interval.

        A growing log shows that the leader is alive.

        Apache Kafka writes one in every interval.
        """
        if not self._has_appended:
            await self.write(lambda controller, _: controller.decide_no_op())
        self._has_appended = False

    async def _fence_expired(self) -> None:
        """Fence brokers whose session expired, unless this event loop has stalled: heartbeats may be unread then.

        A few passes of the loop (AfterReads) are not enough here: a heartbeat may wait for its commit, and the next
        heartbeat, of our own broker too, is sent one interval after the response.
        """
        before_ms, self._fences_checked_ms = self._fences_checked_ms, self._clock.monotonic_ms()
        late_ms = self._fences_checked_ms - before_ms - self._fence_interval_ms
        if late_ms > self._fence_interval_ms:
            log.warning("The controller stood still for %d ms; brokers get time to be heard of", late_ms)
            return
        while await self.write(lambda controller, now_ms: controller.decide_fence_expired(now_ms)):
            pass

    async def _elect_uncleanly(self) -> None:
        elected = await self.write(lambda controller, _: controller.partitions.decide_unclean_elections())
        if elected:
            log.warning("Elected %d leaders uncleanly: their partitions may have lost records", elected)

    async def _balance_leaders(self) -> None:
        """Move leadership back to preferred replicas (auto.leader.rebalance.enable), some partitions at a time."""
        candidates = await self.write(lambda controller, _: controller.elections.decide_candidates())
        elected = 0
        for start in range(0, len(candidates), ELECTIONS_PER_SLICE):
            part = candidates[start : start + ELECTIONS_PER_SLICE]
            elected += await self.write(lambda controller, _, part=part: controller.elections.decide_balance(part))  # type: ignore[misc]
            await asyncio.sleep(0)
        if elected:
            log.info("%d partitions are led by their preferred replica again", elected)

    async def _sweep_tokens(self) -> None:
        """Remove expired delegation tokens (delegation.token.expiry.check.interval.ms)."""
        now_ms = self._clock.wall_ms()
        while await self.write(lambda controller, _: controller.tokens.decide_sweep(now_ms)):
            pass

    def _snapshot(self) -> tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]:
        image = self.image
        provenance = image.provenance
        snapshot_id = OffsetAndEpoch(provenance.last_offset + 1, provenance.leader_epoch)
        return snapshot_id, provenance.timestamp_ms, encoded_slices(image)


class ControllerChanges:
    """Changes made on a controller listener: done once committed, without waiting for a broker to follow."""

    def __init__(self, controller: ControllerRuntime) -> None:
        self._controller = controller

    async def change(
        self, decide: Callable[[Controller, int], Decided[Any, R]], *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        return await self._controller.write(decide, timeout_ms=timeout_ms)


def _token_rules(config: "BrokerConfig") -> "TokenRules | None":
    """Return the rules of delegation.token.*, or None if no secret key is configured."""
    security = config.security
    key = security.delegation_token_secret_key
    if key is None or not key.value:
        return None
    from kafkapy.metadata.delegation_tokens import TokenRules

    return TokenRules(
        key.value.encode(), security.delegation_token_max_lifetime_ms, security.delegation_token_expiry_time_ms
    )


def _ignore(_: int) -> None:
    """The default load listener."""


def _slices(records: Iterable[Any]) -> Iterator[list[Any]]:
    """Yield the records in lists of RECORDS_PER_STEP."""
    remaining = iter(records)
    while found := list(islice(remaining, RECORDS_PER_STEP)):
        yield found


def _time_out(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_exception(ApiError(ErrorCode.REQUEST_TIMED_OUT))
