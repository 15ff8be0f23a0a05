"""A stop is taken to its end, whatever one of its steps fails with: what comes last, the logs, matters most."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from enum import IntEnum, auto
from typing import TypeAlias

Step: TypeAlias = Callable[[], Awaitable[object] | None]

logger = logging.getLogger("kafkapy.server")


class StopOrder(IntEnum):
    """The steps of a node's stop, in their order."""

    METADATA_ROOM = auto()
    REGISTRATION = auto()
    """Controlled shutdown: leaderships are handed over."""
    COMMITTED_CHANGES = auto()
    ACCEPTING = auto()
    LATE_TRANSACTIONS = auto()
    TRANSACTIONS = auto()
    TRANSACTION_LINKS = auto()
    GROUPS = auto()
    WAITING_REQUESTS = auto()
    CONNECTIONS = auto()
    REPLICATION = auto()
    PRODUCER_IDS = auto()
    LAST_CHANGES = auto()
    METADATA_FOLLOWER = auto()
    """Before the moves end, as it would begin them again."""
    MOVES = auto()
    FLUSHES = auto()
    MAINTENANCE = auto()
    CLEANER = auto()
    TIMERS = auto()
    CONTROLLER = auto()
    METADATA_LOG = auto()
    LOGS = auto()
    LOCKS = auto()
    IO_POOL = auto()
    ADMIN = auto()
    """Last: it says that the node is stopping."""


class Stops:
    """What is to be done at a stop: each part of a node adds its steps as it starts, whatever order it starts in.

    A start that fails undoes the steps that were added by then, in the same order.
    """

    def __init__(self) -> None:
        self._steps: dict[StopOrder, tuple[Step, Step | None]] = {}
        self.has_begun = False

    @property
    def added(self) -> frozenset[StopOrder]:
        return frozenset(self._steps)

    def add(self, order: StopOrder, stop: Step) -> None:
        """Do `stop` at a stop, and where the start fails."""
        self.add_apart(order, stop, undo=stop)

    def add_apart(self, order: StopOrder, stop: Step, *, undo: Step | None) -> None:
        """Do `stop` at a stop, `undo` where the start fails: nothing is promised then, and nobody waits."""
        assert order not in self._steps, f"{order.name} is added twice"
        self._steps[order] = (stop, undo)

    async def stop(self) -> None:
        """Stop in order. Raises as take_steps does."""
        self.has_begun = True
        await take_steps(stop for _, (stop, _) in sorted(self._steps.items()))

    async def undo(self) -> None:
        """Undo a start that failed. Raises as take_steps does."""
        await take_steps(undo for _, (_, undo) in sorted(self._steps.items()) if undo is not None)


async def take_steps(steps: Iterable[Step]) -> None:
    """Take the steps of a stop in their order. One that fails is logged, and those behind it are taken all the same.

    Raises the first failure once all are taken. To be cancelled is a failure, too, of the step at work.
    """
    first: BaseException | None = None
    for step in steps:
        try:
            waits = step()
            if waits is not None:
                await waits
        except (Exception, asyncio.CancelledError) as error:
            logger.error("The stop goes on after %s failed: %r", step.__qualname__, error, exc_info=error)
            first = first or error
    if first is not None:
        raise first
