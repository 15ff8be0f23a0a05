"""What must hold in a cluster, by what its clients were told and by a look into all nodes.

Names of the invariants: reliability, 1.4.

    I1   an acknowledged record is at its offset in the end, and whoever reads there finds it
    I2   an offset that was committed never holds two values, on no replica and at no time
    I3   high watermarks, last stable and log start offsets do not go back within a leader epoch of a process
    I4   records of an idempotent producer are there once and in order
    I6   a leader epoch has one leader
    I7   what is acknowledged is in min.insync.replicas logs; the ISR is of replicas
    I8   logs are the same bytes in the end
    I9   what a group has committed does not go back; a partition has one owner in a generation; earlier ones are fenced
    I10  images of the same offset are equal, and equal to the replay of the metadata log
    I11  what was refused for certain never appears
    I13  received requests are within their bound and accounted for; nothing of clients that are gone is kept
         the controller's ISR is within the leader's maximal ISR; who is in it has all that is committed
         no broker takes the log of a replica that it has for a stray one
"""

import contextlib
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.storage.file_names import STRAY_DIRECTORY_SUFFIX, parse_partition_directory
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.types import METADATA_PARTITION, TopicPartition
from tests.simulator.cluster_memory import held_at_rest, unbounded
from tests.simulator.cluster_world import LOG_DIR, ClusterWorld, Computer
from tests.simulator.metadata_replay import replayed_image
from tests.simulator.replicas import content, stored

MIN_ISR: Final = 2


class ViolationError(AssertionError):
    """An invariant does not hold."""


class ClusterChecker:
    def __init__(self, world: ClusterWorld, moved_topics: Collection[str] = ()) -> None:
        """moved_topics: their replicas move while brokers are down, who then find logs that are no longer theirs."""
        self._world = world
        self._moved_topics = moved_topics
        self.acknowledged: dict[TopicPartition, dict[int, bytes]] = {}
        self._seen: dict[TopicPartition, dict[int, bytes]] = {}
        self._refused: dict[TopicPartition, set[bytes]] = {}
        self._order: dict[tuple[TopicPartition, str], list[bytes]] = {}
        self._producer_ids: dict[int, str] = {}
        self._leaders: dict[tuple[TopicPartition, int], int] = {}
        self._offsets: dict[tuple[TopicPartition, int, int, int], tuple[int, int, int]] = {}
        self._read_to: dict[tuple[TopicPartition, int, int, int], int] = {}
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._newest_generations: dict[str, int] = {}
        self._checked_images: dict[int, MetadataImage] = {}

    # -- what clients tell ----------------------------------------------------------------------------------------

    def acknowledge(self, topic: str, partition: int, base_offset: int, values: Iterable[bytes]) -> None:
        known = self.acknowledged.setdefault(TopicPartition(topic, partition), {})
        for offset, value in enumerate(values, base_offset):
            if known.setdefault(offset, value) != value:
                raise ViolationError(
                    f"I2: {offset} of {topic}-{partition} was acknowledged for {known[offset]!r}, {value!r}"
                )
            self.see(topic, partition, offset, value)

    def see(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        """A record was read, or acknowledged."""
        known = self._seen.setdefault(TopicPartition(topic, partition), {})
        if known.setdefault(offset, value) != value:
            raise ViolationError(f"I2: offset {offset} of {topic}-{partition} holds {known[offset]!r} and {value!r}")

    def refuse(self, topic: str, partition: int, value: bytes) -> None:
        self._refused.setdefault(TopicPartition(topic, partition), set()).add(value)

    def note_order(self, topic: str, partition: int, producer: str, values: Iterable[bytes]) -> None:
        self._order.setdefault((TopicPartition(topic, partition), producer), []).extend(values)

    def note_producer_id(self, producer_id: int, name: str) -> None:
        if self._producer_ids.setdefault(producer_id, name) != name:
            raise ViolationError(
                f"the producer id {producer_id} was given to {self._producer_ids[producer_id]}, {name}"
            )

    def own(self, group_id: str, generation: int, member_id: str, partitions: Iterable[TopicPartition]) -> None:
        """A member of a classic group was answered what it is assigned."""
        for partition in partitions:
            owner = self._owners.setdefault((group_id, generation, partition), member_id)
            if owner != member_id:
                raise ViolationError(
                    f"I9, one owner: {owner} and {member_id} own {partition} in generation {generation} of {group_id}"
                )
        self._newest_generations[group_id] = max(generation, self.newest_generation(group_id))

    def newest_generation(self, group_id: str) -> int:
        """Return the latest generation in which a member was assigned something, -1 if there is none."""
        return self._newest_generations.get(group_id, -1)

    def commit_of(self, group_id: str, generation: int, newest_generation: int) -> None:
        """An offset was committed of a generation. newest_generation: the latest one when it was sent."""
        if generation < newest_generation:
            raise ViolationError(
                f"I9, fenced: generation {generation} of {group_id} committed an offset after {newest_generation} began"
            )

    # -- at any time ----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Check what must hold at any time; cheap enough to be asked for often."""
        self._world.check()
        for computer in self._world.computers.values():
            image = computer.image
            if image is not None and self._checked_images.get(computer.node_id) is not image:
                self._checked_images[computer.node_id] = image
                self._check_image(image)
            if computer.is_serving:
                self._check_memory(computer, unbounded(computer))
        registrations = self._world.registrations()
        for computer in self._world.brokers:
            with computer.disk.undisturbed():
                for partition in computer.partitions():
                    if partition.is_leader and partition.log is not None:
                        self._check_leader(computer, partition, registrations)

    def _check_memory(self, computer: Computer, found: Iterable[str]) -> None:
        for text in found:
            raise ViolationError(f"I13: node {computer.node_id}: {text}")

    def _check_image(self, image: MetadataImage) -> None:
        """One leader an epoch, ISR of replicas: in each image that any node has."""
        for topic in image.topics.by_name.values():
            for number, registration in topic.partitions.items():
                partition = TopicPartition(topic.name, number)
                if not set(registration.isr) <= set(registration.replicas):
                    raise ViolationError(
                        f"I7: ISR {registration.isr} of {partition} is not within {registration.replicas}"
                    )
                if registration.leader >= 0:
                    self._note_leader(partition, registration.leader_epoch, registration.leader)
                    if registration.leader not in registration.isr:
                        raise ViolationError(
                            f"I6: {partition} is led by {registration.leader}, not in {registration.isr}"
                        )

    def _note_leader(self, partition: TopicPartition, leader_epoch: int, leader_id: int) -> None:
        other = self._leaders.setdefault((partition, leader_epoch), leader_id)
        if other != leader_id:
            raise ViolationError(f"I6: {partition} is led by {other} and {leader_id} in epoch {leader_epoch}")

    def _check_leader(
        self, computer: Computer, partition: Any, registrations: Mapping[TopicPartition, PartitionRegistration]
    ) -> None:
        log = partition.log
        where = log.topic_partition
        self._note_leader(where, partition.leader_epoch, computer.node_id)
        life = (where, computer.node_id, computer.life_count, partition.leader_epoch)
        offsets = log.high_watermark, log.last_stable_offset, log.log_start_offset
        before = self._offsets.get(life, offsets)
        if any(now < then for now, then in zip(offsets, before, strict=True)):
            raise ViolationError(f"I3: high watermark, last stable or log start offset of {life}: {before}, {offsets}")
        self._offsets[life] = offsets
        registration = registrations.get(where)
        if registration is not None and registration.leader_epoch == partition.leader_epoch:
            self._check_isr(where, registration, partition)
        if not where.topic.startswith("__"):
            position = self._read_to.get(life, 0)
            if position < log.high_watermark:
                self._read_to[life] = log.high_watermark
                for offset, _, value in stored(log, position, isolation=FetchIsolation.HIGH_WATERMARK):
                    self.see(where.topic, where.partition, offset, value)

    def _check_isr(self, where: TopicPartition, registration: PartitionRegistration, partition: Any) -> None:
        pending = partition.pending_isr.isr if partition.pending_isr is not None else ()
        is_current = partition.partition_epoch == registration.partition_epoch or partition.pending_isr is not None
        if is_current and not set(registration.isr) <= {*partition.isr, *pending}:
            raise ViolationError(
                f"the controller's ISR of {where} is {registration.isr}, the leader's {partition.isr} and {pending}"
            )
        leader_epoch, high_watermark = partition.leader_epoch, partition.log.high_watermark
        for node_id in registration.isr:
            replica = self._world.computers[node_id].partition(where)
            if replica is None or replica.log is None or replica.leader_epoch < leader_epoch:
                continue
            if replica.log.log_end_offset < high_watermark:
                raise ViolationError(
                    f"node {node_id} is in the ISR of {where} with {replica.log.log_end_offset} of "
                    f"{partition.log.high_watermark}"
                )

    # -- in the end -----------------------------------------------------------------------------------------------

    def has_settled(self) -> bool:
        """Whether all nodes have the same metadata and all replicas the same end and high watermark."""
        images = [computer.image for computer in self._world.computers.values()]
        if any(image is None for image in images) or len({image.provenance for image in images if image}) != 1:
            return False
        for partition, registration in self._world.registrations().items():
            replicas = [self._world.computers[node_id].partition(partition) for node_id in registration.replicas]
            if any(replica is None or replica.log is None for replica in replicas):
                return False
            ends = {(each.log.log_end_offset, each.log.high_watermark) for each in replicas if each and each.log}
            if len(ends) != 1 or len(set(ends.pop())) != 1:
                return False
        return True

    def finish(self) -> None:
        """Check the end, when all is healed and settled and nobody writes any more."""
        self.look()
        self._check_images()
        self._check_strays()
        for computer in self._world.computers.values():
            self._check_memory(computer, held_at_rest(computer))
        with contextlib.ExitStack() as looking:
            for computer in self._world.computers.values():
                looking.enter_context(computer.disk.undisturbed())
            self._check_logs()

    def _check_logs(self) -> None:
        """Check that replicas hold the same, and in it what was acknowledged."""
        for partition, registration in self._world.registrations().items():
            logs = [self._world.computers[node_id].partition(partition).log for node_id in registration.replicas]  # type: ignore[union-attr]
            if len({tail(log) for log in logs}) != 1:
                raise ViolationError(f"I8: the replicas of {partition} differ")
            if not partition.topic.startswith("__"):
                self._check_records(partition, {offset: value for offset, _, value in stored(logs[0])})

    def _check_strays(self) -> None:
        for computer in self._world.brokers:
            for name in computer.disk.list_directory(LOG_DIR):
                found = parse_partition_directory(name)
                if (
                    found is not None
                    and found[1] == STRAY_DIRECTORY_SUFFIX
                    and found[0].topic not in self._moved_topics
                ):
                    raise ViolationError(f"node {computer.node_id} took {name} for a stray log")

    def _check_records(self, partition: TopicPartition, final: dict[int, bytes]) -> None:
        for name, expected in (("acknowledged", self.acknowledged), ("read", self._seen)):
            for offset, value in expected.get(partition, {}).items():
                if final.get(offset) != value:
                    raise ViolationError(
                        f"I1: {value!r} was {name} at {offset} of {partition}, where {final.get(offset)!r} is"
                    )
        values = set(final.values())
        if appeared := values & self._refused.get(partition, set()):
            raise ViolationError(f"I11: {sorted(appeared)[0]!r} was refused, and is there")
        for (where, producer), acknowledged in self._order.items():
            if where == partition:
                self._check_order(producer, acknowledged, final)

    def _check_order(self, producer: str, acknowledged: list[bytes], final: dict[int, bytes]) -> None:
        prefix = producer.encode() + b" "
        numbers = [int(value[len(prefix) :]) for _, value in sorted(final.items()) if value.startswith(prefix)]
        if numbers != list(range(len(numbers))):
            at = next(index for index, number in enumerate(numbers) if index != number)
            raise ViolationError(f"I4: {producer} wrote 0, 1, 2, ...; there is {numbers[max(0, at - 3) : at + 3]}")
        if len(numbers) < len(acknowledged):
            raise ViolationError(
                f"I1: {producer} was acknowledged {len(acknowledged)} records, {len(numbers)} are there"
            )

    def _check_images(self) -> None:
        images = {computer.node_id: computer.image for computer in self._world.computers.values()}
        first_id, first = next(iter(images.items()))
        for node_id, image in images.items():
            if image != first:
                raise ViolationError(f"I10: nodes {first_id} and {node_id} have different images")
        for computer in self._world.computers.values():
            assert computer.image is not None
            directory = f"{LOG_DIR}/{METADATA_PARTITION}"
            replayed = replayed_image(computer.disk, directory, computer.image.provenance.last_offset)
            if replayed != computer.image:
                raise ViolationError(f"I10: the image of node {computer.node_id} is not what its log says")


def tail(log: Any) -> bytes:
    """Return the log's bytes; what retention has left of the first segments may differ."""
    return content(log)
