"""While a log directory is full, its replicas are given away: other brokers lead them, and no leader waits for them.

A full disk takes no records, but may have room again: the directory stays online (storage/log_dir.py). In a cluster
that alone would stop writes: the full broker would go on leading, and leaders would wait replica.lag.time.max.ms for
it. So while a directory is full each replica in it is reported as being in DIRECTORY_LOST (AssignReplicasToDirs,
KIP-858), if another member of its ISR can lead: the controller removes it from the ISR and elects another leader, as
for a directory that failed. With room again the real directory is reported, and the replica fetches and rejoins the
ISR. A replica that is alone stays where it is, and refuses records.

Once the controller has accepted DIRECTORY_LOST, a replica that leads resigns: it refuses requests, and answers those
that wait. One that follows counts as out of the ISR. Neither waits for the metadata to say so, because the metadata log
may have no room on the same disk (runtime/quorum/effect_queue.py). For the same reason what the controller accepted
counts here, even if the image does not have it yet.

A log that could not be created for lack of room is created once there is some: its partition is applied again as if the
metadata had just brought it. A disk with free bytes may still take no file, because it has no inodes or a user's quota
is used up. So after each try that created no log, the next one waits longer.

Why so: this is the one request of KRaft that does it replica by replica and can be taken back, and Apache Kafka's
controllers know it since metadata.version 3.7-IV2. A heartbeat that wants to be fenced, or names a directory as
offline, leaves replicas that are alone without a leader, too, and a directory is then offline until the broker
registers again. A controlled shutdown cannot be taken back, and by AlterPartition a leader cannot leave its own ISR.

Deviation: Apache Kafka's broker takes a full directory offline until it is started again, and stops if it has no other.
Here it stays online, because it may have room again.
"""

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final

from kafkapy.errors import ApiError, StorageError
from kafkapy.metadata.features import MV_3_7_IV2
from kafkapy.metadata.image import METADATA_VERSION
from kafkapy.metadata.registrations import DIRECTORY_LOST, NO_LEADER
from kafkapy.runtime.broker.directory_assignments import Assignment

if TYPE_CHECKING:
    from kafkapy.metadata.delta import MetadataDelta
    from kafkapy.metadata.image import MetadataImage
    from kafkapy.metadata.registrations import PartitionRegistration
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.runtime.broker.directory_assignments import DirectoryAssignments
    from kafkapy.storage.log.log import Log
    from kafkapy.types import Uuid

LOOK_MS: Final = 500
"""How often room is looked for, and each replica's place compared with the one that is wanted."""
PARTITIONS_PER_TURN: Final = 200
KEYS_PER_TURN: Final = 2000
MAX_LOOKS_BETWEEN_TRIES: Final = 127
"""A minute between tries to create logs that lacked room. A try that finds the disk full may have leaders resign."""

logger = logging.getLogger("kafkapy.runtime")


class FullDirectories:
    """Compares, while a directory is full and until all is taken back, where replicas are reported to be."""

    def __init__(
        self,
        replica_manager: "ReplicaManager",
        assignments: "DirectoryAssignments",
        *,
        on_resigned: "Callable[[HostedPartition], None]",
        apply_again: "Callable[[MetadataDelta, MetadataImage], None]",
    ) -> None:
        """on_resigned: called with a partition that ceased to lead before metadata says so.

        apply_again: called once there is room, with a delta of the partitions whose logs lacked it.
        """
        self._on_resigned = on_resigned
        self._apply_again = apply_again
        self._replica_manager = replica_manager
        self._partitions = replica_manager.partitions
        self._assignments = assignments
        self._given_away: set[tuple[Uuid, int]] = set()
        """Replicas that were given away, and not taken back yet."""
        self._accepted: dict[tuple[Uuid, int], Uuid] = {}
        """Directories that the controller has accepted, and the image does not have yet."""
        self._tried_count = 0
        """How many logs lacked room at the last try to create them."""
        self._looks_between_tries = self._looks_left = 0
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop; the next start reports the directories of what is given away."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def place_of(self, log: "Log", registration: "PartitionRegistration", topic_id: "Uuid") -> "Uuid | None":
        """Return where a replica is to be reported: in its log's directory, or in DIRECTORY_LOST to give it away."""
        if not (log.log_dir.is_full and self._is_led_without(registration)):
            return self._replica_manager.log_manager.directory_of(log).directory_id
        key = (topic_id, log.topic_partition.partition)
        if key not in self._given_away:
            logger.warning("No room for %s: giving it away until there is some", log.topic_partition)
            self._given_away.add(key)
        return DIRECTORY_LOST

    def assignment(self, topic_id: "Uuid", partition_id: int, place: "Uuid") -> Assignment:
        """Return what reports the place of a replica; if it is given away, what is accepted is recorded here."""
        key = (topic_id, partition_id)
        partition = self._partitions.find_by_id(*key)
        if partition is None or not (key in self._given_away or key in self._accepted):
            return Assignment(*key, place)
        return self._recorded(partition, place)

    def _recorded(self, partition: "HostedPartition", place: "Uuid") -> Assignment:
        on_accepted = partial(self._on_accepted, partition, place, partition.leader_epoch)
        return Assignment(partition.topic_id, partition.topic_partition.partition, place, on_accepted)

    def _is_led_without(self, registration: "PartitionRegistration") -> bool:
        """Whether the partition has a leader, and another broker leads it or could be elected at once."""
        brokers, node_id = self._partitions.newest_image.cluster.brokers, self._partitions.node_id
        return registration.leader != NO_LEADER and any(
            broker.is_active and broker.has_online_directory(registration.directory_of(replica_id))
            for replica_id in registration.isr
            if replica_id != node_id and (broker := brokers.get(replica_id)) is not None
        )

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(LOOK_MS / 1000)
            try:
                for _ in self.check():
                    await asyncio.sleep(0)
            except Exception:
                logger.exception("Looking after full log directories failed unexpectedly, trying again")

    def check(self) -> Iterator[None]:
        """Look for room in full directories, then at each replica, some a step; create the logs that lacked room."""
        states = [directory.state for directory in self._replica_manager.log_manager.directories.live]
        for state in states:
            if state.is_full:
                with suppress(ApiError, StorageError):
                    state.check_room()
        levels = self._partitions.newest_image.features.levels
        is_needed = self._given_away or self._accepted or any(state.is_full for state in states)
        if is_needed and levels.get(METADATA_VERSION, 0) >= MV_3_7_IV2:
            for count, partition in enumerate(list(self._partitions), 1):
                self._assign_place(partition)
                if count % PARTITIONS_PER_TURN == 0:
                    yield
            yield from self._forget_deleted()
        if not any(state.is_full for state in states):
            self._maybe_create_logs()

    def _forget_deleted(self) -> Iterator[None]:
        """Forget replicas that are not hosted any more, or each check would go through all partitions for ever."""
        for count, key in enumerate([*self._given_away, *self._accepted], 1):
            if self._partitions.find_by_id(*key) is None:
                self._given_away.discard(key)
                self._accepted.pop(key, None)
            if count % KEYS_PER_TURN == 0:
                yield

    def _maybe_create_logs(self) -> None:
        """Apply the partitions again whose logs lacked room, unless it is too soon after a try that created no log."""
        if self._partitions.is_behind:
            return  # the last try may not be over
        count = self._partitions.lacking_room_count
        if count < self._tried_count or not count:
            self._tried_count = self._looks_between_tries = self._looks_left = 0
        if self._looks_left:
            self._looks_left -= 1
            return
        lacking = self._partitions.lacking_room()
        if lacking is None:
            return
        self._tried_count = count
        self._looks_left = self._looks_between_tries
        self._looks_between_tries = min(2 * self._looks_between_tries + 1, MAX_LOOKS_BETWEEN_TRIES)
        logger.warning("There is room again: creating the logs that could not be created")
        self._apply_again(lacking, self._partitions.newest_image)

    def _assign_place(self, partition: "HostedPartition") -> None:
        log, key = partition.log, (partition.topic_id, partition.topic_partition.partition)
        topic = self._partitions.newest_image.topics.by_id.get(key[0])
        registration = topic.partitions.get(key[1]) if topic is not None else None
        node_id = self._partitions.node_id
        if log is None or log.is_offline or registration is None or node_id not in registration.replicas:
            self._given_away.discard(key)
            self._accepted.pop(key, None)
            return
        assigned, place = self._assigned(key, registration), self.place_of(log, registration, key[0])
        if self._assignments.is_pending(*key) or self._is_moving_to(assigned, partition):
            return
        if place is not None and (place != assigned or self._is_to_be_elected(key, registration)):
            self._assignments.assign(self._recorded(partition, place))
        elif place != DIRECTORY_LOST and key not in self._accepted:
            self._given_away.discard(key)

    def _assigned(self, key: "tuple[Uuid, int]", registration: "PartitionRegistration") -> "Uuid":
        """Return the replica's directory as the controller has it, which may be ahead of the image."""
        directory = registration.directory_of(self._partitions.node_id)
        accepted = self._accepted.get(key, directory)
        if accepted == directory:
            self._accepted.pop(key, None)
        return accepted

    def _on_accepted(self, partition: "HostedPartition", place: "Uuid", leader_epoch: int) -> None:
        """Record a replica's place, and have it resign if that is none. leader_epoch: of the time when it was sent."""
        self._accepted[partition.topic_id, partition.topic_partition.partition] = place
        if place != DIRECTORY_LOST:
            return
        partition.leave_isr(leader_epoch)  # so that its fetcher tells the leader not to wait for it
        if partition.resign(leader_epoch):
            logger.info("Resigned as the leader of %s: its directory is full", partition.topic_partition)
            self._replica_manager.complete_waiting(partition)
            self._on_resigned(partition)

    def _is_moving_to(self, directory: "Uuid", partition: "HostedPartition") -> bool:
        """Whether the directory is reported already of a replica that moves there (LogDirMover)."""
        manager = self._replica_manager.log_manager
        future = manager.future_logs.get(partition.topic_partition)
        return future is not None and manager.directory_of(future).directory_id == directory

    def _is_to_be_elected(self, key: "tuple[Uuid, int]", registration: "PartitionRegistration") -> bool:
        """Whether a replica that was taken back is the only one: its leader failed, or left, at the same time.

        The controller elects it when its directory, which is known by now, is reported once more.
        """
        may_lead = self._partitions.node_id in (*registration.isr, *registration.elr)
        return key in self._given_away and registration.leader == NO_LEADER and may_lead
