"""Has the broker follow the metadata: what a committed change means to it, carried out in order, giving way to others.

A change may mean thousands of logs to make. It is carried out in steps, a partition each, with a pause after TURN_MS of
them; one change is done before the next begins, small ones by the time that the controller's write returns. Meanwhile
the metadata is ahead of the broker: clients are told of a partition that is answered NOT_LEADER_OR_FOLLOWER or
UNKNOWN_TOPIC_OR_PARTITION for the moment, and ask again, as with Apache Kafka, whose BrokerMetadataPublisher publishes
the image before the replicas follow it. What the metadata deletes is not served from then on (replication/hosted.py).

A stop or a crash in between loses nothing: the next start follows the whole image. How much may wait is bounded by
those who cause it: `change` answers once all is done, or most of the time that a client gives it has passed.
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
    from kafkapy.runtime.controller import ControllerRuntime
    from kafkapy.seams import Clock

R = TypeVar("R")

STEPS_PER_TURN: Final = 100
"""A log is made in 0.2 ms, on a slow file system in 2; deleting so many takes 2 ms."""
REQUEST_TIMEOUT_MS: Final = 30_000
"""How long clients wait for an answer, as a rule."""

logger = logging.getLogger(__name__)


class MetadataFollower:
    """Queues the changes of the metadata and carries them out in order.

    `follow(delta, image)` carries one out, a step whenever it is asked for the next.
    """

    def __init__(
        self,
        controller: "ControllerRuntime",
        follow: "Callable[[MetadataDelta, MetadataImage], Iterator[None]]",
        *,
        clock: "Clock",
        on_fatal: Callable[[BaseException], None],
    ) -> None:
        self._controller = controller
        self._follow = follow
        self._clock = clock
        self._on_fatal = on_fatal
        self._changes: deque[tuple[MetadataDelta, MetadataImage]] = deque()
        """What is to be done behind the change at work."""
        self._steps: Iterator[None] | None = None
        self._begun_count = 0
        self._waiting: deque[tuple[int, asyncio.Future[bool]]] = deque()
        """(how many changes have to be done, future), in that order."""
        self._turn: asyncio.TimerHandle | None = None
        self._is_at_work = False
        self._is_closed = False

    @property
    def is_behind(self) -> bool:
        """Whether there is metadata that the broker does not follow yet."""
        return self._steps is not None or bool(self._changes)

    @property
    def waiting_count(self) -> int:
        """How many changes of the metadata the broker has not done yet."""
        return len(self._changes) + (self._steps is not None)

    def on_image(self, delta: "MetadataDelta", image: "MetadataImage") -> None:
        """Follow a committed image (an ImageListener): now, as far as a turn goes."""
        if self._is_closed:
            return
        self._changes.append((delta, image))
        if self._turn is None and not self._is_at_work:
            self._work()

    async def change(
        self, decide: "Callable[[Controller, int], Decided[Any, R]]", *, timeout_ms: int = REQUEST_TIMEOUT_MS
    ) -> R:
        """Have the controller decide, as its `write` does; return once this broker has followed what it decided.

        timeout_ms: how long the client waits, for the controller as said there. Half of that after the change was
        committed the client is answered what was decided, as it is by Apache Kafka at once: were the answer late, the
        client would ask again, and be told that its topic exists already.
        """
        response, has_records = await self._controller.write_noting(decide, timeout_ms=timeout_ms)
        if has_records:
            await self.caught_up(timeout_ms // 2)
        return response

    async def caught_up(self, timeout_ms: int | None = None) -> bool:
        """Return once the broker follows all metadata that is committed by now; at once, where it does already.

        Returns False where it does not after timeout_ms.
        """
        if not self.is_behind:
            return True
        loop = asyncio.get_running_loop()
        future: asyncio.Future[bool] = loop.create_future()
        self._waiting.append((self._begun_count + len(self._changes), future))
        timer = loop.call_later(timeout_ms / 1000, _settle, future, False) if timeout_ms is not None else None
        try:
            return await future
        finally:
            if timer is not None:
                timer.cancel()

    def close(self, failure: Exception | None = None) -> None:
        """Leave what is not done to the next start; who waits for it is told of the failure, if it is one."""
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
        """Take as many steps as fit into a turn; come again where more are left."""
        self._turn = None
        self._is_at_work = True
        try:
            is_done = self._take_steps()
        except Exception as error:
            logger.critical("The broker cannot follow the metadata: %s", error, exc_info=error)
            self.close(error)
            self._on_fatal(error)
            return
        finally:
            self._is_at_work = False
        self._wake_waiting()
        if not is_done and not self._is_closed:
            self._turn = asyncio.get_running_loop().call_later(PAUSE_MS / 1000, self._work)

    def _take_steps(self) -> bool:
        """Return whether all is done."""
        turn = Turn(self._clock, STEPS_PER_TURN)
        while True:
            if self._steps is None:
                if not self._changes:
                    return True
                self._begun_count += 1
                self._steps = self._follow(*self._changes.popleft())
            if next(self._steps, self) is self:
                self._steps = None
            if turn.is_over():
                return not self.is_behind

    def _wake_waiting(self) -> None:
        done_count = self._begun_count - (self._steps is not None)
        while self._waiting and self._waiting[0][0] <= done_count:
            _, future = self._waiting.popleft()
            _settle(future, True)


def _settle(future: "asyncio.Future[bool]", is_caught_up: bool) -> None:
    if not future.done():
        future.set_result(is_caught_up)
