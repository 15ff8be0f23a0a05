"""Has the states of share partitions created and deleted, as share groups decide, and tells the groups the outcome.

A heartbeat does not wait for its states: they are created behind its response. Requests about offsets wait for them
(share_offsets.py).
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

MOST_AT_ONCE: Final = 100
"""Groups whose states are created behind heartbeats at the same time; each is one call of the persister."""

Tell = Callable[[str, "Callable[[GroupShard], ShareDecision]"], None]
"""Called with a group id and a decision for the group's shard; raises ApiError if it cannot be carried out."""


class ShareStates:
    """The states of the share groups that this node coordinates, through the seam to the share coordinator."""

    def __init__(self, persister: Persister, tell: Tell) -> None:
        self.tasks: set[asyncio.Task[None]] = set()
        """What goes on behind responses; whoever closes the coordinator cancels it."""
        self._persister = persister
        self._tell = tell
        self._room = asyncio.Semaphore(MOST_AT_ONCE)

    def begin(self, effect: InitializeStates) -> None:
        """Create states without having anybody wait for it."""
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
        """Create states and tell the group; return the outcome for each share partition.

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
                self._try_to_tell(effect, lambda shard: shard.share.states_failed(effect.group_id, partitions))
        else:
            self._try_to_tell(effect, lambda shard: shard.share.states_initialized(effect.group_id, partitions))
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
        """Return what is known of share partitions, among others where they begin."""
        wanted = [TopicIdPartition(topic_id, each) for topic_id, numbers in partitions.items() for each in numbers]
        return await self._persister.read_summary(group_id, wanted)

    def _try_to_tell(self, effect: InitializeStates, decide: "Callable[[GroupShard], ShareDecision]") -> None:
        try:
            self._tell(effect.group_id, decide)
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
