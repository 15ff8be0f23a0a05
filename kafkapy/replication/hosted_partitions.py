"""The partitions that have a replica on this broker, by name and by topic id, and how metadata changes them.

Applying metadata takes time, but clients see new metadata at once. So it is announced before it is applied. From then
on a partition whose topic it deletes is not found any more, though it is still in the table: writes acknowledged there
would be lost with it, and its name may already belong to another topic.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError, StorageError
from kafkapy.metadata.delta import MetadataDelta
from kafkapy.metadata.image import EMPTY_IMAGE, RESOURCE_BROKER, RESOURCE_TOPIC, MetadataImage
from kafkapy.metadata.registrations import RESERVED_DIRECTORIES, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.replication.brokers import ReplicaBrokers, default_max_lag_ms
from kafkapy.replication.partition import Partition, Role
from kafkapy.storage.log_dir import lacks_space
from kafkapy.types import METADATA_PARTITION, TopicPartition, Uuid

if TYPE_CHECKING:
    from kafkapy.metadata.delta import LocalPartition
    from kafkapy.metrics.traffic import BrokerTraffic
    from kafkapy.storage.log.log import Log
    from kafkapy.storage.manager.log_manager import LogManager

logger = logging.getLogger("kafkapy.replication")

HostedPartition: TypeAlias = "Partition[Log]"
LogConfigs: TypeAlias = Callable[[Mapping[str, str]], LogConfig]
NO_PARTITIONS: Final[Mapping[int, HostedPartition]] = {}
APPLIED_AGAIN_AT_ONCE: Final = 1000
"""Partitions of a delta that `lacking_room` makes in one piece: a millisecond or two."""


class HostedPartitions:
    """The table of hosted partitions. `image` is the metadata applied to it, or being applied while `is_behind`.

    `newest_image` was announced last.
    """

    def __init__(
        self,
        node_id: int,
        log_manager: LogManager,
        log_config: LogConfigs,
        max_lag_ms: Callable[[], int] = default_max_lag_ms,
        traffic: BrokerTraffic | None = None,
    ) -> None:
        """`log_config(overrides)` returns a topic's configuration, `max_lag_ms()` replica.lag.time.max.ms.

        `traffic`: what topics are counted in, None if they are not.
        """
        self.traffic = traffic
        self.brokers = ReplicaBrokers(max_lag_ms)
        self.image: MetadataImage = EMPTY_IMAGE
        self.newest_image: MetadataImage = EMPTY_IMAGE
        self.is_behind = False
        """Whether announced metadata is not applied yet: only then `is_deleted` can be true."""
        self._is_starting = True
        """Whether the first image is being applied: its partitions may already have logs here."""
        self.node_id = node_id
        self.log_manager = log_manager
        self._log_config = log_config
        self._topic_configs: dict[tuple[tuple[str, str], ...], LogConfig] = {}
        """By overrides, while an image is applied: making one takes 26 of a new log's 200 us."""
        self._by_name: dict[str, dict[int, HostedPartition]] = {}
        self._by_id: dict[Uuid, dict[int, HostedPartition]] = {}
        self._lack_room: dict[tuple[Uuid, int], None] = {}
        """Partitions whose logs could not be created, because the disk was full; the latest try comes last."""

    # -- finding --------------------------------------------------------------------------------------------------

    def find(self, topic: str, partition_id: int) -> HostedPartition | None:
        partition = self._by_name.get(topic, NO_PARTITIONS).get(partition_id)
        if self.is_behind and partition is not None and self.is_deleted(partition):
            return None
        return partition

    def find_by_id(self, topic_id: Uuid, partition_id: int) -> HostedPartition | None:
        partition = self._by_id.get(topic_id, NO_PARTITIONS).get(partition_id)
        if self.is_behind and partition is not None and self.is_deleted(partition):
            return None
        return partition

    def finder(self, topic: str) -> Callable[[int], HostedPartition | None]:
        """Return the results of `find` for the topic's partitions; valid until anything else runs."""
        return partial(self.find, topic) if self.is_behind else self._by_name.get(topic, NO_PARTITIONS).get

    def finder_by_id(self, topic_id: Uuid) -> Callable[[int], HostedPartition | None]:
        """Like `finder`, of find_by_id."""
        return partial(self.find_by_id, topic_id) if self.is_behind else self._by_id.get(topic_id, NO_PARTITIONS).get

    def is_deleted(self, partition: HostedPartition) -> bool:
        """Whether the newest metadata no longer has the partition's topic."""
        return partition.topic_id not in self.newest_image.topics.by_id

    def missing_code(self, topic: str, partition_id: int) -> int:
        """Return the error code for a partition that is not hosted here: it exists elsewhere, or not at all.

        Deviation: Apache Kafka answers a Produce with UNKNOWN_TOPIC_ID, even in versions without ids, if the name now
        belongs to another topic and that metadata is not applied yet, and serves other requests from the old log. Here
        every request gets a retriable error, because it is the same as shortly after, while the new partition is
        created.
        """
        is_elsewhere = self.newest_image.topics.partition(topic, partition_id) is not None
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_elsewhere else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def __iter__(self) -> Iterator[HostedPartition]:
        for partitions in self._by_name.values():
            yield from partitions.values()

    def __len__(self) -> int:
        return sum(len(partitions) for partitions in self._by_name.values())

    # -- changing -------------------------------------------------------------------------------------------------

    def announce(self, image: MetadataImage) -> None:
        """Set the newest metadata, which clients see from now on and which `apply` will apply."""
        self.newest_image = image
        self.brokers.announce(image)
        self.log_manager.producer_counts.learn_next_producer_id(image.next_producer_id)
        self.is_behind = True

    def apply(
        self, delta: MetadataDelta, image: MetadataImage, now_ms: int, *, monotonic_ms: int
    ) -> Iterator[list[HostedPartition]]:
        """Apply metadata, one partition per step; yield the partitions whose waiting requests must be checked again.

        now_ms: wall clock, for logs. monotonic_ms: the start of the followers' lag.
        """
        assert self.is_behind, "metadata is announced before it is applied"
        self._is_starting = self.image is EMPTY_IMAGE
        self.image = image
        self._topic_configs = {}
        topics = delta.topics_changed
        if topics is not None:
            for _ in topics.find_local_changes(self.node_id):
                yield []
            changes = topics.local_changes(self.node_id)
            # Deletions first, as in Kafka: a topic of the same name, with the same directories, may have been created
            # since.
            for topic_partition, topic_id in changes.deleted.items():
                yield self._delete(topic_partition, topic_id, now_ms)
            for topic_partition, local in changes.leaders.items():
                if _is_hostable(topic_partition):
                    yield self._become_leader(topic_partition, local, now_ms, monotonic_ms)
            for topic_partition, local in changes.followers.items():
                if _is_hostable(topic_partition):
                    yield self._become_follower(topic_partition, local, now_ms)
        if delta.config_changes:
            for topic in self._with_changed_config(delta):
                for _ in self._update_config(topic):
                    yield []
        self.is_behind = image is not self.newest_image

    @property
    def lacking_room_count(self) -> int:
        """The number of partitions whose logs could not be created, because the disk was full."""
        return len(self._lack_room)

    def lacking_room(self) -> MetadataDelta | None:
        """Return a delta that has partitions of the newest image applied again whose logs lacked room, or None.

        It has APPLIED_AGAIN_AT_ONCE at most. Those that lack room once more come after the others next time.
        """
        if not self._lack_room:
            return None
        delta = MetadataDelta(self.newest_image)
        for topic_id, partition_id in list(islice(self._lack_room, APPLIED_AGAIN_AT_ONCE)):
            topic = self.newest_image.topics.by_id.get(topic_id)
            if topic is None or partition_id not in topic.partitions:
                self._lack_room.pop((topic_id, partition_id), None)
                continue
            delta.topics.add_again(topic, partition_id)
        return delta if delta.topics_changed is not None else None

    def directory_failed(self, path: str) -> list[HostedPartition]:
        """Take the partitions of a failed log directory out of service; return them."""
        failed = [partition for partition in self if partition.log is not None and partition.log.log_dir.path == path]
        for partition in failed:
            partition.go_offline()
        return failed

    def _with_changed_config(self, delta: MetadataDelta) -> list[str]:
        """Return the topics whose config changed: all of them after a change of broker configs, which they inherit."""
        changed = delta.config_changes
        if any(resource_type == RESOURCE_BROKER for resource_type, _ in changed):
            return list(self._by_name)
        return [name for resource_type, name in changed if resource_type == RESOURCE_TOPIC]

    def _delete(self, topic_partition: TopicPartition, topic_id: Uuid, now_ms: int) -> list[HostedPartition]:
        partition = self._in_table(topic_id, topic_partition.partition)
        if partition is None:
            return []
        self._forget(partition)
        partition.leave()
        try:
            if partition.log is not None:
                self.log_manager.delete_log(topic_partition, now_ms)
            else:
                self.log_manager.delete_future_log(topic_partition, now_ms)
        except (ApiError, StorageError) as error:
            logger.error("Could not delete the log of %s: %s", topic_partition, error)
        return [partition]

    def _become_leader(
        self, topic_partition: TopicPartition, local: LocalPartition, now_ms: int, monotonic_ms: int
    ) -> list[HostedPartition]:
        partition = self._get_or_create(topic_partition, local, now_ms)
        if partition.role is Role.OFFLINE:
            return []
        assert partition.log is not None
        if partition.become_leader(local.registration, monotonic_ms):
            partition.log.leader_epochs.assign(partition.leader_epoch, partition.leader_epoch_start_offset)
        if partition.is_leader:
            partition.maybe_advance_high_watermark(monotonic_ms)
        return [partition]

    def _become_follower(
        self, topic_partition: TopicPartition, local: LocalPartition, now_ms: int
    ) -> list[HostedPartition]:
        partition = self._get_or_create(topic_partition, local, now_ms)
        if partition.role is Role.OFFLINE:
            return []
        log = partition.log
        assert log is not None
        if partition.become_follower(local.registration) and log.latest_epoch is None and partition.leader_id >= 0:
            self._truncate_to_high_watermark(topic_partition, log)
        return [partition]

    def _truncate_to_high_watermark(self, topic_partition: TopicPartition, log: Log) -> None:
        """Truncate records that the new leader may not have: this log has no leader epochs to compare (KIP-101)."""
        if log.log_end_offset > log.high_watermark:
            logger.info("Truncating %s to its high watermark: its log has no leader epochs", topic_partition)
            try:
                self.log_manager.truncate_to({topic_partition: log.high_watermark})
            except StorageError as error:
                logger.error("Could not truncate the log of %s: %s", topic_partition, error)

    def _get_or_create(self, topic_partition: TopicPartition, local: LocalPartition, now_ms: int) -> HostedPartition:
        partition = self._in_table(local.topic_id, topic_partition.partition)
        lacked_room = (local.topic_id, topic_partition.partition) in self._lack_room
        if (
            partition is not None
            and not lacked_room
            and not self._has_lost_what_others_have(partition, local.registration)
        ):
            return partition
        if partition is not None:
            partition.leave()  # a plan for small produces may hold it: once it is GONE, that looks for the new one
        log = self._open_log(topic_partition, local.topic_id, local.registration, now_ms)
        partition = Partition(topic_partition, local.topic_id, log, local_id=self.node_id, brokers=self.brokers)
        if self.traffic is not None:
            partition.traffic = self.traffic.of(topic_partition.topic)
        self._by_name.setdefault(topic_partition.topic, {})[topic_partition.partition] = partition
        self._by_id.setdefault(local.topic_id, {})[topic_partition.partition] = partition
        return partition

    def _has_lost_what_others_have(self, partition: HostedPartition, registration: PartitionRegistration) -> bool:
        """Whether the log was damaged at the start, and another broker leads now, so that a new log may replace it."""
        is_damaged = partition.log is None and partition.topic_partition in self.log_manager.damaged_logs
        return is_damaged and self._is_replaceable(registration)

    def _is_replaceable(self, registration: PartitionRegistration) -> bool:
        """Whether this replica's records are elsewhere: another broker leads, and may not be succeeded by this one.

        A member of ISR or ELR counts as having all records. The controller removes a broker from both when it registers
        after an unclean stop, unless it is the only one.
        """
        has_other_leader = registration.leader >= 0 and registration.leader != self.node_id
        may_succeed = self.node_id in registration.isr or self.node_id in registration.elr
        return has_other_leader and not may_succeed

    def _open_log(
        self, topic_partition: TopicPartition, topic_id: Uuid, registration: PartitionRegistration, now_ms: int
    ) -> Log | None:
        """Return the partition's log, None if it cannot be opened: the partition is then offline.

        If the disk was full, it is offline until `lacking_room` has it applied again.
        """
        self._lack_room.pop((topic_id, topic_partition.partition), None)
        config = self._config_of(topic_partition.topic)
        directory_id = registration.directory_of(self.node_id)
        try:
            log = self.log_manager.get_or_create_log(
                topic_partition,
                topic_id,
                config,
                now_ms,
                directory_id=None if directory_id in RESERVED_DIRECTORIES else directory_id,
                is_new=not self._is_starting,
                is_replaceable=self._is_replaceable(registration),
            )
        except (ApiError, StorageError) as error:
            logger.error("Could not open the log of %s: %s", topic_partition, error)
            if lacks_space(error):
                self._lack_room[topic_id, topic_partition.partition] = None
            return None
        if log.config is not config and log.config != config:
            log.update_config(config)
        return log

    def _in_table(self, topic_id: Uuid, partition_id: int) -> HostedPartition | None:
        """Return a partition according to the applied metadata, ignoring what was announced since."""
        return self._by_id.get(topic_id, NO_PARTITIONS).get(partition_id)

    def _forget(self, partition: HostedPartition) -> None:
        topic, partition_id = partition.topic_partition
        self._lack_room.pop((partition.topic_id, partition_id), None)
        for partitions in (self._by_name.get(topic), self._by_id.get(partition.topic_id)):
            if partitions is not None and partitions.get(partition_id) is partition:
                del partitions[partition_id]
        if not self._by_name.get(topic, True):
            del self._by_name[topic]
            if self.traffic is not None:
                self.traffic.forget(topic)
        if not self._by_id.get(partition.topic_id, True):
            del self._by_id[partition.topic_id]

    def _config_of(self, topic: str) -> LogConfig:
        overrides = self.image.configs.of(RESOURCE_TOPIC, topic)
        key = tuple(overrides.items())
        config = self._topic_configs.get(key)
        if config is None:
            config = self._topic_configs[key] = self._log_config(overrides)
        return config

    def _update_config(self, topic: str) -> Iterator[None]:
        """Apply a topic's config, one partition per step."""
        partitions = self._by_name.get(topic, NO_PARTITIONS)
        config = self._config_of(topic)
        for partition in list(partitions.values()):
            for log in (partition.log, self.log_manager.future_logs.get(partition.topic_partition)):
                if log is not None and log.config != config:
                    log.update_config(config)
            yield


def _is_hostable(topic_partition: TopicPartition) -> bool:
    """Return False for a topic with the metadata log's name: that directory belongs to the quorum.

    The controller does not create such a topic, but an older version that did may have written the metadata.
    """
    if topic_partition.topic != METADATA_PARTITION.topic:
        return True
    logger.error("Not opening a log for %s: the name belongs to the metadata log; delete the topic", topic_partition)
    return False
