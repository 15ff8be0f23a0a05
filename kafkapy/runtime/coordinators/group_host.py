"""Runs a group shard on its partition: adds group deadlines and offset expiry to ShardHost.

One timer in the timing wheel wakes the groups that are due. Offset expiry takes longer and runs in slices.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.replica_manager import ReplicaManager
from kafkapy.runtime.coordinators.shard_host import ShardHost
from kafkapy.runtime.coordinators.writer import CoordinatorLog
from kafkapy.runtime.turns import Turn
from kafkapy.seams import Clock
from kafkapy.timer.wheel import TimingWheel
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.replication.hosted_partitions import HostedPartition

logger = logging.getLogger("kafkapy.group")

STEPS_PER_SLICE: Final = 1_000
"""Offsets checked for expiry before other tasks run: about a millisecond, unless they have expired."""
STEPS_PER_GROUP: Final = 10
"""A group counts as so many offsets, beside its own."""
OFFSETS_PER_WRITE: Final = 250
"""Offsets of one group that are checked, and whose tombstones are written, at once: some three milliseconds."""


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
        self._deleted_topics: deque[tuple[str, Uuid]] = deque()
        """Topics that were deleted while the shard was loading."""

    def run_effect(self, effect: Any) -> None:
        self._on_effect(effect)

    def on_active(self) -> None:
        self._unwritten: dict[str, int] = {}
        """By group: consecutive failures to write the records of a timed event."""
        self.shard.on_loaded(self._clock.monotonic_ms())
        self._arm()

    def forget_topic(self, topic: str, topic_id: Uuid) -> None:
        """Delete the offsets of a deleted topic, once the shard is loaded."""
        if self.is_loading():
            self._deleted_topics.append((topic, topic_id))
        elif self.is_active:
            self.write_shared()
            self._forget_topic(topic, topic_id)

    def complete_load(self) -> Iterator[None]:
        """Delete the offsets of topics that were deleted meanwhile, before clients commit to others of their names."""
        while self._deleted_topics and self.is_loading():
            self._forget_topic(*self._deleted_topics.popleft())
            yield

    def _forget_topic(self, topic: str, topic_id: Uuid) -> None:
        try:
            self._apply_decision(self.shard.forget_topic(topic, topic_id))
        except ApiError as error:
            logger.warning(
                "Could not remove the offsets of deleted topic %s, which stay until they expire: %s", topic, error
            )

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
        """Run the timed events of the groups that are due. If some fail unexpectedly, the others run first."""
        if not self.is_active:
            return
        self.write_shared()
        failures: list[Exception] = []
        for group_id in self.shard.due_groups(now_ms):
            if self.has_failed:
                break
            try:
                self._apply_decision(self.shard.on_time(group_id, now_ms))
            except ApiError as error:
                self._log_unwritten(group_id, error)
            except Exception as error:
                failures.append(error)
                continue  # its deadlines have passed: it would be due again at once
            else:
                self._unwritten.pop(group_id, None)
            self.shard.add_deadline(group_id)
        self._arm()
        if failures:
            raise ExceptionGroup("time-outs of groups that failed", failures)

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
        """Remove expired offsets, in slices: one group may have very many, too."""
        turn = Turn(self._clock, STEPS_PER_SLICE)
        for group_id in list(self.shard.groups):
            offsets = self.shard.offsets.store.partitions_of(group_id)
            for start in range(0, max(len(offsets), 1), OFFSETS_PER_WRITE):
                if not self.is_active:
                    return
                self.write_shared()
                some = offsets[start : start + OFFSETS_PER_WRITE]
                self._apply_decision(self.shard.expire(group_id, some))
                if turn.is_over(STEPS_PER_GROUP + len(some)):
                    await asyncio.sleep(0)
                    turn.begin()

    def _arm(self) -> None:
        deadline_ms = self.shard.deadline_ms()
        self.cancel()
        if deadline_ms is not None and self.is_active:
            self._wheel.add(self, deadline_ms)
