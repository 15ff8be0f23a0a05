"""The groups of one `__consumer_offsets` partition: a machine that decides requests and replays records.

Decide, append, replay: methods for requests return a GroupDecision and do not change the state that is in the log; only
`replay` changes that. Soft state (sessions, parked joins) belongs to the groups and changes at once. `classic` and
`consumer` take the requests about members, for the two types of groups; `offsets` takes those about offsets; the
methods here apply to groups of any type. `share` and `streams` are imported with the first group of their kind.
Driven by `runtime/coordinators/group_host.py`.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic_requests import ClassicGroups
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer_requests import ConsumerGroups, is_consumer_group_record
from kafkapy.group.decision import GroupDecision
from kafkapy.group.explain import explain
from kafkapy.group.group import Group
from kafkapy.group.offset_requests import OffsetRequests, group_not_found
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.settings import GroupSettings
from kafkapy.group.timeline_order import in_timeline_order
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.consumer_group_metadata_key import ConsumerGroupMetadataKey
from kafkapy.protocol.messages.describe_groups_response import DescribedGroup
from kafkapy.protocol.messages.group_metadata_key import GroupMetadataKey
from kafkapy.protocol.messages.legacy_offset_commit_key import LegacyOffsetCommitKey
from kafkapy.protocol.messages.list_groups_response import ListedGroup
from kafkapy.protocol.messages.offset_commit_key import OffsetCommitKey
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.primitives import Message
from kafkapy.record.batch import NO_PRODUCER_ID
from kafkapy.seams import Random
from kafkapy.types import TopicPartition, Uuid

if TYPE_CHECKING:
    from kafkapy.group.share_requests import ShareGroups
    from kafkapy.group.streams_requests import StreamsGroups

SHARE_RECORDS: Final = "ShareGroup"
"""The names of the records of share groups begin with this."""
STREAMS_RECORDS: Final = "StreamsGroup"
SHARE_TYPE: Final = "share"
DEAD: Final = "Dead"
FEW_DEADLINES: Final = 64
"""The heap of deadlines may have as many that are out of date, and as many again as there are groups."""
GROUP_ID_NOT_FOUND_SINCE: Final = 6
"""The first DescribeGroups with GROUP_ID_NOT_FOUND; older versions show an unknown group as Dead."""


class GroupShard:
    """All groups of one partition, by id, and their committed offsets."""

    def __init__(
        self,
        settings: GroupSettings,
        *,
        metadata: Callable[[], MetadataImage],
        random: Random,
        wall_ms: Callable[[], int],
        now_ms: Callable[[], int],
    ) -> None:
        self.settings = settings
        self.metadata = metadata
        self.wall_ms = wall_ms
        self._now_ms = now_ms
        self.groups: dict[str, Any] = {}
        """By group id, of any type (see group.Group)."""
        self.offsets = OffsetRequests(self.groups, settings, metadata=metadata, wall_ms=wall_ms)
        self.consumer = ConsumerGroups(self.groups, settings, metadata=metadata, random=random, wall_ms=wall_ms)
        self.classic = ClassicGroups(
            self.groups,
            self.consumer,
            settings,
            self.offsets.store.has_any,
            random=random,
            wall_ms=wall_ms,
            now_ms=now_ms,
        )
        self._share: ShareGroups | None = None
        self._streams: StreamsGroups | None = None
        self._is_loaded = False
        self._deadlines: list[tuple[int, str]] = []
        self._deadline_of: dict[str, int] = {}
        """By group id: the group's earliest deadline in the heap `_deadlines`."""

    @property
    def share(self) -> "ShareGroups":
        """The share groups among the groups. Nothing of them is imported before the first one."""
        if self._share is None:
            from kafkapy.group.share_requests import ShareGroups

            self._share = ShareGroups(
                self.groups, self.settings, self.consumer.hashes, metadata=self.metadata, wall_ms=self.wall_ms
            )
            if self._is_loaded:
                self._share.on_loaded()
        return self._share

    @property
    def streams(self) -> "StreamsGroups":
        """The streams groups among the groups, made with the first of them."""
        if self._streams is None:
            from kafkapy.group.streams_requests import StreamsGroups

            self._streams = StreamsGroups(
                self.groups, self.settings, self.consumer.hashes, metadata=self.metadata, wall_ms=self.wall_ms
            )
            if self._is_loaded:
                self._streams.on_loaded(self._now_ms())
        return self._streams

    # -- all kinds of groups --------------------------------------------------------------------------------------

    def list_groups(self, states: Sequence[str], types: Sequence[str]) -> Iterator[ListedGroup | None]:
        """Yield the groups in one of the states and of one of the types, ignoring case; an empty list matches any.

        Yields None for each group that does not match, so that callers can yield to the event loop in between.

        Deviation: Apache Kafka lists streams groups that are NotReady by the state not_ready alone. Here NotReady finds
        them, too, because that is what its responses call them, and what kafka-streams-groups.sh asks for.
        """
        wanted_states = {state.strip().lower().replace("_", "") for state in states}
        wanted_types = {kind.strip().lower() for kind in types}
        groups: list[Group] = [self.groups[group_id] for group_id in in_timeline_order(self.groups)]
        for group in groups:
            is_listed = (not states or group.state_name.lower() in wanted_states) and (
                not types or group.group_type in wanted_types
            )
            listed = ListedGroup(
                group.group_id,
                protocol_type=group.protocol_type or "",
                group_state=group.state_name,
                group_type=group.group_type,
            )
            yield listed if is_listed else None

    def describe_group(self, group_id: str, version: int) -> DescribedGroup:
        """Return one group for DescribeGroups, which only finds classic groups; any other is Dead or not found."""
        try:
            return self.classic.describe(group_id)
        except ApiError as error:
            if version < GROUP_ID_NOT_FOUND_SINCE:
                return DescribedGroup(group_id=group_id, group_state=DEAD)
            return DescribedGroup(error.code, error_message=error.message, group_id=group_id, group_state=DEAD)

    def explain_group(self, group_id: str) -> bytes:
        """Return the group's last rebalances as JSON; explain.py has the format."""
        return explain(self.groups.get(group_id), self.metadata())

    def is_share_group(self, group_id: str) -> bool:
        """Whether it is a share group, the states of whose partitions are deleted before it (share.begin_deletion)."""
        group = self.groups.get(group_id)
        return group is not None and group.group_type == SHARE_TYPE

    def delete_group(self, group_id: str) -> GroupDecision:
        """Decide the deletion of an empty group and all its offsets. Raises ApiError."""
        group = self.groups.get(group_id)
        if group is None:
            raise group_not_found(group_id)
        group.check_deletion()
        assert not group.member_count, f"{group_id} would be deleted with members"
        records = [*self.offsets.store.tombstones(group_id), *group.tombstone_records()]
        return GroupDecision(True, records, is_atomic=False)

    def forget_topic(self, topic: str, topic_id: Uuid) -> GroupDecision:
        """Decide the deletion of a deleted topic's offsets, in all groups."""
        self.consumer.forget_topic(topic)
        records = self.offsets.store.tombstones_of_topic(topic, topic_id)
        if self._share is not None:
            records += self._share.forget_topic(topic_id)
        return GroupDecision(records=records, is_atomic=False)

    def expire(self, group_id: str, offsets: Iterable[TopicPartition]) -> GroupDecision:
        """Decide the expiry of some of a group's offsets (KIP-211). An empty group without others is deleted, too."""
        group = self.groups.get(group_id)
        if group is None:
            return GroupDecision()
        records, is_all = self.offsets.expired(group, offsets)
        if is_all and group.is_empty and group.may_expire:
            assert not group.member_count, f"{group_id} would be deleted with members"
            records += group.tombstone_records()
        return GroupDecision(records=records, is_atomic=False)

    # -- time -----------------------------------------------------------------------------------------------------

    def add_deadline(self, group_id: str) -> None:
        """Schedule the group's deadline. Call it after anything that may have made the deadline earlier."""
        group = self.groups.get(group_id)
        deadline_ms = None if group is None else group.deadline_ms()
        if deadline_ms is None:
            return
        known_ms = self._deadline_of.get(group_id)
        if known_ms is None or deadline_ms < known_ms:
            self._deadline_of[group_id] = deadline_ms
            heapq.heappush(self._deadlines, (deadline_ms, group_id))
            if len(self._deadlines) > 2 * len(self._deadline_of) + FEW_DEADLINES:
                self._deadlines = [(deadline_ms, group_id) for group_id, deadline_ms in self._deadline_of.items()]
                heapq.heapify(self._deadlines)
            assert len(self._deadlines) >= len(self._deadline_of), "the deadline of each group is in the heap"

    def end_session(self, group_id: str, member_id: str, now_ms: int) -> None:
        """End the session of a member now: call on_time for what is due."""
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            group.timers.touch_session(member_id, now_ms, 0)
        elif isinstance(group, ClassicGroup):
            group.rebalance.schedule_session(group.log.members[member_id], now_ms)
        else:
            group.sessions.touch(member_id, now_ms)
        self.add_deadline(group_id)

    def on_loaded(self, now_ms: int) -> None:
        """Start after the log was replayed and before the first request: renew the members' sessions."""
        assert not self._is_loaded, "a log is loaded once"
        self._is_loaded = True
        self.classic.on_loaded(now_ms)
        self.consumer.on_loaded()
        if self._share is not None:
            self._share.on_loaded()
        if self._streams is not None:
            self._streams.on_loaded(now_ms)
        for group_id in self.groups:
            self.add_deadline(group_id)

    def deadline_ms(self) -> int | None:
        """Return when the next group is due (monotonic), or None. May be too early."""
        return self._deadlines[0][0] if self._deadlines else None

    def due_groups(self, now_ms: int) -> list[str]:
        """Remove and return the groups that are due. Callers call on_time, then add_deadline, for each."""
        due: dict[str, None] = {}
        while self._deadlines and self._deadlines[0][0] <= now_ms:
            deadline_ms, group_id = heapq.heappop(self._deadlines)
            if self._deadline_of.get(group_id) == deadline_ms:
                del self._deadline_of[group_id]
                due[group_id] = None
        assert self._deadlines or not self._deadline_of, "a group has a deadline that nobody would wake for"
        return [group_id for group_id in due if group_id in self.groups]

    def on_time(self, group_id: str, now_ms: int) -> GroupDecision:
        """Decide what has expired in one group: sessions and rebalance phases."""
        group = self.groups[group_id]
        if isinstance(group, ConsumerGroup):
            return self.consumer.on_time(group, now_ms)
        if isinstance(group, ClassicGroup):
            return self.classic.on_time(group, now_ms)
        if group.group_type == SHARE_TYPE:
            return self.share.on_time(group, now_ms)
        return self.streams.on_time(group, now_ms)

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay(self, record: CoordinatorRecord, record_offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        """Apply one record; `record_offset` is its offset in this partition of `__consumer_offsets`."""
        key, value = record.key, record.value
        if type(key) is OffsetCommitKey:
            assert value is None or type(value) is OffsetCommitValue
            self._replay_offset(key, value, record_offset, producer_id)
        elif type(key) is GroupMetadataKey:
            self.classic.replay(key, value, record_offset)
            if value is None:
                self._deadline_of.pop(key.group, None)
        elif is_consumer_group_record(key):
            self.consumer.replay(key, value)
            if value is None and type(key) is ConsumerGroupMetadataKey:
                self.classic.on_removal(key.group_id, record_offset)
        elif type(key) is LegacyOffsetCommitKey:
            current_key, current_value = _modernized(key, value)
            self._replay_offset(current_key, current_value, record_offset, producer_id)
        elif key.NAME.startswith(SHARE_RECORDS):
            self.share.replay(key, value)
        elif key.NAME.startswith(STREAMS_RECORDS):
            self.streams.replay(key, value)

    def _replay_offset(
        self, key: OffsetCommitKey, value: OffsetCommitValue | None, record_offset: int, producer_id: int
    ) -> None:
        if value is not None and key.group not in self.groups:
            self.groups[key.group] = self.classic.make_simple(key.group)
        self.offsets.store.replay(key, value, record_offset, producer_id)

    def replay_marker(self, producer_id: int, *, is_commit: bool) -> None:
        """Apply the marker of a transaction that committed offsets in this partition."""
        self.offsets.store.replay_marker(producer_id, is_commit=is_commit)


def _modernized(key: Message, value: Message | None) -> tuple[OffsetCommitKey, OffsetCommitValue | None]:
    """Convert a record of type 0 (legacy offset commit) to type 1, which has the same fields."""
    old_key: Any = key
    current_key = OffsetCommitKey(old_key.group, topic=old_key.topic, partition=old_key.partition)
    if value is None:
        return current_key, None
    old: Any = value
    return current_key, OffsetCommitValue(old.offset, metadata=old.metadata, commit_timestamp=old.commit_timestamp)
