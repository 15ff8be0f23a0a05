"""The share partitions of one `__share_group_state` partition: a machine that decides requests and replays records.

Decide, append, replay: methods for requests return a ShareStateDecision and do not change the shard; only `replay`
changes the state that is in the log. Driven by `runtime/coordinators/share_host.py`.

A state begins with a snapshot (Initialize). Each write is an update; after
share.coordinator.snapshot.update.records.per.snapshot of them the next one is a snapshot again, which makes all earlier
records of that share partition redundant. `last_redundant_offset` returns the offset before which all are.

Two epochs fence: the leader epoch, raised by the read with which a new leader of the topic partition begins, and the
state epoch, raised when the state is initialised again. Source: Apache Kafka 4.4.0's ShareCoordinatorShard.
"""

from collections.abc import Callable, Iterable
from itertools import islice
from typing import Any, ClassVar, Final

from kafkapy.config.share import ShareConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import (
    UNINITIALIZED_COUNT,
    UNINITIALIZED_OFFSET,
    InitialState,
    PartitionResult,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateReadResult,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.share.state_batches import combine, is_combined, merge
from kafkapy.share.state_records import ShareRecord, ShareSnapshot, ShareTombstone, ShareUpdate
from kafkapy.types import Uuid

NEGATIVE_PARTITION: Final = "The partition id cannot be a negative number."
NEGATIVE_LEADER_EPOCH: Final = "The leader epoch cannot be a negative number."
NEGATIVE_STATE_EPOCH: Final = "The state epoch cannot be a negative number."
NOT_INITIALIZED_FOR_WRITE: Final = "Write operation on uninitialized share partition not allowed."
NOT_INITIALIZED_FOR_READ: Final = "Read operation on uninitialized share partition not allowed."

NOT_SET: Final = -1
"""The epoch while no record has named one."""


class StateRefusal:
    """An error code with its message."""

    __slots__ = ("code", "message")

    def __init__(self, code: ErrorCode, message: str | None = None) -> None:
        self.code = code
        self.message = code.message if message is None else message


class ShareStateDecision:
    """The response is sent once the records are committed. `is_atomic`: append all records in one batch, or none."""

    __slots__ = ("is_atomic", "records", "response")

    parked_responses: ClassVar[tuple[()]] = ()
    effects: ClassVar[tuple[()]] = ()
    on_failed: ClassVar[None] = None

    def __init__(
        self, response: Any = None, records: "list[ShareRecord] | tuple[()]" = (), *, is_atomic: bool = True
    ) -> None:
        self.response = response
        self.records = records
        self.is_atomic = is_atomic


class SharePartitionState:
    """The state of one share partition.

    fencing_leader_epoch, fencing_state_epoch: the highest of all records, which a new snapshot does not lower.
    update_count: updates since a snapshot was due.
    """

    __slots__ = (
        "create_timestamp_ms",
        "delivery_complete_count",
        "fencing_leader_epoch",
        "fencing_state_epoch",
        "leader_epoch",
        "snapshot_epoch",
        "start_offset",
        "state_batches",
        "state_epoch",
        "update_count",
        "write_timestamp_ms",
    )

    def __init__(self) -> None:
        self.snapshot_epoch = 0
        self.state_epoch = 0
        self.leader_epoch = 0
        self.start_offset = 0
        self.delivery_complete_count = 0
        self.state_batches: list[StateBatch] = []
        self.create_timestamp_ms = 0
        self.write_timestamp_ms = 0
        self.fencing_leader_epoch = NOT_SET
        self.fencing_state_epoch = NOT_SET
        self.update_count = 0

    @property
    def is_repeated(self) -> bool:
        """Whether the last snapshot only repeated an unchanged state."""
        return self.create_timestamp_ms != self.write_timestamp_ms

    def replace(self, snapshot: ShareSnapshot, *, updates_per_snapshot: int) -> None:
        """Apply a snapshot."""
        self.fencing_leader_epoch = max(self.fencing_leader_epoch, snapshot.leader_epoch)
        self.fencing_state_epoch = max(self.fencing_state_epoch, snapshot.state_epoch)
        self.snapshot_epoch = snapshot.snapshot_epoch
        self.state_epoch = snapshot.state_epoch
        self.leader_epoch = snapshot.leader_epoch
        self.start_offset = snapshot.start_offset
        self.delivery_complete_count = snapshot.delivery_complete_count
        batches = snapshot.state_batches
        self.state_batches = list(batches) if is_combined(batches) else combine(batches, snapshot.start_offset)
        self.create_timestamp_ms = snapshot.create_timestamp_ms
        self.write_timestamp_ms = snapshot.write_timestamp_ms
        if self.update_count >= updates_per_snapshot:
            self.update_count = 0

    def update(self, update: ShareUpdate, *, is_first: bool) -> None:
        """Apply an update; is_first: without a snapshot before it."""
        self.fencing_leader_epoch = max(self.fencing_leader_epoch, update.leader_epoch)
        if is_first:
            self.snapshot_epoch = update.snapshot_epoch
        if is_first or update.leader_epoch != NOT_SET:
            self.leader_epoch = update.leader_epoch
        if is_first or update.start_offset != UNINITIALIZED_OFFSET:
            self.start_offset = update.start_offset
        self.delivery_complete_count = update.delivery_complete_count
        self.state_batches = merge(self.state_batches, update.state_batches, self.start_offset)
        self.update_count += 1


class ShareStateShard:
    """The coordinator of the share partitions of one partition."""

    def __init__(self, config: Callable[[], ShareConfig], partition_count: Callable[[Uuid], int]) -> None:
        """partition_count: returns the number of a topic's partitions in the newest metadata, 0 if there is none."""
        self._config = config
        self._partition_count = partition_count
        self.states: dict[SharePartitionKey, SharePartitionState] = {}
        self._snapshot_offsets: dict[SharePartitionKey, int] = {}
        """The offset of each share partition's last snapshot, the lowest first."""
        self._last_tombstone_offset = 0
        self._keys_of_topics: dict[Uuid, dict[SharePartitionKey, None]] = {}
        self._repeated_count = 0
        """Share partitions whose last snapshot only repeated their state."""

    # -- requests -------------------------------------------------------------------------------------------------

    def initialize(self, group_id: str, initial: InitialState, now_ms: int) -> ShareStateDecision:
        """Decide to initialise a state."""
        key = SharePartitionKey(group_id, initial.topic_id, initial.partition)
        state = self.states.get(key)
        refusal = self._initialize_refusal(key, state, initial.state_epoch)
        if refusal is not None:
            return ShareStateDecision(_refused(key, refusal))
        snapshot = ShareSnapshot(
            key,
            snapshot_epoch=0 if state is None else state.snapshot_epoch + 1,
            state_epoch=initial.state_epoch,
            leader_epoch=0,
            start_offset=initial.start_offset,
            delivery_complete_count=UNINITIALIZED_COUNT if initial.start_offset == UNINITIALIZED_OFFSET else 0,
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
        )
        return ShareStateDecision(PartitionResult(key.topic_id, key.partition), [snapshot])

    def _initialize_refusal(
        self, key: SharePartitionKey, state: SharePartitionState | None, state_epoch: int
    ) -> StateRefusal | None:
        if key.partition < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        if state_epoch < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        if state is not None and state.fencing_state_epoch > state_epoch:
            return StateRefusal(ErrorCode.FENCED_STATE_EPOCH)
        return self._unknown(key)

    def write(self, group_id: str, write: StateWrite, now_ms: int) -> ShareStateDecision:
        """Decide a write of changes of a state."""
        key = SharePartitionKey(group_id, write.topic_id, write.partition)
        state = self.states.get(key)
        refusal = self._write_refusal(key, state, write)
        if refusal is not None:
            return ShareStateDecision(_refused(key, refusal))
        assert state is not None, "a state that is not initialised is refused"
        record = self._changed(key, state, write, leader_epoch=state.leader_epoch, now_ms=now_ms)
        return ShareStateDecision(PartitionResult(key.topic_id, key.partition), [record])

    def _write_refusal(
        self, key: SharePartitionKey, state: SharePartitionState | None, write: StateWrite
    ) -> StateRefusal | None:
        if key.partition < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        if write.leader_epoch < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        if write.state_epoch < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_STATE_EPOCH)
        if state is None:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED_FOR_WRITE)
        if state.fencing_leader_epoch > write.leader_epoch:
            return StateRefusal(ErrorCode.FENCED_LEADER_EPOCH)
        if state.fencing_state_epoch > write.state_epoch:
            return StateRefusal(ErrorCode.FENCED_STATE_EPOCH)
        return self._unknown(key)

    def read(self, group_id: str, read: StateRead, now_ms: int) -> ShareStateDecision:
        """Decide a read by a topic partition's leader; a new leader's epoch is recorded, and fences earlier ones."""
        key = SharePartitionKey(group_id, read.topic_id, read.partition)
        state = self.states.get(key)
        refusal = self._read_refusal(key, state, read.leader_epoch)
        if refusal is not None:
            return ShareStateDecision(StateReadResult(key.topic_id, key.partition, refusal.code, refusal.message))
        assert state is not None, "a state that is not initialised is refused"
        response = StateReadResult(
            key.topic_id,
            key.partition,
            state_epoch=state.state_epoch,
            start_offset=state.start_offset,
            state_batches=state.state_batches,
        )
        if state.fencing_leader_epoch == read.leader_epoch:
            return ShareStateDecision(response)
        unchanged = StateWrite(
            *key[1:],
            state_epoch=state.state_epoch,
            leader_epoch=read.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )
        record = self._changed(key, state, unchanged, leader_epoch=read.leader_epoch, now_ms=now_ms)
        return ShareStateDecision(response, [record])

    def _read_refusal(
        self, key: SharePartitionKey, state: SharePartitionState | None, leader_epoch: int
    ) -> StateRefusal | None:
        if key.partition < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        if leader_epoch < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_LEADER_EPOCH)
        if state is None:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NOT_INITIALIZED_FOR_READ)
        if state.fencing_leader_epoch > leader_epoch:
            return StateRefusal(ErrorCode.FENCED_LEADER_EPOCH)
        return self._unknown(key)

    def delete(self, group_id: str, partition: TopicIdPartition) -> ShareStateDecision:
        """Decide to delete a state. A missing one is no error."""
        key = SharePartitionKey(group_id, *partition)
        refusal = self._summary_refusal(key)
        if refusal is not None:
            return ShareStateDecision(_refused(key, refusal))
        records: list[ShareRecord] = [ShareTombstone(key)] if key in self.states else []
        return ShareStateDecision(PartitionResult(key.topic_id, key.partition), records)

    def summary(self, group_id: str, partition: TopicIdPartition) -> StateSummary:
        """Return a state without its batches."""
        key = SharePartitionKey(group_id, *partition)
        refusal = self._summary_refusal(key)
        if refusal is not None:
            return StateSummary(key.topic_id, key.partition, refusal.code, refusal.message)
        state = self.states.get(key)
        if state is None:
            return StateSummary(key.topic_id, key.partition)
        return StateSummary(
            key.topic_id,
            key.partition,
            state_epoch=state.state_epoch,
            leader_epoch=state.leader_epoch,
            start_offset=state.start_offset,
            delivery_complete_count=state.delivery_complete_count,
        )

    def _summary_refusal(self, key: SharePartitionKey) -> StateRefusal | None:
        if key.partition < 0:
            return StateRefusal(ErrorCode.INVALID_REQUEST, NEGATIVE_PARTITION)
        return self._unknown(key)

    def _unknown(self, key: SharePartitionKey) -> StateRefusal | None:
        """Return the refusal for a topic or partition that is not in the metadata, else None."""
        if key.partition < self._partition_count(key.topic_id):
            return None
        return StateRefusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _changed(
        self, key: SharePartitionKey, state: SharePartitionState, write: StateWrite, *, leader_epoch: int, now_ms: int
    ) -> ShareRecord:
        """Return the record of a write: an update, or a snapshot if enough updates were written."""
        start_offset = max(write.start_offset, state.start_offset)
        # the count belongs to the start offset: use that of the higher one, of equal start offsets the higher count
        complete_count = write.delivery_complete_count
        if write.start_offset == state.start_offset:
            complete_count = max(complete_count, state.delivery_complete_count)
        elif write.start_offset < state.start_offset:
            complete_count = state.delivery_complete_count
        if state.update_count < self._updates_per_snapshot:
            return ShareUpdate(
                key,
                snapshot_epoch=state.snapshot_epoch,
                leader_epoch=leader_epoch,
                start_offset=start_offset,
                delivery_complete_count=complete_count,
                state_batches=combine(write.state_batches, start_offset),
            )
        batches = combine([*state.state_batches, *write.state_batches], start_offset)
        assert is_combined(batches), f"runs that overlap: {batches}"
        return ShareSnapshot(
            key,
            snapshot_epoch=state.snapshot_epoch + 1,
            state_epoch=state.state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=complete_count,
            create_timestamp_ms=now_ms,
            write_timestamp_ms=now_ms,
            state_batches=batches,
        )

    @property
    def _updates_per_snapshot(self) -> int:
        return self._config().share_coordinator_snapshot_update_records_per_snapshot

    # -- maintenance ----------------------------------------------------------------------------------------------

    def has_changed_states(self) -> bool:
        """Whether a share partition has changed since its last repeated snapshot, so that snapshot_cold has work."""
        return self._repeated_count != len(self.states)

    def snapshot_cold(self, keys: Iterable[SharePartitionKey], now_ms: int) -> ShareStateDecision:
        """Decide snapshots of share partitions without one for an interval, so that the log can be pruned."""
        interval_ms = self._config().share_coordinator_cold_partition_snapshot_interval_ms
        records: list[ShareRecord] = []
        for key in keys:
            state = self.states.get(key)
            if state is not None and now_ms - state.write_timestamp_ms >= interval_ms:
                records.append(_repeated(key, state, now_ms))
        return ShareStateDecision(records=records, is_atomic=False)

    def topic_deleted(self, topic_id: Uuid, most: int) -> ShareStateDecision:
        """Decide to delete the states of a topic's partitions, at most so many; call it again until none is left."""
        keys = islice(self._keys_of_topics.get(topic_id, ()), most)
        return ShareStateDecision(records=[ShareTombstone(key) for key in keys], is_atomic=False)

    def last_redundant_offset(self) -> int | None:
        """Return the offset before which every record is redundant; None if nothing is."""
        offset = next(iter(self._snapshot_offsets.values()), self._last_tombstone_offset)
        return offset if offset > 0 else None

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: ShareRecord, record_offset: int, producer_id: int = -1) -> None:
        """Apply one record; `producer_id` is not used."""
        key = record.key
        if isinstance(record, ShareTombstone):
            self._forget(key, record_offset)
            return
        state = self.states.get(key)
        if isinstance(record, ShareUpdate):
            is_first = state is None
            (state or self._add(key)).update(record, is_first=is_first)
            return
        if state is None:
            state = self._add(key)
        elif state.is_repeated:
            self._repeated_count -= 1
        state.replace(record, updates_per_snapshot=self._updates_per_snapshot)
        self._repeated_count += state.is_repeated
        assert 0 <= self._repeated_count <= len(self.states), f"{self._repeated_count} of {len(self.states)} are cold"
        self._snapshot_offsets.pop(key, None)
        self._snapshot_offsets[key] = record_offset

    def _add(self, key: SharePartitionKey) -> SharePartitionState:
        assert key not in self.states, f"the state of {key} would start again"
        state = self.states[key] = SharePartitionState()
        self._keys_of_topics.setdefault(key.topic_id, {})[key] = None
        return state

    def _forget(self, key: SharePartitionKey, record_offset: int) -> None:
        self._last_tombstone_offset = record_offset
        self._snapshot_offsets.pop(key, None)
        state = self.states.pop(key, None)
        if state is None:
            return
        self._repeated_count -= state.is_repeated
        assert 0 <= self._repeated_count <= len(self.states), f"{self._repeated_count} of {len(self.states)} are cold"
        keys = self._keys_of_topics[key.topic_id]
        del keys[key]
        if not keys:
            del self._keys_of_topics[key.topic_id]


def _refused(key: SharePartitionKey, refusal: StateRefusal) -> PartitionResult:
    return PartitionResult(key.topic_id, key.partition, refusal.code, refusal.message)


def _repeated(key: SharePartitionKey, state: SharePartitionState, now_ms: int) -> ShareSnapshot:
    """Return a snapshot that repeats a state."""
    return ShareSnapshot(
        key,
        snapshot_epoch=state.snapshot_epoch + 1,
        state_epoch=state.state_epoch,
        leader_epoch=state.leader_epoch,
        start_offset=state.start_offset,
        delivery_complete_count=state.delivery_complete_count,
        create_timestamp_ms=state.create_timestamp_ms,
        write_timestamp_ms=now_ms,
        state_batches=state.state_batches,
    )
