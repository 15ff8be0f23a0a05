"""The order of a node's stop. Every step is taken even if another one fails: the logs come late and matter most."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator
from enum import IntEnum, auto
from typing import TypeAlias

Step: TypeAlias = Callable[[], Awaitable[object] | None]

logger = logging.getLogger("kafkapy.server")


class StopOrder(IntEnum):
    """The steps of a node's stop, in their order."""

    METADATA_ROOM = auto()
    REGISTRATION = auto()
    """Controlled shutdown: partition leadership moves to other brokers."""
    COMMITTED_CHANGES = auto()
    SERVING = auto()
    """No request is started any more, as by Apache Kafka: this node has no heartbeats, and may be fenced any time."""
    LATE_TRANSACTIONS = auto()
    TRANSACTIONS = auto()
    TRANSACTION_LINKS = auto()
    GROUPS = auto()
    SHARE_READS = auto()
    """Before SHARE_GROUPS, to which they write."""
    SHARE_GROUPS = auto()
    WAITING_REQUESTS = auto()
    CONNECTIONS = auto()
    LOGINS = auto()
    TELEMETRY = auto()
    REPLICATION = auto()
    PRODUCER_IDS = auto()
    LAST_CHANGES = auto()
    METADATA_PUBLISHER = auto()
    """Before MOVES, as the publisher would start moves again."""
    FULL_DIRECTORIES = auto()
    MOVES = auto()
    FLUSHES = auto()
    MAINTENANCE = auto()
    CLEANER = auto()
    TIMERS = auto()
    CONTROLLER = auto()
    METADATA_LOG = auto()
    LOGS = auto()
    IO_POOL = auto()
    LOCKS = auto()
    """After IO_POOL: if LOGS is cancelled, a worker may still write the clean-shutdown file."""
    ADMIN = auto()
    """Last: until then it reports that the node is stopping."""


class Stops:
    """The steps of a stop. Each part of a node adds its steps when it starts, in any order.

    If a start fails, the steps added so far are undone, in stop order.
    """

    def __init__(self) -> None:
        self._steps: dict[StopOrder, tuple[Step, Step | None]] = {}
        self.has_begun = False
        self.hurry: Callable[[], None] = lambda: None
        """To be called if a stop shall not wait for other nodes any longer."""
        self.current: StopOrder | None = None
        """The step that is being taken, or was taken last. Other threads may read it."""

    @property
    def added(self) -> frozenset[StopOrder]:
        return frozenset(self._steps)

    def add(self, order: StopOrder, stop: Step) -> None:
        """Run `stop` at a stop, and if the start fails."""
        self.add_apart(order, stop, undo=stop)

    def add_apart(self, order: StopOrder, stop: Step, *, undo: Step | None) -> None:
        """Run `stop` at a stop, but `undo` if the start fails: there are no clients to answer then."""
        assert order not in self._steps, f"{order.name} is added twice"
        self._steps[order] = (stop, undo)

    async def stop(self) -> None:
        """Stop in order. Raises as run_steps does."""
        self.has_begun = True
        await run_steps(stop for stop, _ in self._in_order())

    async def undo(self) -> None:
        """Undo a start that failed. Raises as run_steps does."""
        await run_steps(undo for _, undo in self._in_order() if undo is not None)

    def _in_order(self) -> Iterator[tuple[Step, Step | None]]:
        for order, steps in sorted(self._steps.items()):
            self.current = order
            yield steps


async def run_steps(steps: Iterable[Step]) -> None:
    """Take the steps of a stop in order. If a step fails, log it and continue with the next.

    Raises the first failure after all steps. A cancellation counts as a failure of the step that was running.
    """
    first: BaseException | None = None
    for step in steps:
        try:
            waits = step()
            if waits is not None:
                await waits
        except (Exception, asyncio.CancelledError) as error:
            logger.error(
                "%s failed; continuing to shut down: %s",
                step.__qualname__,
                str(error) or type(error).__name__,
                exc_info=error,
            )
            first = first or error
    if first is not None:
        raise first
