"""Heartbeats of share groups that need a large target assignment: it is computed in turns, then the heartbeat decided.

10,000 partitions take 100 ms, and all other clients would wait for that. A heartbeat that finds that it needs such a
target changes nothing; it is decided again with the target, and once more if the group has changed meanwhile. The other
heartbeats of the group wait, because they would need the same target.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.group.share.target import LargeTargetError, TargetInput, target_steps
from kafkapy.runtime.turns import in_turns

if TYPE_CHECKING:
    from kafkapy.group.assignors.spec import GroupAssignment
    from kafkapy.seams import Clock

STEPS_PER_TURN: Final = 2
"""Of one to three milliseconds each; most turns end by time."""
TRIES: Final = 3
"""How often a target is computed in turns, before one is at once: the group may change each time."""


class ShareTargets:
    """The groups whose target is being computed."""

    def __init__(self, clock: "Clock") -> None:
        self._clock = clock
        self._computing: dict[str, asyncio.Future[None]] = {}

    async def decided(
        self,
        group_id: str,
        decide: Callable[[bool], Awaitable[Any]],
        keep: "Callable[[TargetInput, GroupAssignment], None]",
    ) -> Any:
        """Return what decide(gives_way) returns, which raises LargeTargetError if it gives way.

        keep(input, target): have the group keep a target for the next decision.
        """
        while True:
            try:
                return await decide(True)
            except LargeTargetError as error:
                wanted = error.input
            others = self._computing.get(group_id)
            if others is None:
                break
            await asyncio.wait({others})
        ended = self._computing[group_id] = asyncio.get_running_loop().create_future()
        try:
            return await self._computed(decide, keep, wanted)
        finally:
            del self._computing[group_id]
            ended.set_result(None)

    async def _computed(
        self,
        decide: Callable[[bool], Awaitable[Any]],
        keep: "Callable[[TargetInput, GroupAssignment], None]",
        wanted: TargetInput,
    ) -> Any:
        for _ in range(TRIES):
            keep(wanted, await in_turns(target_steps(wanted), self._clock, STEPS_PER_TURN))
            try:
                return await decide(True)
            except LargeTargetError as error:
                wanted = error.input
        return await decide(False)
