"""Decisions of groups that depend on long work: the work is done in turns, and then the decision is made.

A target assignment of 10,000 partitions or tasks takes 100 ms, and all other clients would wait for that. A heartbeat
that finds that it needs such a target changes nothing; it is decided again with the target, and once more if the group
has changed meanwhile. The other heartbeats of the group that need long work wait, because most need the same.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.group.long_work import LongWork, LongWorkError, Results
from kafkapy.runtime.turns import in_turns

if TYPE_CHECKING:
    from kafkapy.machine import SmallSteps
    from kafkapy.seams import Clock

STEPS_PER_TURN: Final = 2
"""Steps of a turn, one to three milliseconds each; most turns end by time."""
TRIES: Final = 4
"""How often work is done in turns, before a decision does it at once: the group may change each time."""


class LongDecisions:
    """The groups for which work is being done."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._working: dict[str, asyncio.Future[None]] = {}

    async def decided(
        self, group_id: str, decide: Callable[[bool], Awaitable[Any]], results: Results, wanted: LongWork
    ) -> Any:
        """Return the result of decide(gives_way). With gives_way it may raise LongWorkError.

        wanted: the work for which it gave way just before this call. results: what `decide` finds of work that is done.
        """
        while (others := self._working.get(group_id)) is not None:
            await asyncio.wait({others})
            try:
                return await decide(True)
            except LongWorkError as error:
                wanted = error.work
        ended = self._working[group_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._decided_later(decide, results, wanted)
        finally:
            del self._working[group_id]
            ended.set_result(None)

    async def _decided_later(self, decide: Callable[[bool], Awaitable[Any]], results: Results, wanted: LongWork) -> Any:
        for _ in range(TRIES):
            results.keep(wanted, await in_turns(steps_of(wanted), self._clock, STEPS_PER_TURN))
            try:
                return await decide(True)
            except LongWorkError as error:
                wanted = error.work
        return await decide(False)


def steps_of(work: LongWork) -> "SmallSteps[Any]":
    return work.steps()
