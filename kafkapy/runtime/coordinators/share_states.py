"""Sends share groups' decisions on states of share partitions to the share coordinator, and reports the outcome back.

A heartbeat does not wait for the states that it needs: they are created after its response. Requests about offsets wait
for theirs (share_offsets.py).
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError
from kafkapy.group.share.decision import DeleteStates, InitializeStates
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import InitialState, Persister, TopicIdPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from kafkapy.group.shard import GroupShard
    from kafkapy.group.share.decision import ShareDecision
    from kafkapy.share.persister import PartitionResult, StateSummary
    from kafkapy.types import Uuid

logger = logging.getLogger("kafkapy.group")

MAX_AT_ONCE: Final = 100
"""Groups whose states are created behind heartbeats at the same time; each is one call of the persister."""

DecideOutcome = Callable[[str, "Callable[[GroupShard], ShareDecision]"], None]
"""Called with a group id and a decision for the group's shard; raises ApiError if it cannot be carried out."""


class ShareStates:
    """The states of the share groups that this node coordinates, through the seam to the share coordinator."""

    def __init__(self, persister: Persister, decide_outcome: DecideOutcome) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        """Work that goes on after responses; cancelled when the coordinator closes."""
        self._persister = persister
        self._decide = decide_outcome
        self._room = asyncio.Semaphore(MAX_AT_ONCE)

    def begin(self, effect: InitializeStates) -> None:
        """Create states in the background."""
        task = asyncio.get_running_loop().create_task(self._initialize_behind(effect))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _initialize_behind(self, effect: InitializeStates) -> None:
        async with self._room:
            try:
                await self.initialize(effect)
            except Exception:
                logger.exception("Could not create states of share group %s, trying again later", effect.group_id)

    async def initialize(
        self, effect: InitializeStates, *, is_tried_again_soon: bool = True
    ) -> "list[PartitionResult]":
        """Create states and report to the group; return the outcome for each share partition.

        If one fails, none counts as created, as in Kafka: the next heartbeat tries all again, or, unless
        is_tried_again_soon, one after group.share.initialize.retry.interval.ms.
        """
        results = await self._persister.initialize(effect.group_id, _initial_states(effect))
        partitions = {topic_id: set(offsets) for topic_id, offsets in effect.start_offsets.items()}
        failed = next((result for result in results if result.error_code), None)
        if failed is not None:
            logger.warning(
                "Could not create states of %d partitions of share group %s (%s), trying again with a next heartbeat",
                len(results),
                effect.group_id,
                ErrorCode(failed.error_code).name,
            )
            if is_tried_again_soon:
                self._report(effect, lambda shard: shard.share.states_failed(effect.group_id, partitions))
        else:
            self._report(effect, lambda shard: shard.share.states_initialized(effect.group_id, partitions))
        return results

    async def delete(self, effect: DeleteStates) -> "list[PartitionResult]":
        """Delete states; return the outcome for each share partition."""
        wanted = [
            TopicIdPartition(topic_id, partition)
            for topic_id, partitions in effect.partitions.items()
            for partition in sorted(partitions)
        ]
        return await self._persister.delete(effect.group_id, wanted)

    async def read_summaries(self, group_id: str, partitions: "Mapping[Uuid, Collection[int]]") -> "list[StateSummary]":
        """Return summaries of share partitions, with their start offsets."""
        wanted = [TopicIdPartition(topic_id, each) for topic_id, numbers in partitions.items() for each in numbers]
        return await self._persister.read_summary(group_id, wanted)

    def _report(self, effect: InitializeStates, decide: "Callable[[GroupShard], ShareDecision]") -> None:
        try:
            self._decide(effect.group_id, decide)
        except ApiError as error:  # the group has moved, or its log refuses: its heartbeats try again after a while
            logger.warning(
                "Could not write which partitions of share group %s have a state: %s",
                effect.group_id,
                ErrorCode(error.code).name,
            )


def _initial_states(effect: InitializeStates) -> list[InitialState]:
    return [
        InitialState(topic_id, partition, effect.state_epoch, start_offset)
        for topic_id, offsets in effect.start_offsets.items()
        for partition, start_offset in sorted(offsets.items())
    ]
