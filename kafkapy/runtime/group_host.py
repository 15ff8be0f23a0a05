"""A shard of groups on its partition: what ShardHost does for any, and the groups' deadlines and expiry.

One timer in the wheel wakes the groups that are due. Expiry, which is longer work, is done in slices.
"""

import asyncio
import logging
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.runtime.shard_host import ShardHost

logger = logging.getLogger("kafkapy.group")

GROUPS_PER_SLICE: Final = 100
"""Groups whose offsets are looked at for expiry before others get their turn: about a millisecond."""


class GroupHost(ShardHost[GroupShard]):
    """Runs the groups of one partition of `__consumer_offsets`."""

    def on_active(self) -> None:
        self.shard.on_loaded(self._clock.monotonic_ms())
        self._arm()

    def describe_load(self) -> str:
        return f"{len(self.shard.groups)} groups"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        self.shard.replay_marker(producer_id, is_commit=is_commit)

    # -- time -----------------------------------------------------------------------------------------------------

    def on_decided(self, key: str) -> None:
        self.shard.note_deadline(key)
        deadline_ms = self.shard.deadline_ms()
        if deadline_ms is not None and (not self.is_scheduled or deadline_ms < self.deadline_ms):
            self._arm()

    def on_timeout(self, now_ms: int) -> None:
        """Wake the groups whose time has come."""
        if not self.is_active:
            return
        for group_id in self.shard.due_groups(now_ms):
            try:
                self._carry_out(self.shard.on_time(group_id, now_ms))
            except ApiError as error:
                logger.warning("Group %s: what the time demands was not written: %s", group_id, error)
            self.shard.note_deadline(group_id)
        self._arm()

    async def expire_offsets(self) -> None:
        """Remove what has expired, in slices."""
        for index, group_id in enumerate(list(self.shard.groups)):
            if not self.is_active:
                return
            self._carry_out(self.shard.expire(group_id))
            if index % GROUPS_PER_SLICE == GROUPS_PER_SLICE - 1:
                await asyncio.sleep(0)

    def _arm(self) -> None:
        deadline_ms = self.shard.deadline_ms()
        self.cancel()
        if deadline_ms is not None and self.is_active:
            self._wheel.add(self, deadline_ms)
