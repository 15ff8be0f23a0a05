"""Runs the controller on the metadata quorum: decide -> append -> replay -> respond once committed; publishes images.

A long decision is made in steps (machine.Steps), spread over turns of the event loop. Other decisions wait in
decision_queue.py, except heartbeats that change nothing. Its records are encoded, replayed and delivered in turns as
well; those of an atomic decision are in one batch.

Every node maintains the image (`image`, passed to listeners with each committed change). The active controller also has
the controller's tables while its term lasts (term.py). schedule.py is its periodic work.

An invariant that fails during replay means a bug or a corrupt log: `on_fatal` stops the process.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.errors import ApiError
from kafkapy.machine import Decided, Decision
from kafkapy.metadata.bootstrap import decide_activation
from kafkapy.metadata.controller import Controller
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import MetadataImage, Provenance
from kafkapy.metadata.loader import ImageLoader
from kafkapy.metadata.record_serde import decode_record, import_record_types
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.controller.decision_queue import DecisionQueue
from kafkapy.runtime.controller.schedule import ControllerSchedule
from kafkapy.runtime.controller.settings import ControllerSettings
from kafkapy.runtime.controller.term import RECORDS_PER_STEP, Term, not_controller
from kafkapy.runtime.turns import PAUSE_MS, Turn
from kafkapy.seams import Clock, Random
from kafkapy.storage.metadata.metadata_log import max_batch_bytes
from kafkapy.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kafkapy.metrics.operations import OperationCounts
    from kafkapy.runtime.quorum.quorum import CommittedBatch, Quorum, SnapshotSource

R = TypeVar("R")

ImageListener = Callable[[MetadataDelta, MetadataImage], None]
"""Called with each change and the committed image after it, in order, on the loop's thread."""

STEPS_PER_TURN: Final = 200
"""A turn ends after this many steps, whatever the clock says (it stands still in the simulator)."""
RECORDS_PER_IMAGE: Final = 1_000
"""If more records are committed at once, an image is published after each this many records (in whole batches)."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""Default time-out of requests that have none of their own."""
MIN_COMMIT_WAIT_MS: Final = 1000
"""Minimum time that a request with a time-out waits for the commit of appended records: it will most likely succeed."""
IMPORTS_AFTER_MS: Final = 1000
"""When the classes of records are imported, after the start."""

log = logging.getLogger(__name__)


class MetadataRuntime:
    """One node's part in the controller quorum. Implements QuorumListener."""

    def __init__(
        self,
        *,
        quorum: "Quorum",
        settings: ControllerSettings,
        clock: Clock,
        random: Random,
        on_fatal: Callable[[BaseException], None],
        counts: "OperationCounts | None" = None,
    ) -> None:
        """`counts`: what operations are counted in, if anywhere."""
        self._quorum = quorum
        self._settings = settings
        self._clock = clock
        self._random = random
        self._on_fatal = on_fatal
        self._loader = ImageLoader()
        self._listeners: list[ImageListener] = []
        self._on_loaded: Callable[[int], None] = _ignore
        self._term: Term | None = None
        self._pending: deque[tuple[int, asyncio.Future[None]]] = deque()
        """(last offset, future) of requests that wait for their commit, in offset order."""
        self._counts = counts
        self._decisions = DecisionQueue(counts)
        self._committed_offset = -1
        self.snapshot_count = 0
        """How many snapshots of the metadata were loaded."""
        self.term_count = 0
        """How often this node became the active controller."""
        self.schedule = ControllerSchedule(self, settings.config, clock)
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
        """Whether this node is the active controller: it leads the quorum and has built its tables.

        Not while its log waits for room on the disk: another node leads soon, and this one does not learn of it.
        """
        return self._term is not None and self._term.is_begun and not self._quorum.effects.waiting

    def heartbeat_ages_ms(self) -> dict[int, int]:
        """Return how long ago each broker sent its last heartbeat; nothing unless this node is active."""
        if self._term is None or not self._term.is_begun:
            return {}
        return self._term.controller.brokers.heartbeat_ages_ms(self._clock.monotonic_ms())

    def add_image_listener(self, listener: ImageListener) -> None:
        """Call `listener` with each image from now on. A listener added later must read `image` first."""
        self._listeners.append(listener)

    def set_load_listener(self, listener: Callable[[int], None]) -> None:
        """Call `listener` while a snapshot is loaded, with the number of records loaded since the last call."""
        self._on_loaded = listener

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
        that happens while waiting for the commit, the change may still be committed. Deviation: Apache Kafka waits for
        as long as it may forward the request. Here the wait lasts at least MIN_COMMIT_WAIT_MS, because what is decided
        is mostly committed by then.

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
        """Like `write`; also return whether there were records."""
        if timeout_ms is not None and timeout_ms <= 0:
            self._decisions.on_timed_out()
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT)
        controller = self._active().controller
        if may_interrupt and self._decisions.is_taken:
            decided = decide(controller, self._clock.monotonic_ms())
            if isinstance(decided, Decision) and not decided.records:
                await self._committed(controller.next_offset - 1, timeout_ms)
                return decided.response, False
        await self._decisions.acquire(timeout_ms)
        response, first_offset, end_offset = await self._decide(decide)
        await self._committed(end_offset - 1, timeout_ms)
        return response, end_offset > first_offset

    def write_soon(
        self,
        decide: Callable[[Controller, int], Decided[Any, R]],
        on_done: Callable[[R | BaseException], None],
        *,
        timeout_ms: int | None = None,
        may_interrupt: bool = False,
    ) -> None:
        """Like `write` without waiting; `on_done` gets the response or the error. close() cancels what still runs."""

        async def run() -> None:
            try:
                result: R | BaseException = await self.write(decide, timeout_ms=timeout_ms, may_interrupt=may_interrupt)
            except Exception as error:  # on_done must be called after any error
                result = error
            on_done(result)

        self._run_in_background(run())

    def pop_has_appended(self) -> bool:
        """Return whether records were appended in this term since the last call."""
        term = self._active()
        has_appended, term.has_appended = term.has_appended, False
        return has_appended

    def start(self) -> None:
        """Start the periodic work."""
        self.schedule.start(has_tokens=self._settings.token_rules is not None)
        self._run_in_background(self._import_record_types())

    def _run_in_background(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _import_record_types(self) -> None:
        """Import the classes of records soon after the start, before connections may take the last descriptor.

        If the class of a committed record cannot be imported, this node stops, as after any error in replay.
        """
        while True:
            await asyncio.sleep(IMPORTS_AFTER_MS / 1000)
            try:
                import_record_types()
            except (OSError, ImportError) as error:
                log.warning("Could not import the types of metadata records, trying again: %s", error)
            else:
                return

    async def close(self) -> None:
        """Cancel the tasks; pending writes fail. The owner closes the quorum after this."""
        self._end_term()
        background = list(self._background)
        for task in background:
            task.cancel()
        await self.schedule.close()
        await asyncio.gather(*background, return_exceptions=True)

    # -- the quorum's listener ------------------------------------------------------------------------------------

    def on_load_snapshot(self, reader: "SnapshotSource") -> Iterator[None]:
        """Replace the image by a snapshot's, in steps."""
        self.snapshot_count += 1
        return self._guarded(self._load_snapshot(reader))

    def on_commit(self, batches: "list[CommittedBatch]") -> Iterator[None]:
        """Replay the batches into the image, notify listeners, complete the writes that waited for it; in steps."""
        return self._guarded(self._replay_committed(batches))

    def on_leader_change(self, leader_id: int, leader_epoch: int) -> Iterator[None] | None:
        """Begin a term with tables built from the image, in steps, or end one."""
        self._end_term()
        if leader_id != self._settings.config.node_id:
            return None
        self._term = self._new_term(leader_epoch)
        return self._guarded(self._begin_term(self._term))

    def _load_snapshot(self, reader: "SnapshotSource") -> Iterator[None]:
        snapshot_id = reader.snapshot_id
        provenance = Provenance(
            snapshot_id.offset - 1, snapshot_id.leader_epoch, reader.last_contained_log_timestamp_ms
        )
        # The records of snapshot 0-0 are those that the first leader writes to the log (server/formatted.py).
        records = self._decoded(reader) if snapshot_id.offset > 0 else iter(())
        yield from self._loader.load_snapshot(records, provenance)
        yield from self._publish()
        self._on_committed(snapshot_id.offset - 1)

    def _decoded(self, reader: "SnapshotSource") -> Iterator[Any]:
        for batch in reader.batches():
            yield from map(decode_record, batch)
            self._on_loaded(len(batch))

    def _replay_committed(self, batches: "list[CommittedBatch]") -> Iterator[None]:
        count = 0
        for batch in batches:
            steps = self._replay(batch)
            yield from steps if self._counts is None else self._counts.batch(steps, len(batch.records))
            self._loader.end_batch(Provenance(batch.last_offset, batch.leader_epoch, batch.append_timestamp_ms))
            count += len(batch.records)
            if count >= RECORDS_PER_IMAGE or batch is batches[-1]:
                count = 0
                yield from self._publish()
                self._on_committed(batch.last_offset)
                if batch is not batches[-1]:
                    yield

    def _replay(self, batch: "CommittedBatch") -> Iterator[None]:
        for records in _slices(self._records_of(batch)):
            self._loader.replay(records)
            yield

    def _on_committed(self, offset: int) -> None:
        self._committed_offset = offset
        while self._pending and self._pending[0][0] <= offset:
            _, future = self._pending.popleft()
            if not future.done():
                future.set_result(None)

    def _records_of(self, batch: "CommittedBatch") -> Iterable[Any]:
        own = None if self._term is None else self._term.pop_appended(batch)
        return map(decode_record, batch.records) if own is None else own

    def _publish(self) -> Iterator[None]:
        published = yield from self._loader.publish()
        if published is not None:
            for listener in self._listeners:
                listener(*published)

    def _guarded(self, steps: Iterator[None]) -> Iterator[None]:
        """Run the steps; fail the process on an error, as the state is not valid after it."""
        try:
            yield from steps if self._counts is None else self._counts.notification(steps)
        except Exception as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        log.critical("Error applying records of the metadata log, stopping: %s", error, exc_info=error)
        self._end_term()
        self._on_fatal(error)

    # -- a term ---------------------------------------------------------------------------------------------------

    def _begin_term(self, term: Term) -> Iterator[None]:
        image = self.image
        yield from term.build(image, self._clock)
        if term.is_ended:
            return  # another node leads by now, or this one has resigned
        assert image is self.image, "nothing is committed between the steps of a term's beginning"
        decision = decide_activation(
            self._settings.bootstrap_records,
            is_log_empty=term.controller.features.is_empty,
            is_in_transaction=self._loader.is_in_transaction,
            min_insync_replicas=self._settings.min_insync_replicas,
        )
        for _ in term.append(decision.records, is_atomic=decision.is_atomic):
            pass  # a few records
        self.term_count += 1
        next_offset = term.controller.next_offset
        log.info("Became the active controller at epoch %d, offset %d", term.leader_epoch, next_offset)

    def _new_term(self, leader_epoch: int) -> Term:
        controller = self._settings.new_controller(self._quorum.cluster_id, self._random)
        limit = max_batch_bytes(self._settings.config.quorum)
        return Term(controller, self._quorum, leader_epoch, self._fail, max_batch_bytes=limit)

    def _end_term(self) -> None:
        if self._term is not None:
            self._term.end()
            self._term = None
        pending, self._pending = self._pending, deque()
        for _, future in pending:
            if not future.done():
                future.set_exception(not_controller(self._quorum))

    def _active(self) -> Term:
        term = self._term
        if term is None or not self.is_active:  # one that waits for room would answer what changes nothing as before
            raise not_controller(self._quorum)
        return term

    async def _decide(self, decide: Callable[[Controller, int], Decided[Any, R]]) -> tuple[R, int, int]:
        """Decide, append, replay; return the response and the log end offset before and after. Needs the decision lock.

        If this takes more than a turn, the rest runs in a task: the caller may be cancelled, but the decision is
        completed.
        """
        is_released = False
        try:
            term = self._active()
            controller = term.controller
            steps = term.decide_and_append(decide, self._clock.monotonic_ms())
            first_offset = controller.next_offset
            turn = Turn(self._clock, STEPS_PER_TURN)
            while not turn.is_over(next(steps)):
                pass
            task = asyncio.get_running_loop().create_task(self._go_on(term, steps, turn))
            is_released = True
        except StopIteration as end:
            return end.value, first_offset, controller.next_offset
        finally:
            if not is_released:
                self._decisions.release()
        self._background.add(task)
        task.add_done_callback(self._on_ended)
        response, end_offset = await asyncio.shield(task)
        term.check()  # if it ended meanwhile, another leader's records may have these offsets
        return response, first_offset, end_offset

    async def _go_on(self, term: Term, steps: Generator[int, None, R], turn: Turn) -> tuple[R, int]:
        """Run the remaining turns of a decision."""
        try:
            while True:
                await asyncio.sleep(PAUSE_MS / 1000)
                term.check()
                turn.begin()
                while not turn.is_over(next(steps)):
                    pass
        except StopIteration as end:
            return end.value, term.controller.next_offset

    def _on_ended(self, task: "asyncio.Task[Any]") -> None:
        """A decision that took more than a turn is done, or was cancelled, perhaps before its task began."""
        self._decisions.release()
        self._background.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as retrieved: the caller, who gets it, may be gone

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

    def _snapshot(self) -> tuple[OffsetAndEpoch, int, Iterable[list[bytes]]]:
        from kafkapy.metadata.snapshot import encoded_slices

        image = self.image
        provenance = image.provenance
        snapshot_id = OffsetAndEpoch(provenance.last_offset + 1, provenance.leader_epoch)
        return snapshot_id, provenance.timestamp_ms, encoded_slices(image)


class ControllerChanges:
    """Changes made on a controller listener: done once committed, without waiting for a broker to apply them."""

    def __init__(self, controller: MetadataRuntime) -> None:
        self._controller = controller

    async def change(
        self, decide: Callable[[Controller, int], Decided[Any, R]], *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        return await self._controller.write(decide, timeout_ms=timeout_ms)


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
