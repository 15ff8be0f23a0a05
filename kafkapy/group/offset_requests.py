"""Requests about a shard's offsets: commit, fetch and delete, and the expiry of offsets (KIP-211).

The handlers have already resolved topic ids, checked authorization and refused topics and partitions that do not exist.
This module checks the member with its group and makes the records. Errors of a whole request are raised as ApiError.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.group import CheckPartition, Group
from kafkapy.group.offsets import CommittedOffset, OffsetStore, offset_record, offset_tombstone
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import OffsetCommitRequest, OffsetCommitRequestPartition
from kafkapy.protocol.messages.offset_commit_response import (
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.offset_delete_request import OffsetDeleteRequest, OffsetDeleteRequestTopic
from kafkapy.protocol.messages.offset_delete_response import (
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kafkapy.protocol.messages.offset_fetch_response import (
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from kafkapy.protocol.messages.txn_offset_commit_request import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
)
from kafkapy.protocol.messages.txn_offset_commit_response import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from kafkapy.record.batch import NO_TIMESTAMP
from kafkapy.types import INT64_MAX, ZERO_UUID, TopicPartition, Uuid

NO_OFFSET = -1
NO_RETENTION_TIME = -1
GROUP_ID_NOT_FOUND_SINCE = 9
"""The first OffsetCommit whose clients know GROUP_ID_NOT_FOUND; older ones get ILLEGAL_GENERATION."""
OWN_ERRORS_SINCE = 6
"""The first TxnOffsetCommit whose clients know GROUP_ID_NOT_FOUND and STALE_MEMBER_EPOCH."""
MS_PER_MINUTE = 60_000


class OffsetRequests:
    """Decides requests about the offsets of a shard's groups. `groups` is the shard's own map."""

    def __init__(
        self,
        groups: dict[str, Any],
        settings: GroupSettings,
        *,
        metadata: Callable[[], MetadataImage],
        wall_ms: Callable[[], int],
    ) -> None:
        self._metadata = metadata
        self.store = OffsetStore()
        self._groups: dict[str, Group] = groups
        self._settings = settings
        self._wall_ms = wall_ms

    # -- OffsetCommit ---------------------------------------------------------------------------------------------

    def commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> GroupDecision:
        """Decide OffsetCommit. An offset of -1 is accepted like any other, as in Kafka.

        Deviation: Apache Kafka lets an offset whose retention ends beyond the range of an int64 expire at once. Here it
        is kept for ever, because its client asked for that.
        """
        check = self._check_commit(request, version, now_ms)
        wall_ms = self._wall_ms()
        expire_ms = NO_TIMESTAMP
        if request.retention_time_ms != NO_RETENTION_TIME:
            expire_ms = min(wall_ms + request.retention_time_ms, INT64_MAX)
        max_metadata = self._settings.config.offset_metadata_max_bytes
        records: list[CoordinatorRecord] = []
        response = OffsetCommitResponse()
        for topic in request.topics:
            responded = OffsetCommitResponseTopic(topic.name, topic_id=topic.topic_id)
            response.topics.append(responded)
            for partition in topic.partitions:
                code = ErrorCode.NONE
                if _java_length(partition.committed_metadata or "") > max_metadata:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        # A stale epoch refuses the whole request, as in Kafka.
                        check(topic.name, topic.topic_id, partition.partition_index)
                    value = _commit_value(partition, topic.topic_id, wall_ms, expire_ms)
                    records.append(offset_record(request.group_id, topic.name, partition.partition_index, value))
                responded.partitions.append(
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
        self._settings.counts.offset_commits += len(records)
        return GroupDecision(response, records)

    def _check_commit(self, request: OffsetCommitRequest, version: int, now_ms: int) -> CheckPartition | None:
        group = self._groups.get(request.group_id)
        generation = request.generation_id_or_member_epoch
        if group is None:
            if generation < 0:
                return None  # replaying the first record creates a simple group
            if version >= GROUP_ID_NOT_FOUND_SINCE:
                raise group_not_found(request.group_id)
            raise ApiError(ErrorCode.ILLEGAL_GENERATION)
        check = group.check_offset_commit(
            request.member_id, request.group_instance_id, generation, version=version, is_transactional=False
        )
        group.on_offset_commit(request.member_id, now_ms)
        return check

    # -- TxnOffsetCommit ------------------------------------------------------------------------------------------

    def commit_in_transaction(self, request: TxnOffsetCommitRequest, version: int) -> GroupDecision:
        """Decide TxnOffsetCommit. The caller appends the records in the producer's transaction.

        They have the topic ids of the request, which versions before 6 have not.
        """
        check = self._check_transactional_commit(request, version)
        wall_ms = self._wall_ms()
        max_metadata = self._settings.config.offset_metadata_max_bytes
        records: list[CoordinatorRecord] = []
        response = TxnOffsetCommitResponse()
        for topic in request.topics:
            responded = TxnOffsetCommitResponseTopic(topic.name, topic_id=topic.topic_id)
            response.topics.append(responded)
            for partition in topic.partitions:
                code = ErrorCode.NONE
                if _java_length(partition.committed_metadata or "") > max_metadata:
                    code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    if check is not None:
                        check(topic.name, partition.partition_index)
                    value = _commit_value(partition, topic.topic_id, wall_ms, NO_TIMESTAMP)
                    records.append(offset_record(request.group_id, topic.name, partition.partition_index, value))
                responded.partitions.append(
                    TxnOffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                )
        self._settings.counts.offset_commits += len(records)
        return GroupDecision(response, records)

    def _check_transactional_commit(
        self, request: TxnOffsetCommitRequest, version: int
    ) -> Callable[[str, int], None] | None:
        """Return a check to call for each partition, or None.

        Before version 6 a missing group and a stale member epoch raise ILLEGAL_GENERATION.
        """
        group = self._groups.get(request.group_id)
        if group is None:
            if request.generation_id_or_member_epoch < 0:  # a producer may commit for a group that has no members yet
                return None
            raise ApiError(
                ErrorCode.GROUP_ID_NOT_FOUND if version >= OWN_ERRORS_SINCE else ErrorCode.ILLEGAL_GENERATION
            )
        stale_epochs: Callable[[], AbstractContextManager[None]]
        stale_epochs = nullcontext if version >= OWN_ERRORS_SINCE else _stale_epochs_as_illegal_generation
        with stale_epochs():
            check = group.check_offset_commit(
                request.member_id,
                request.group_instance_id,
                request.generation_id_or_member_epoch,
                version=version,
                is_transactional=True,
            )
        if check is None:
            return None

        def check_partition(topic: str, partition: int) -> None:
            image = self._metadata().topics.by_name.get(topic)
            if image is None:
                raise ApiError(ErrorCode.ILLEGAL_GENERATION)
            with stale_epochs():
                check(topic, image.topic_id, partition)

        return check_partition

    # -- OffsetFetch ----------------------------------------------------------------------------------------------

    def fetch(self, request: OffsetFetchRequestGroup, *, require_stable: bool) -> OffsetFetchResponseGroup:
        """Return one group's part of OffsetFetch: the requested topics, or all if `topics` is None. Raises ApiError.

        require_stable: a partition with a pending transactional offset gets UNSTABLE_OFFSET_COMMIT (KIP-447).
        """
        group_id = request.group_id
        group = self._groups.get(group_id)
        if group is not None:
            group.check_offset_fetch(request.member_id, request.member_epoch)
        elif request.topics is None:
            return OffsetFetchResponseGroup(group_id)
        topics = self._all_topics(group_id) if request.topics is None else request.topics
        offsets = self.store.of_group(group_id) if group is not None else {}
        unstable = self.store.open_partitions(group_id) if require_stable else {}
        responses = []
        for topic in topics:
            of_topic = offsets.get(topic.name, {})
            partitions = []
            for partition in topic.partition_indexes:
                if (topic.name, partition) in unstable:
                    response = _no_offset(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
                else:
                    response = _fetched(partition, of_topic.get(partition), topic.topic_id)
                partitions.append(response)
            responses.append(OffsetFetchResponseTopics(topic.name, topic_id=topic.topic_id, partitions=partitions))
        return OffsetFetchResponseGroup(group_id, topics=responses)

    def naming_all(self, request: OffsetFetchRequestGroup, at_once: int) -> OffsetFetchRequestGroup | None:
        """Return a request for all offsets of a group as one that names them; None if they are at most `at_once`."""
        if sum(map(len, self.store.of_group(request.group_id).values())) <= at_once:
            return None
        topics = self._all_topics(request.group_id)
        return OffsetFetchRequestGroup(
            request.group_id, member_id=request.member_id, member_epoch=request.member_epoch, topics=topics
        )

    def _all_topics(self, group_id: str) -> list[OffsetFetchRequestTopics]:
        return [
            OffsetFetchRequestTopics(name, topic_id=ZERO_UUID, partition_indexes=list(partitions))
            for name, partitions in self.store.of_group(group_id).items()
        ]

    # -- OffsetDelete ---------------------------------------------------------------------------------------------

    def delete(self, request: OffsetDeleteRequest) -> GroupDecision:
        """Decide OffsetDelete (KIP-496): delete offsets of topics to which the group is not subscribed."""
        group = self._groups.get(request.group_id)
        if group is None:
            raise group_not_found(request.group_id)
        group.check_offset_delete()
        decision = GroupDecision(OffsetDeleteResponse())
        for topic in request.topics:
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if group.is_subscribed_to(topic.name) else ErrorCode.NONE
            if code == ErrorCode.NONE:
                decision.records += self._deletions(request.group_id, topic)
            partitions = [
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=code)
                for each in topic.partitions
            ]
            decision.response.topics.append(OffsetDeleteResponseTopic(topic.name, partitions=partitions))
        self._settings.counts.offset_deletions += len(decision.records)
        return decision

    def _deletions(self, group_id: str, topic: OffsetDeleteRequestTopic) -> list[CoordinatorRecord]:
        unstable = self.store.open_partitions(group_id)
        return [
            offset_tombstone(group_id, topic.name, each.partition_index)
            for each in topic.partitions
            if self.store.get(group_id, topic.name, each.partition_index) is not None
            or (topic.name, each.partition_index) in unstable
        ]

    # -- expiry ---------------------------------------------------------------------------------------------------

    def expired(self, group: Group, offsets: Iterable[TopicPartition]) -> tuple[list[CoordinatorRecord], bool]:
        """Return the tombstones of those of these offsets that have expired, and whether no other offset remains."""
        group_id = group.group_id
        wall_ms = self._wall_ms()
        unstable, committed = self.store.open_partitions(group_id), self.store.of_group(group_id)
        records: list[CoordinatorRecord] = []
        is_subscribed: dict[str, bool] = {}
        for topic, partition in offsets:
            offset = committed.get(topic, {}).get(partition)
            if offset is None or (topic, partition) in unstable:
                continue
            if topic not in is_subscribed:
                is_subscribed[topic] = group.is_subscribed_to(topic)
            if not is_subscribed[topic] and self._has_expired(group, offset, wall_ms):
                records.append(offset_tombstone(group_id, topic, partition))
        self._settings.counts.offset_expirations += len(records)
        return records, not unstable and len(records) == sum(map(len, committed.values()))

    def _has_expired(self, group: Group, committed: CommittedOffset, wall_ms: int) -> bool:
        unused_since_ms = group.offsets_unused_since_ms(committed.value.commit_timestamp)
        if unused_since_ms is None:
            return False
        if committed.value.expire_timestamp != NO_TIMESTAMP:
            return wall_ms >= committed.value.expire_timestamp
        return wall_ms - unused_since_ms >= self._settings.config.offsets_retention_minutes * MS_PER_MINUTE


@contextmanager
def _stale_epochs_as_illegal_generation() -> Iterator[None]:
    """Translate STALE_MEMBER_EPOCH, which clients of TxnOffsetCommit 5 and older do not know."""
    try:
        yield
    except ApiError as error:
        if error.code != ErrorCode.STALE_MEMBER_EPOCH:
            raise
        raise ApiError(ErrorCode.ILLEGAL_GENERATION) from error


def group_not_found(group_id: str) -> ApiError:
    return ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")


def _java_length(text: str) -> int:
    """Return the text's length in UTF-16 code units, like Java's: offset.metadata.max.bytes bounds it in Kafka."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def _commit_value(
    partition: OffsetCommitRequestPartition | TxnOffsetCommitRequestPartition,
    topic_id: Uuid,
    wall_ms: int,
    expire_ms: int,
) -> OffsetCommitValue:
    return OffsetCommitValue(
        partition.committed_offset,
        leader_epoch=partition.committed_leader_epoch,
        metadata=partition.committed_metadata or "",
        commit_timestamp=wall_ms,
        expire_timestamp=expire_ms,
        topic_id=topic_id,
    )


def _fetched(partition: int, committed: CommittedOffset | None, topic_id: Uuid) -> OffsetFetchResponsePartitions:
    """Return the committed offset, or no offset if it was committed for another topic id of the same name."""
    if committed is None:
        return _no_offset(partition, ErrorCode.NONE)
    value = committed.value
    if value.topic_id != topic_id and ZERO_UUID not in (value.topic_id, topic_id):
        return _no_offset(partition, ErrorCode.NONE)
    return OffsetFetchResponsePartitions(
        partition, committed_offset=value.offset, committed_leader_epoch=value.leader_epoch, metadata=value.metadata
    )


def _no_offset(partition: int, code: ErrorCode) -> OffsetFetchResponsePartitions:
    return OffsetFetchResponsePartitions(
        partition, committed_offset=NO_OFFSET, committed_leader_epoch=NO_OFFSET, metadata="", error_code=code
    )
