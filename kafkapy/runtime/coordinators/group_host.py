"""Runs a group shard on its partition: adds group deadlines and offset expiry to ShardHost.

One timer in the timing wheel wakes the groups that are due. Offset expiry takes longer and runs in slices.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.coordinators.shard_host import ShardHost
from kafkapy.runtime.coordinators.writer import CoordinatorLog
from kafkapy.seams import Clock
from kafkapy.timer.wheel import TimingWheel

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition

logger = logging.getLogger("kafkapy.group")

GROUPS_PER_SLICE: Final = 100
"""Groups checked for expired offsets before other tasks run: about a millisecond."""


class GroupHost(ShardHost[GroupShard]):
    """Runs the groups of one partition of `__consumer_offsets`."""

    def __init__(
        self,
        partition: "HostedPartition",
        shard: GroupShard,
        coordinator_log: CoordinatorLog,
        *,
        replica_manager: ReplicaManager,
        clock: Clock,
        wheel: TimingWheel,
        on_effect: Callable[[Any], None],
    ) -> None:
        """`on_effect` carries out an effect of a decision whose records are committed: of share and streams groups."""
        super().__init__(
            partition,
            shard,
            coordinator_log,
            replica_manager=replica_manager,
            clock=clock,
            wheel=wheel,
            logger=logger,
        )
        self._on_effect = on_effect

    def run_effect(self, effect: Any) -> None:
        self._on_effect(effect)

    def on_active(self) -> None:
        self._unwritten: dict[str, int] = {}
        """By group: consecutive failures to write the records of a timed event."""
        self.shard.on_loaded(self._clock.monotonic_ms())
        self._arm()

    def describe_load(self) -> str:
        return f"{len(self.shard.groups)} groups"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        self.shard.replay_marker(producer_id, is_commit=is_commit)

    # -- time -----------------------------------------------------------------------------------------------------

    def on_decided(self, key: str) -> None:
        self.shard.add_deadline(key)
        deadline_ms = self.shard.deadline_ms()
        if deadline_ms is not None and (not self.is_scheduled or deadline_ms < self.deadline_ms):
            self._arm()

    def on_timeout(self, now_ms: int) -> None:
        """Run the timed events of the groups that are due."""
        if not self.is_active:
            return
        self.write_shared()
        for group_id in self.shard.due_groups(now_ms):
            try:
                self._apply_decision(self.shard.on_time(group_id, now_ms))
            except ApiError as error:
                self._log_unwritten(group_id, error)
            else:
                self._unwritten.pop(group_id, None)
            self.shard.add_deadline(group_id)
        self._arm()

    def expire_member(self, group_id: str, member_id: str) -> None:
        """Expire a member's session now. Raises ApiError."""
        self.check_active()
        now_ms = self._clock.monotonic_ms()
        self.shard.end_session(group_id, member_id, now_ms)
        self.on_timeout(now_ms)

    def _log_unwritten(self, group_id: str, error: ApiError) -> None:
        """Log a repeated failure (twice a second, while replicas are missing) at exponentially growing intervals."""
        count = self._unwritten[group_id] = self._unwritten.get(group_id, 0) + 1
        if count & (count - 1) == 0:
            logger.warning(
                "Could not write what a timer of group %s decided, trying again (attempt %d): %s",
                group_id,
                count,
                ErrorCode(error.code).name,
            )

    async def expire_offsets(self) -> None:
        """Remove expired offsets, in slices."""
        for index, group_id in enumerate(list(self.shard.groups)):
            if not self.is_active:
                return
            self.write_shared()
            self._apply_decision(self.shard.expire(group_id))
            if index % GROUPS_PER_SLICE == GROUPS_PER_SLICE - 1:
                await asyncio.sleep(0)

    def _arm(self) -> None:
        deadline_ms = self.shard.deadline_ms()
        self.cancel()
        if deadline_ms is not None and self.is_active:
            self._wheel.add(self, deadline_ms)
