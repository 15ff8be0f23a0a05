"""Applies committed metadata changes to the broker, in order and in turns of the event loop.

A change may create thousands of logs. It is applied in steps, one partition each, with a pause after each TURN_MS of
work. A change is complete before the next one begins; small ones are complete when the controller's write returns. In
the meantime the metadata is ahead of the broker: clients may see a partition that still answers NOT_LEADER_OR_FOLLOWER
or UNKNOWN_TOPIC_OR_PARTITION, and retry, as with Apache Kafka, whose BrokerMetadataPublisher publishes the image before
the replicas follow. A deleted partition is not served from the image on (replication/hosted_partitions.py).

Each new partition is led, or followed, from its own step on (ReplicaManager.apply_delta). What many of them take is
mostly the kernel's work: making the directory and the four files of a log takes ext4 0.1 ms, but 1 to 4 ms if thousands
of files were deleted within the last minutes, as it does not use their inodes again so soon (recently_deleted).

A stop or crash in between loses nothing: the next start applies the whole image. The queue is bounded by
its callers: `change` returns once its change is applied, or after half of the client's time-out.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from kafkapy.runtime.turns import PAUSE_MS, Turn

if TYPE_CHECKING:
    from kafkapy.machine import Decided
    from kafkapy.metadata.controller import Controller
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.runtime.controller.controller import MetadataRuntime
    from kafkapy.seams import Clock

R = TypeVar("R")

STEPS_PER_TURN: Final = 100
"""A log is created in 0.2 ms, on a slow file system in 2 ms; deleting this many takes 2 ms."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""Default time-out of clients' requests."""

logger = logging.getLogger(__name__)


class MetadataPublisher:
    """Queues metadata changes and applies them in order.

    `publish(delta, image)` applies one change; each next() of its iterator is a step.
    """

    def __init__(
        self,
        controller: "MetadataRuntime",
        publish: "Callable[[MetadataDelta, MetadataImage], Iterator[None]]",
        *,
        clock: "Clock",
        on_fatal: Callable[[BaseException], None],
        on_steps: Callable[[int], None] = lambda count: None,
    ) -> None:
        """on_steps(count): called after each turn with the number of its steps."""
        self._controller = controller
        self._publish = publish
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_steps = on_steps
        self._changes: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        """Changes that have not been started."""
        self._steps: Iterator[None] | None = None
        self._begun_count = 0
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()
        """(number of changes that must be complete, future), in order of that number."""
        self._turn: asyncio.TimerHandle | None = None
        self._step_count = 0
        """The steps of the current turn."""
        self._is_at_work = False
        self._is_closed = False

    @property
    def is_behind(self) -> bool:
        """Whether there is metadata that the broker has not applied yet."""
        return self._steps is not None or bool(self._changes)

    @property
    def waiting_count(self) -> int:
        """The number of changes that are not completely applied."""
        return len(self._changes) + (self._steps is not None)

    def on_image(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Apply a committed image (an ImageListener): immediately, as far as one turn goes."""
        if self._is_closed:
            return
        self._changes.append((delta, image))
        if self._turn is None and not self._is_at_work:
            self._work()

    async def change(
        self, decide: "Callable[[Controller, int], Decided[Any, R]]", *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        """Write a decision by the controller; return once this broker has applied the change.

        timeout_ms: the client's time-out, for the controller as described there. If the change is not applied within
        half of it after the commit, the response is sent anyway; Apache Kafka always sends it right after the commit. A
        late response would make the client retry and receive an error that its topic already exists.
        """
        response, has_records = await self._controller.write_noting(decide, timeout_ms=timeout_ms)
        if has_records and self.is_behind:
            await self.caught_up(timeout_ms // 2)
        return response

    async def caught_up(self, timeout_ms: int | None = None) -> bool:
        """Return True once the broker has applied all metadata committed so far; at once if it already has.

        Returns False if that takes longer than timeout_ms.
        """
        if not self.is_behind:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((self._begun_count + len(self._changes), future))
        timer = loop.call_later(timeout_ms / 1000, _set_outcome, future, False) if timeout_ms is not None else None
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    def close(self, failure: Exception | None = None) -> None:
        """Drop the remaining changes: the next start applies them. Waiters get the failure, or are cancelled."""
        self._is_closed = True
        self._changes.clear()
        self._steps = None
        if self._turn is not None:
            self._turn.cancel()
            self._turn = None
        waiting, self._waiting = self._waiting, deque()
        for _, future in waiting:
            if failure is None:
                future.cancel()
            elif not future.done():
                future.set_exception(failure)

    def _work(self) -> None:
        """Take the steps of one turn; schedule another turn if steps are left."""
        self._turn = None
        self._is_at_work = True
        try:
            is_done = self._run_steps()
        except Exception as error:
            logger.critical("Error publishing metadata to this broker, stopping: %s", error, exc_info=error)
            self.close(error)
            self._on_fatal(error)
            return
        finally:
            self._is_at_work = False
        self._on_steps(self._step_count)
        self._wake_waiting()
        if not is_done and not self._is_closed:
            self._turn = asyncio.get_running_loop().call_later(PAUSE_MS / 1000, self._work)

    def _run_steps(self) -> bool:
        """Return whether everything is applied."""
        turn = Turn(self._clock, STEPS_PER_TURN)
        self._step_count = 0
        while True:
            if self._steps is None:
                if not self._changes:
                    return True
                self._begun_count += 1
                self._steps = self._publish(*self._changes.popleft())
            self._step_count += 1
            if next(self._steps, self) is self:
                self._steps = None
            if turn.is_over():
                return not self.is_behind

    def _wake_waiting(self) -> None:
        done_count = self._begun_count - (self._steps is not None)
        while self._waiting and self._waiting[0][0] <= done_count:
            _, future = self._waiting.popleft()
            _set_outcome(future, True)


def _set_outcome(future: "asyncio.Future[bool]", is_caught_up: bool) -> None:
    if not future.done():
        future.set_result(is_caught_up)
