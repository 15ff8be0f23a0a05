"""The offsets of a shard: replay, transactions, tombstones; what commit, fetch, delete and expiry decide."""

import pytest

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.errors import ApiError
from kafkapy.group.offsets import OffsetStore, offset_record
from kafkapy.group.records import CoordinatorRecord, encode_record
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shard import GroupShard
from kafkapy.metadata.image import EMPTY_IMAGE
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from kafkapy.protocol.messages.legacy_offset_commit_value import LegacyOffsetCommitValue
from kafkapy.protocol.messages.offset_commit_key import OffsetCommitKey
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkapy.types import INT64_MAX
from tests.support.chance import SeededRandom
from tests.support.group_hosting import GROUP, commit_request

NO_PRODUCER = -1
MINUTE_MS = 60_000
ORDERS, OTHER = b"o" * 16, b"x" * 16


def store_of(*commits: tuple[int, int, int]) -> OffsetStore:
    """Replay (partition, offset, producer id) of one group and topic; the record's offset is its place."""
    store = OffsetStore()
    for record_offset, (partition, offset, producer_id) in enumerate(commits):
        store.replay(
            OffsetCommitKey("g", topic="t", partition=partition), OffsetCommitValue(offset), record_offset, producer_id
        )
    return store


def offset_of(store: OffsetStore, partition: int = 0) -> int | None:
    found = store.get("g", "t", partition)
    return None if found is None else found.value.offset


# -- the store ------------------------------------------------------------------------------------------------------


def test_the_last_commit_counts():
    assert offset_of(store_of((0, 5, NO_PRODUCER), (0, 3, NO_PRODUCER))) == 3


def test_a_tombstone_removes_an_offset_and_nothing_stays_behind():
    store = store_of((0, 5, NO_PRODUCER))
    store.replay(OffsetCommitKey("g", topic="t", partition=0), None, 1, NO_PRODUCER)
    store.replay(OffsetCommitKey("g", topic="t", partition=0), None, 2, NO_PRODUCER)
    assert offset_of(store) is None
    assert store._committed == {}


def test_a_transaction_counts_when_it_is_committed():
    store = store_of((0, 5, 77))
    assert offset_of(store) is None
    assert ("t", 0) in store.open_partitions("g")
    store.replay_marker(77, is_commit=True)
    assert offset_of(store) == 5
    assert not store.open_partitions("g")


def test_an_aborted_transaction_leaves_what_was_there():
    store = store_of((0, 4, NO_PRODUCER), (0, 5, 77))
    store.replay_marker(77, is_commit=False)
    assert offset_of(store) == 4
    assert store._pending == store._open == {}


def test_a_commit_after_that_of_the_transaction_wins():
    store = store_of((0, 5, 77), (0, 9, NO_PRODUCER))
    store.replay_marker(77, is_commit=True)
    assert offset_of(store) == 9


def test_a_tombstone_removes_pending_offsets_too():
    store = store_of((0, 5, 77), (1, 6, 77), (0, 7, 78))
    store.replay(OffsetCommitKey("g", topic="t", partition=0), None, 3, NO_PRODUCER)
    assert set(store.open_partitions("g")) == {("t", 1)}
    store.replay_marker(77, is_commit=True)
    store.replay_marker(78, is_commit=True)
    assert (offset_of(store, 0), offset_of(store, 1)) == (None, 6)


def test_a_marker_of_a_producer_without_offsets_is_fine():
    store_of().replay_marker(5, is_commit=True)


def test_the_tombstones_of_a_group_are_those_of_all_it_has():
    store = store_of((0, 5, NO_PRODUCER), (1, 6, 77), (0, 7, 77))
    assert [record.key.partition for record in store.tombstones("g")] == [0, 1]


def test_offsets_of_another_topic_of_the_same_name_stay():
    store = OffsetStore()
    for partition, topic_id in enumerate((ORDERS, OTHER, bytes(16))):
        value = OffsetCommitValue(1, topic_id=topic_id)
        store.replay(OffsetCommitKey("g", topic="t", partition=partition), value, partition, NO_PRODUCER)
    assert [record.key.partition for record in store.tombstones_of_topic("t", ORDERS)] == [0, 2]


# -- requests -------------------------------------------------------------------------------------------------------


class Shard:
    """A shard with its log: what is decided is replayed."""

    def __init__(self, **config: int) -> None:
        self.wall_ms = 1_700_000_000_000
        self.shard = GroupShard(
            GroupSettings.fixed(GroupCoordinatorConfig(**config)),
            metadata=lambda: EMPTY_IMAGE,
            random=SeededRandom(),
            wall_ms=lambda: self.wall_ms,
            now_ms=lambda: 0,
        )
        self.end_offset = 0

    def replay(self, records, producer_id: int = NO_PRODUCER) -> None:
        for record in records:
            encode_record(record, self.wall_ms)
            self.shard.replay(record, self.end_offset, producer_id)
            self.end_offset += 1

    def commit(self, offset: int = 5, *, version: int = 9, **fields) -> list[int]:
        decision = self.shard.offsets.commit(commit_request(offset, **fields), version, 0)
        self.replay(decision.records)
        return [each.error_code for topic in decision.response.topics for each in topic.partitions]

    def fetch(self, partition: int = 0, *, topic_id: bytes = bytes(16), require_stable: bool = False, **fields):
        topics = [OffsetFetchRequestTopics("orders", topic_id=topic_id, partition_indexes=[partition])]
        requested = OffsetFetchRequestGroup(GROUP, topics=topics, **fields)
        return self.shard.offsets.fetch(requested, require_stable=require_stable).topics[0].partitions[0]

    def expire(self) -> int:
        """Expire what has; return how many records that took."""
        records = self.shard.expire(GROUP, self.shard.offsets.store.partitions_of(GROUP)).records
        self.replay(records)
        return len(records)


def test_deciding_a_commit_changes_nothing():
    shard = Shard()
    shard.shard.offsets.commit(commit_request(5), 9, 0)
    assert shard.shard.groups == {}
    assert shard.fetch().committed_offset == -1


def test_a_commit_is_fetched_with_all_its_fields():
    shard = Shard()
    assert shard.commit(metadata="here") == [0]
    response = shard.fetch()
    assert (response.committed_offset, response.committed_leader_epoch, response.metadata) == (5, -1, "here")


def test_an_offset_of_another_topic_of_the_name_is_none():
    shard = Shard()
    shard.commit(topic_id=ORDERS)
    assert shard.fetch(topic_id=OTHER).committed_offset == -1
    assert shard.fetch(topic_id=ORDERS).committed_offset == 5
    assert shard.fetch().committed_offset == 5


def test_metadata_beyond_the_limit_is_refused():
    shard = Shard(offset_metadata_max_bytes=4)
    assert shard.commit(metadata="12345") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert shard.commit(metadata="123\N{GRINNING FACE}") == [ErrorCode.OFFSET_METADATA_TOO_LARGE]
    assert shard.shard.groups == {}
    assert shard.commit(metadata="äöüß") == [ErrorCode.NONE]
    assert shard.commit(metadata="\N{GRINNING FACE}\N{GRINNING FACE}") == [ErrorCode.NONE]


@pytest.mark.parametrize(("version", "code"), [(8, ErrorCode.ILLEGAL_GENERATION), (9, ErrorCode.GROUP_ID_NOT_FOUND)])
def test_a_generation_needs_a_group(version, code):
    with pytest.raises(ApiError) as caught:
        Shard().commit(version=version, generation_id_or_member_epoch=1, member_id="m")
    assert caught.value.code == code


def test_an_unstable_offset_is_an_error_for_requests_that_require_stable_ones():
    shard = Shard()
    shard.commit(4)
    shard.replay([offset_record(GROUP, "orders", 0, OffsetCommitValue(9))], producer_id=77)
    response = shard.fetch(require_stable=True)
    assert (response.error_code, response.committed_offset) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
    assert shard.fetch().committed_offset == 4
    shard.shard.replay_marker(77, is_commit=True)
    assert shard.fetch(require_stable=True).committed_offset == 9


def test_a_record_of_the_oldest_type_is_an_offset_like_any_other():
    shard = Shard()
    shard.replay(
        [
            CoordinatorRecord(
                LegacyOffsetCommitKey(GROUP, topic="orders", partition=0),
                LegacyOffsetCommitValue(8, metadata="old", commit_timestamp=1),
            )
        ]
    )
    assert (shard.fetch().committed_offset, shard.fetch().metadata) == (8, "old")
    shard.replay([CoordinatorRecord(LegacyOffsetCommitKey(GROUP, topic="orders", partition=0), None)])
    assert shard.fetch().committed_offset == -1


def test_deleting_offsets_removes_those_that_are_there():
    shard = Shard()
    shard.commit()
    requested = [OffsetDeleteRequestPartition(partition_index=0), OffsetDeleteRequestPartition(partition_index=1)]
    request = OffsetDeleteRequest(group_id=GROUP, topics=[OffsetDeleteRequestTopic("orders", partitions=requested)])
    decision = shard.shard.offsets.delete(request)
    assert [record.key.partition for record in decision.records] == [0]
    assert [each.error_code for each in decision.response.topics[0].partitions] == [0, 0]


# -- expiry ---------------------------------------------------------------------------------------------------------


def test_an_offset_of_a_simple_group_expires_by_its_commit_and_takes_the_group_along():
    shard = Shard(offsets_retention_minutes=10)
    shard.commit()
    shard.wall_ms += 10 * MINUTE_MS - 1
    assert shard.expire() == 0
    shard.wall_ms += 1
    assert shard.expire() == 2
    assert shard.shard.groups == {}


def test_what_one_partition_commits_does_not_keep_the_others():
    shard = Shard(offsets_retention_minutes=10)
    shard.commit(partition=0)
    shard.wall_ms += 9 * MINUTE_MS
    shard.commit(partition=1)
    shard.wall_ms += MINUTE_MS
    assert shard.expire() == 1
    assert (shard.fetch(0).committed_offset, shard.fetch(1).committed_offset) == (-1, 5)
    assert GROUP in shard.shard.groups


def test_an_offset_that_names_its_time_expires_then():
    """Records of version 1: from OffsetCommit 2 to 4, whose clients chose the retention."""
    shard = Shard(offsets_retention_minutes=10)
    shard.commit(version=2, retention_time_ms=MINUTE_MS)
    shard.commit(partition=1, version=2, retention_time_ms=20 * MINUTE_MS)
    shard.wall_ms += MINUTE_MS
    assert shard.expire() == 1
    shard.wall_ms += 18 * MINUTE_MS
    assert shard.expire() == 0
    shard.wall_ms += MINUTE_MS
    assert shard.expire() == 2


def test_an_offset_may_be_kept_for_ever():
    shard = Shard(offsets_retention_minutes=10)
    shard.commit(version=2, retention_time_ms=INT64_MAX)
    shard.wall_ms += 1000 * 365 * 24 * 60 * MINUTE_MS
    assert shard.expire() == 0
    assert shard.fetch(0).committed_offset == 5


def test_an_offset_that_a_transaction_may_still_move_is_kept():
    shard = Shard(offsets_retention_minutes=10)
    shard.commit()
    shard.replay([offset_record(GROUP, "orders", 0, OffsetCommitValue(9))], producer_id=77)
    shard.wall_ms += 11 * MINUTE_MS
    assert shard.expire() == 0


class Subscribed:
    """What expiry asks of a group with members: those of the topic keep its offsets."""

    group_id, is_empty = GROUP, False

    def __init__(self, *topics: str, unused_since_ms: int | None) -> None:
        self._topics = topics
        self._unused_since_ms = unused_since_ms

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self._topics

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        return self._unused_since_ms


@pytest.mark.parametrize(
    ("topics", "since_ms", "count"), [(["orders"], 0, 0), (["other"], 0, 1), ([], None, 0)], ids=str
)
def test_offsets_of_a_group_with_members_expire_where_none_wants_the_topic(topics, since_ms, count):
    shard = Shard(offsets_retention_minutes=10)
    shard.commit()
    shard.shard.groups[GROUP] = Subscribed(*topics, unused_since_ms=since_ms)
    assert shard.expire() == count
    assert GROUP in shard.shard.groups
