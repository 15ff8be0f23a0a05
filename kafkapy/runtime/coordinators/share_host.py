"""Runs a share coordinator's shard on its partition: writes of several share partitions are one append.

Requests are decided one after the other and written together: `decide` adds the records to the batch that is to be
written, `write_shared` appends it and replays it. A second decision of a share partition depends on the first, so that
the batch is written before it.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Any, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.delayed_delete_records import PartitionDeletion
from kafkapy.runtime.coordinators.shard_host import ShardHost
from kafkapy.runtime.coordinators.shared_write import SharedWrite, SharingRule
from kafkapy.seams import failpoint
from kafkapy.share.persister import SharePartitionKey
from kafkapy.share.state_shard import ShareStateDecision, ShareStateShard
from kafkapy.types import Uuid

logger = logging.getLogger("kafkapy.share")

LOADED_POLL_S: Final = 0.1
STATES_PER_SLICE: Final = 100
"""Share partitions snapshotted or deleted before other tasks run: about a millisecond."""


class ShareHost(ShardHost[ShareStateShard]):
    """Runs the share partitions of one partition of `__share_group_state`."""

    def on_active(self) -> None:
        failpoint("share.load.replayed")
        self._shared_keys: set[SharePartitionKey] = set()
        """The share partitions that have records in the batch that is to be written."""
        self._crowd = SharingRule()
        self._is_waited_for = False
        """Whether a request waits for others before the batch is written."""
        self._request_count = 0
        """Requests with records in the batch."""
        self._pruned_offset = -1

    def describe_load(self) -> str:
        return f"{len(self.shard.states)} share partitions"

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Ignore a marker: WriteTxnMarkers takes any partition, but no transaction has records in this one."""

    # -- requests -------------------------------------------------------------------------------------------------

    def decide(
        self, key: SharePartitionKey, decide: Callable[[ShareStateShard, int], ShareStateDecision]
    ) -> tuple[Any, SharedWrite | None]:
        """Decide a request; return its response, and the batch that must be written first, None if nothing changes.

        `decide(shard, wall clock ms)`. Raises ApiError.
        """
        self.check_active()
        if key in self._shared_keys:
            self.write_shared()
        decision = decide(self.shard, self._clock.wall_ms())
        if not decision.records:
            return decision.response, None
        shared = self._share_write(decision)
        self._shared_keys.add(key)
        return decision.response, shared

    def is_crowded(self) -> bool:
        """Count a request with records in the batch; return whether it should wait for others of the loop's pass."""
        self._request_count += 1
        if self._crowd.is_crowded(self._clock.monotonic_ms()):
            self._is_waited_for = True
        return self._is_waited_for

    @property
    def pruned_offset(self) -> int | None:
        """Up to which offset this node has pruned the log; None if it has not."""
        return None if not self.is_active or self._pruned_offset < 0 else self._pruned_offset

    def write_shared(self) -> None:
        if self._shared is None:
            return
        failpoint("share.write.before_append")
        super().write_shared()
        self._shared_keys.clear()
        if self._is_waited_for:
            self._crowd.mark_written(self._request_count)
        self._is_waited_for = False
        self._request_count = 0
        failpoint("share.write.after_append")

    # -- maintenance ----------------------------------------------------------------------------------------------

    async def topic_deleted(self, topic_id: Uuid) -> None:
        """Forget the states of a topic's partitions, in slices, once they are loaded. Raises ApiError."""
        while self.is_loading():
            await asyncio.sleep(LOADED_POLL_S)
        while self.is_active:
            self.write_shared()
            decision = self.shard.topic_deleted(topic_id, STATES_PER_SLICE)
            if not decision.records:
                return
            self._apply_decision(decision)
            await asyncio.sleep(0)

    async def snapshot_cold(self) -> None:
        """Snapshot the share partitions that had no snapshot for long, in slices. Raises ApiError."""
        if not self.shard.has_changed_states():
            return
        keys = list(self.shard.states)
        for start in range(0, len(keys), STATES_PER_SLICE):
            if not self.is_active:
                return
            self.write_shared()
            some = keys[start : start + STATES_PER_SLICE]
            self._apply_decision(self.shard.snapshot_cold(some, self._clock.wall_ms()))
            failpoint("share.snapshot.after_append")
            await asyncio.sleep(0)

    async def prune(self) -> None:
        """Delete the records that later snapshots have made redundant. Raises ApiError."""
        if not self.is_active:
            return
        self.write_shared()
        offset = self.shard.last_redundant_offset()
        if offset is None or offset == self._pruned_offset:
            return
        await self.committed()
        deletion = PartitionDeletion(self.partition, offset)
        self._replica_manager.deletions.delete([deletion])
        failpoint("share.prune.after_delete")
        if deletion.error_code:
            raise ApiError(ErrorCode(deletion.error_code))
        self._pruned_offset = offset
