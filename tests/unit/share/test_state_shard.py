"""The share coordinator's shard: cases of Apache Kafka's tests of its shard and of its offsets manager.

tests/golden/test_share_states.py compares it with Apache Kafka's own for random requests.
"""

import pytest

from kafkapy.config.share import ShareConfig
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import (
    InitialState,
    SharePartitionKey,
    StateBatch,
    StateRead,
    StateSummary,
    StateWrite,
    TopicIdPartition,
)
from kafkapy.share.state_records import ShareSnapshot, ShareTombstone, ShareUpdate
from kafkapy.share.state_shard import ShareStateDecision, ShareStateShard
from kafkapy.types import ONE_UUID, Uuid

OTHER_TOPIC = bytes(15) + b"\x02"
KEY = SharePartitionKey("g", ONE_UUID, 0)
COLD_MS = 10_000


def partition_count(topic_id: Uuid) -> int:
    return {ONE_UUID: 2, OTHER_TOPIC: 1}.get(topic_id, 0)


class World:
    """A shard whose decisions are replayed at once."""

    def __init__(self, updates_per_snapshot: int = 50) -> None:
        config = ShareConfig(
            share_coordinator_snapshot_update_records_per_snapshot=updates_per_snapshot,
            share_coordinator_cold_partition_snapshot_interval_ms=COLD_MS,
        )
        self.shard = ShareStateShard(lambda: config, partition_count)
        self.now_ms = 1_000
        self.offset = 0

    def replayed(self, decision: ShareStateDecision) -> ShareStateDecision:
        for record in decision.records:
            self.shard.replay(record, self.offset)
            self.offset += 1
        return decision

    def initialize(
        self, partition: int = 0, *, epoch: int = 0, start: int = -1, topic: Uuid = ONE_UUID
    ) -> ShareStateDecision:
        return self.replayed(self.shard.initialize("g", InitialState(topic, partition, epoch, start), self.now_ms))

    def write(
        self, *batches: tuple[int, int, int, int], epoch: int = 0, leader: int = 0, start: int = 0, count: int = 0
    ) -> ShareStateDecision:
        runs = [StateBatch(*each) for each in batches]
        return self.replayed(
            self.shard.write("g", StateWrite(ONE_UUID, 0, epoch, leader, start, count, runs), self.now_ms)
        )

    def read(self, leader: int, partition: int = 0) -> ShareStateDecision:
        return self.replayed(self.shard.read("g", StateRead(ONE_UUID, partition, leader), self.now_ms))

    def delete(self, partition: int = 0, topic: Uuid = ONE_UUID) -> ShareStateDecision:
        return self.replayed(self.shard.delete("g", TopicIdPartition(topic, partition)))

    def snapshot_cold(self) -> ShareStateDecision:
        keys = list(self.shard.states) if self.shard.has_changed_states() else []
        return self.replayed(self.shard.snapshot_cold(keys, self.now_ms))


@pytest.fixture
def world() -> World:
    initialized = World()
    initialized.initialize()
    return initialized


# -- initialise ---------------------------------------------------------------------------------------------------


def test_a_state_begins_with_a_snapshot() -> None:
    (record,) = World().initialize(epoch=3, start=10).records
    assert record == ShareSnapshot(KEY, 0, 3, 0, 10, 0, 1_000, 1_000)


def test_a_state_without_a_start_has_no_count_either(world: World) -> None:
    assert world.shard.summary("g", TopicIdPartition(ONE_UUID, 0)).delivery_complete_count == -1


def test_a_state_that_begins_anew_has_the_next_snapshot_epoch_and_no_batches(world: World) -> None:
    world.write((0, 9, 0, 1), leader=2, start=0)
    (record,) = world.initialize(epoch=1, start=5).records
    assert record == ShareSnapshot(KEY, 1, 1, 0, 5, 0, 1_000, 1_000)


@pytest.mark.parametrize(
    ("partition", "epoch", "topic", "code"),
    [
        (-1, 0, ONE_UUID, ErrorCode.INVALID_REQUEST),
        (0, -1, ONE_UUID, ErrorCode.INVALID_REQUEST),
        (0, 1, ONE_UUID, ErrorCode.FENCED_STATE_EPOCH),
        (2, 0, ONE_UUID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (0, 0, bytes(16), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_an_initialisation_is_refused(partition: int, epoch: int, topic: Uuid, code: ErrorCode) -> None:
    world = World()
    world.initialize(epoch=2)
    decision = world.initialize(partition, epoch=epoch, topic=topic)
    assert (decision.response.error_code, decision.records) == (code, ())


# -- write --------------------------------------------------------------------------------------------------------


def test_a_write_is_an_update_of_the_snapshots_epoch(world: World) -> None:
    decision = world.write((0, 10, 0, 1), start=0, count=0)
    assert decision.response.error_code == ErrorCode.NONE
    assert decision.records == [ShareUpdate(KEY, 0, 0, 0, 0, [StateBatch(0, 10, 0, 1)])]


def test_after_enough_updates_a_write_is_a_snapshot_of_everything() -> None:
    world = World(updates_per_snapshot=2)
    world.initialize()
    world.write((0, 9, 0, 1))
    world.write((10, 19, 2, 1))
    (record,) = world.write((0, 4, 2, 1), count=5).records
    batches = [StateBatch(0, 4, 2, 1), StateBatch(5, 9, 0, 1), StateBatch(10, 19, 2, 1)]
    assert record == ShareSnapshot(KEY, 1, 0, 0, 0, 5, 1_000, 1_000, batches)
    assert isinstance(world.write((20, 29, 0, 1)).records[0], ShareUpdate)


def test_batches_that_a_write_does_not_name_are_kept_when_the_start_moves() -> None:
    world = World(updates_per_snapshot=0)
    world.initialize()
    world.write((100, 109, 1, 1), (110, 119, 1, 2), (120, 129, 1, 0), start=100)
    world.write((100, 109, 2, 1), start=-1, count=10)
    world.write((120, 129, 2, 1), start=110, count=10)
    assert world.shard.states[KEY].state_batches == [StateBatch(110, 119, 1, 2), StateBatch(120, 129, 2, 1)]


def test_a_write_never_moves_the_start_back_nor_loses_the_count_there(world: World) -> None:
    world.write(start=20, count=7)
    world.write(start=10, count=99)
    world.write(start=20, count=3)
    summary = world.shard.summary("g", TopicIdPartition(ONE_UUID, 0))
    assert (summary.start_offset, summary.delivery_complete_count) == (20, 7)


def test_a_write_without_a_state_is_refused() -> None:
    response = World().write().response
    assert (response.error_code, response.error_message) == (
        ErrorCode.INVALID_REQUEST,
        "Write operation on uninitialized share partition not allowed.",
    )


def test_writes_of_earlier_leaders_and_states_are_fenced() -> None:
    world = World()
    world.initialize(epoch=2)
    world.read(leader=5)
    assert world.write(epoch=2, leader=4).response.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(epoch=1, leader=5).response.error_code == ErrorCode.FENCED_STATE_EPOCH
    assert world.write(epoch=2, leader=5).response.error_code == ErrorCode.NONE


def test_epochs_of_a_write_are_no_negative_numbers(world: World) -> None:
    for decision in (world.write(leader=-1), world.write(epoch=-1)):
        assert decision.response.error_code == ErrorCode.INVALID_REQUEST


# -- read ---------------------------------------------------------------------------------------------------------


def test_a_read_by_a_new_leader_records_its_epoch(world: World) -> None:
    world.write((0, 10, 0, 1), count=4)
    decision = world.read(leader=2)
    assert decision.response.state_batches == [StateBatch(0, 10, 0, 1)]
    assert decision.records == [ShareUpdate(KEY, 0, 2, 0, 4, [])]
    assert world.read(leader=2).records == ()


def test_a_read_that_names_no_leader_epoch_is_refused(world: World) -> None:
    """As by Apache Kafka 4.4.0; 4.3.1 answers it and changes nothing."""
    world.read(leader=2)
    decision = world.read(leader=-1)
    assert (decision.response.error_code, decision.records) == (ErrorCode.INVALID_REQUEST, ())
    assert world.shard.states[KEY].leader_epoch == 2


def test_a_read_by_an_earlier_leader_is_fenced(world: World) -> None:
    world.read(leader=2)
    assert world.read(leader=1).response.error_code == ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("partition", [-1, 1, 7])
def test_a_read_without_a_state_is_an_invalid_request(world: World, partition: int) -> None:
    assert world.read(0, partition).response.error_code == ErrorCode.INVALID_REQUEST


def test_a_new_state_does_not_forget_which_leader_read_the_old_one(world: World) -> None:
    world.read(leader=5)
    world.initialize(epoch=1)
    assert world.shard.states[KEY].leader_epoch == 0
    assert world.read(leader=4).response.error_code == ErrorCode.FENCED_LEADER_EPOCH


# -- summary, delete ----------------------------------------------------------------------------------------------


def test_the_summary_of_no_state_is_that_of_one_without_a_start() -> None:
    assert World().shard.summary("g", TopicIdPartition(ONE_UUID, 0)) == StateSummary(ONE_UUID, 0)


def test_a_state_is_deleted_by_a_tombstone(world: World) -> None:
    assert world.delete().records == [ShareTombstone(KEY)]
    assert world.shard.states == {}
    again = world.delete()
    assert (again.response.error_code, again.records) == (ErrorCode.NONE, [])


def test_what_is_not_in_the_metadata_is_neither_deleted_nor_summarised(world: World) -> None:
    assert world.delete(7).response.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert world.delete(-1).response.error_code == ErrorCode.INVALID_REQUEST
    summary = world.shard.summary("g", TopicIdPartition(bytes(16), 0))
    assert summary.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_the_states_of_a_deleted_topic_go_with_it(world: World) -> None:
    world.initialize(1)
    world.initialize(topic=OTHER_TOPIC)
    decision = world.replayed(world.shard.topic_deleted(ONE_UUID, 10))
    assert decision.records == [ShareTombstone(KEY), ShareTombstone(SharePartitionKey("g", ONE_UUID, 1))]
    assert list(world.shard.states) == [SharePartitionKey("g", OTHER_TOPIC, 0)]
    assert world.shard.topic_deleted(ONE_UUID, 10).records == []


# -- cold snapshots -----------------------------------------------------------------------------------------------


def test_a_state_that_is_not_written_for_long_is_repeated_by_a_snapshot(world: World) -> None:
    world.initialize(1)
    world.now_ms += COLD_MS // 2
    world.initialize(topic=OTHER_TOPIC)
    world.now_ms += COLD_MS // 2
    records = world.snapshot_cold().records
    assert [record.key.partition for record in records if isinstance(record, ShareSnapshot)] == [0, 1]
    assert records[0] == ShareSnapshot(KEY, 1, 0, 0, -1, -1, 1_000, 1_000 + COLD_MS, [])


def test_updates_do_not_count_as_snapshots(world: World) -> None:
    world.now_ms += COLD_MS
    world.write((0, 9, 0, 1))
    (record,) = world.snapshot_cold().records
    assert isinstance(record, ShareSnapshot)
    assert record.state_batches == [StateBatch(0, 9, 0, 1)]


def test_states_that_all_are_repeated_are_left_alone(world: World) -> None:
    world.now_ms += COLD_MS
    assert len(world.snapshot_cold().records) == 1
    world.now_ms += 5 * COLD_MS
    assert world.snapshot_cold().records == []


def test_a_repeated_snapshot_does_not_restart_the_count_of_updates() -> None:
    world = World(updates_per_snapshot=2)
    world.initialize()
    world.write()
    world.now_ms += COLD_MS
    world.snapshot_cold()
    world.write()
    assert isinstance(world.write().records[0], ShareSnapshot)


# -- what can be pruned -------------------------------------------------------------------------------------------

A, B, C, D = (SharePartitionKey("g", ONE_UUID, partition) for partition in range(4))
REDUNDANT = {
    "one": [(A, 10, 10), (A, 11, 11), (A, 15, 15)],
    "one deleted": [(A, -10, 10)],
    "several": [(A, 10, 10), (D, 11, 10), (B, 13, 10)],
    "each deleted": [(A, -10, 10), (D, -11, 11), (B, -13, 13)],
    "the oldest is written again": [(A, 10, 10), (B, 11, 10), (C, 15, 10), (B, 16, 10), (A, 17, 15)],
    "a deleted one is no longer needed": [(A, 10, 10), (B, 11, 10), (C, -15, 10), (B, 16, 10), (A, 17, 16)],
    "in reverse order": [(A, 10, 10), (B, 11, 10), (C, 15, 10), (C, 18, 10), (B, 20, 10), (A, 25, 18)],
    "in reverse order, deleted": [(A, 10, 10), (B, 11, 10), (C, 15, 10), (C, -18, 10), (B, -20, 10), (A, 25, 25)],
    "one is seldom written": [(A, 10, 10), (B, 11, 10), (C, 15, 10), (B, 18, 10), (C, 20, 10), (A, 30, 18)],
    "at offset 0": [(A, 0, None)],
}
"""(share partition, offset of its snapshot or, negative, of its tombstone, offset before which all is redundant)."""


@pytest.mark.parametrize("steps", REDUNDANT.values(), ids=REDUNDANT.keys())
def test_all_before_the_oldest_last_snapshot_is_redundant(
    steps: list[tuple[SharePartitionKey, int, int | None]],
) -> None:
    shard = World().shard
    for key, offset, redundant in steps:
        record = ShareTombstone(key) if offset < 0 else ShareSnapshot(key, 0, 0, 0, 0, 0, 0, 0)
        shard.replay(record, abs(offset))
        assert shard.last_redundant_offset() == redundant


# -- replay -------------------------------------------------------------------------------------------------------


def test_an_update_without_a_snapshot_begins_a_state() -> None:
    shard = World().shard
    shard.replay(ShareUpdate(KEY, 3, 4, 10, 2, [StateBatch(10, 11, 0, 1)]), 7)
    state = shard.states[KEY]
    assert (state.snapshot_epoch, state.leader_epoch, state.start_offset, state.state_epoch) == (3, 4, 10, 0)
    assert state.fencing_state_epoch == -1


def test_batches_of_a_snapshot_that_overlap_are_combined() -> None:
    shard = World().shard
    batches = [StateBatch(10, 19, 0, 1), StateBatch(0, 12, 2, 2)]
    shard.replay(ShareSnapshot(KEY, 0, 0, 0, -1, -1, 0, 0, batches), 0)
    assert shard.states[KEY].state_batches == [StateBatch(0, 12, 2, 2), StateBatch(13, 19, 0, 1)]
