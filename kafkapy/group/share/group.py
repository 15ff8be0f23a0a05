"""A share group (KIP-932): its state, and questions about it. Requests are decided by the modules of this package.

Decide, append, replay: decisions take the group, return records and do not change the state in the log (state.py). Soft
state is kept here and changes at once: sessions, and the metadata with which the group was last compared. It is lost
with the coordinator, as in Kafka. Driven by `runtime/coordinators/group_host.py`, through the shard.

A share group commits no offsets: requests about committed offsets are refused, as by Apache Kafka 4.4.0.
"""

from collections.abc import Callable, Iterable
from typing import Final, NoReturn

from kafkapy.config.share import ShareConfig
from kafkapy.errors import ApiError
from kafkapy.group.group import CheckPartition
from kafkapy.group.history import RebalanceHistory
from kafkapy.group.metadata_hash import MetadataHashes
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.sessions import Sessions
from kafkapy.group.settings import GroupSettings
from kafkapy.group.share.records import group_tombstones
from kafkapy.group.share.settings import ShareTimes, share_times
from kafkapy.group.share.state import ShareGroupLog
from kafkapy.group.share.states import NO_STATES
from kafkapy.metadata.image import ConfigsImage, MetadataImage, TopicsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.share_group_current_member_assignment_key import ShareGroupCurrentMemberAssignmentKey
from kafkapy.protocol.messages.share_group_member_metadata_key import ShareGroupMemberMetadataKey
from kafkapy.protocol.primitives import Message

GROUP_TYPE: Final = "share"
PROTOCOL_TYPE: Final = "share"
EMPTY, STABLE, DEAD = "Empty", "Stable", "Dead"
"""The states of a share group, as ShareGroupDescribe and ListGroups show them."""


class ShareGroup:
    """One group. `log` is the replayed state, `sessions` has the members' deadlines, `history` the last rebalances."""

    def __init__(
        self, group_id: str, settings: GroupSettings, wall_ms: Callable[[], int], hashes: MetadataHashes
    ) -> None:
        """`hashes` is shared by the groups of a shard, so that a topic is hashed once for all of them."""
        self.group_id = group_id
        self.settings = settings
        self.hashes = hashes
        self.history = RebalanceHistory()
        self.log = ShareGroupLog(group_id, wall_ms)
        self.sessions = Sessions()
        self._times: tuple[ShareConfig, ConfigsImage, ShareTimes] | None = None
        """With the broker's and the groups' configs that they were read from."""
        self._checked_topics: TopicsImage | None = None
        self._checked_epoch = 0
        self._settled_topics: TopicsImage | None = None
        self._settled_version = -1

    @property
    def group_type(self) -> str:
        return GROUP_TYPE

    @property
    def protocol_type(self) -> str:
        return PROTOCOL_TYPE

    @property
    def state_name(self) -> str:
        if self.log.is_deleted:
            return DEAD
        return STABLE if self.log.members else EMPTY

    @property
    def is_empty(self) -> bool:
        return not self.log.members and not self.log.is_deleted

    @property
    def member_count(self) -> int:
        return len(self.log.members)

    @property
    def may_expire(self) -> bool:
        """Never: a share group stays, with the states of its share partitions, until it is deleted."""
        return False

    def times(self, configs: ConfigsImage) -> ShareTimes:
        """Return the settings of a heartbeat; cached until any configuration changes."""
        config = self.settings.share_config()
        if self._times is None or self._times[0] is not config or self._times[1] is not configs:
            self._times = config, configs, share_times(self.settings, self.group_id)
        return self._times[2]

    def continue_history(self, history: RebalanceHistory) -> None:
        """Take over a history, one that starts from the log."""
        assert not self.history.rebalances, f"group {self.group_id} has recorded rebalances of its own"
        self.history = history

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one ShareGroup* record; `value` is None for a tombstone."""
        self.log.replay(key, value)
        if isinstance(key, ShareGroupMemberMetadataKey | ShareGroupCurrentMemberAssignmentKey):
            self.sessions.on_replay(key.member_id, is_member=key.member_id in self.log.members)

    def deadline_ms(self) -> int | None:
        return self.sessions.deadline_ms()

    # -- metadata -----------------------------------------------------------------------------------------------------

    def has_metadata_expired(self, image: MetadataImage) -> bool:
        """Whether topics changed since the group was last compared with them, or that result was not written."""
        return self._checked_topics is not image.topics or self.log.group_epoch < self._checked_epoch

    def metadata_checked(self, image: MetadataImage, group_epoch: int) -> None:
        assert group_epoch >= self.log.group_epoch, "metadata checked for an epoch that is over"
        self._checked_topics, self._checked_epoch = image.topics, group_epoch

    def is_settled(self, image: MetadataImage) -> bool:
        """Whether all subscribed partitions have a state and are assigned: a heartbeat has nothing to look for."""
        return self._settled_version == self.log.version and self._settled_topics is image.topics

    def mark_settled(self, image: MetadataImage, topic_names: Iterable[str]) -> None:
        """Record that a heartbeat had nothing to write, unless a partition's state is still being created."""
        if (self.log.states or NO_STATES).have_all(topic_names, image):
            self._settled_version, self._settled_topics = self.log.version, image.topics

    # -- requests of other kinds of groups ----------------------------------------------------------------------------

    def check_offset_commit(
        self, member_id: str, instance_id: str | None, generation: int, *, version: int, is_transactional: bool
    ) -> CheckPartition | None:
        self._refuse()

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        raise AssertionError("a share group accepts no commits")

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Allow it: a share group has no committed offset, which is what the response says."""

    def check_offset_delete(self) -> None:
        self._refuse()

    def _refuse(self) -> NoReturn:
        raise ApiError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {self.group_id} is not a consumer group.")

    # -- deletion -----------------------------------------------------------------------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.log.topic_names

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return the time of the commit. An offset here is older than the group: it was then one of another kind."""
        return commit_timestamp_ms

    def check_deletion(self) -> None:
        if self.log.members:
            raise ApiError(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")

    def tombstone_records(self) -> list[CoordinatorRecord]:
        return group_tombstones(self.group_id, self.log.members)
