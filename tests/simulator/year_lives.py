"""What a year brings to a cluster, in a life of seconds: the faults of cluster_lives.py, and what goes on beside them.

Segments roll, retention and DeleteRecords take the oldest records, the coordinators' topic is compacted; consumers read
from followers of their own rack; brokers have two directories, between which partitions move; min.insync.replicas is 1;
five nodes; clocks that run ahead; voters that leave and join; a topic whose elections may be unclean. A seed has some
of it.

What may be lost is told apart: below a log's start, if DeleteRecords was asked for that, or as much is left as
retention leaves; and all of the topic `lossy`, whose replicas only have to agree in the end.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from kafkapy.protocol.messages.alter_replica_log_dirs_request import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kafkapy.protocol.messages.delete_records_request import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.list_offsets_request import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kafkapy.protocol.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from kafkapy.record.batches import batches
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.types import TopicPartition
from tests.simulator import cluster_plan
from tests.simulator.cluster_admin import CALL_MS, DONE_OR_EXISTS
from tests.simulator.cluster_checker import ClusterChecker, ViolationError
from tests.simulator.cluster_clients import Client, Consumer, LostError, Place, produce_request
from tests.simulator.cluster_lives import TOPIC, ClusterLives, live
from tests.simulator.cluster_plan import Plan, plan_of
from tests.simulator.cluster_world import CLUSTER_ID, CONTROLLER_PORT, LOG_DIR, ClusterWorld, combined, rack_of
from tests.simulator.loop import START_WALL_MS
from tests.simulator.process_lives import ProcessLoop
from tests.support.batches import build_batch

FEATURES: Final = ("retention", "trims", "followers", "directories", "one", "five", "clocks", "voters", "unclean")
LOSSY: Final = "lossy"
SECOND_DIR: Final = "/more"
SEGMENT_BYTES: Final = 400
RETENTION_BYTES: Final = 900
READ_BYTES: Final = 1 << 20
OFFSETS_CONFIGS: Final = (("internal.segment.bytes", "500"), ("min.cleanable.dirty.ratio", "0.01"))
AHEAD_PER_S_MS: Final = (20, 500, 3000)
EARLIEST: Final = -2
BY_RACK: Final = {"replica_selector_class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
OFTEN: Final = {
    "log_retention_check_interval_ms": "400",
    "log_initial_task_delay_ms": "200",
    "log_segment_delete_delay_ms": "300",
    "log_cleaner_backoff_ms": "300",
    "log_cleaner_min_cleanable_ratio": "0.1",
}


def year_of(seed: int) -> tuple[Plan, frozenset[str]]:
    """Return a seed's plan, and what of FEATURES it has."""
    chance = random.Random(f"year {seed}")
    features = frozenset(chance.sample(FEATURES, chance.choice((2, 3, 4))))
    plan = plan_of(cluster_plan.SHORT_SEEDS + 1 + seed * 3 % 7919)
    faults = [line for line in (plan.faults if seed % 2 else plan_of(seed).faults) if line]
    own = [
        *(["move_log", "move_log"] if "directories" in features else []),
        *(["change_voters"] if "voters" in features else []),
        *(["run_ahead"] if "clocks" in features else []),
    ]
    if own:
        faults.append(tuple(own))
    configs = [("internal.segment.bytes", str(SEGMENT_BYTES))]
    if "retention" in features:
        configs.append(("retention.bytes", str(RETENTION_BYTES)))
    roles = {**combined(3), 4: "broker", 5: "broker"} if "five" in features else plan.roles
    if "five" in features and chance.random() < 0.5:
        roles = combined(5)
    return (
        replace(
            plan,
            roles=roles,
            has_transactions=False,
            clients=("group-0", chance.choice(("idempotent-1", "moved", "members"))),
            faults=tuple(faults),
            min_isr=1 if "one" in features else 2,
            topic_configs=tuple(configs),
            offsets_configs=OFFSETS_CONFIGS,
            loses_coordinator=False,
        ),
        features,
    )


class YearLives(ClusterLives):
    """One run of a seed."""

    def __init__(self, loop: ProcessLoop, seed: int) -> None:
        plan, self.features = year_of(seed)
        properties = {
            **OFTEN,
            **(BY_RACK if "followers" in self.features else {}),
            **({"log_dirs": f"{LOG_DIR},{SECOND_DIR}"} if "directories" in self.features else {}),
        }
        super().__init__(loop, seed, plan, **properties)
        self.world.note(", ".join(sorted(self.features)))
        self._removed: set[int] = set()
        """Controllers that are no voters."""
        self.effects: Counter[str] = Counter()
        """What took place, and how often."""

    def _new_checker(self) -> "YearChecker":
        return YearChecker(self.world, self._moved, "retention" in self.features)

    def _add_clients(self) -> None:
        super()._add_clients()
        world, checker = self.world, self.checker
        assert isinstance(checker, YearChecker)
        self.clients = [each for each in self.clients if not isinstance(each, Consumer)]
        rack = rack_of(self._chance.choice(self._brokers)) if "followers" in self.features else ""
        self.clients.append(Reader(world, checker, rack, 5))
        if "trims" in self.features:
            self.clients.append(Trimmer(world, checker, "trimmer", 30))
        if "unclean" in self.features:
            self.clients.append(LossyProducer(world, checker, "lossy", 31))

    async def run(self) -> None:
        await super().run()
        for computer in self.world.brokers:
            for partition in computer.partitions():
                self._note_effects(partition.log)
        assert isinstance(self.checker, YearChecker)
        self.effects["unclean elections"] = self.checker.unclean_elections
        self.effects["records read from followers"] += sum(
            each.follower_reads for each in self.clients if isinstance(each, Reader)
        )
        self.world.note(f"effects: {dict(sorted(self.effects.items()))}")

    def _note_effects(self, log: Any) -> None:
        """Note what has become of a replica's log."""
        topic = log.topic_partition.topic
        self.effects["rolled segments"] += len(log.segments) - 1
        if topic == TOPIC:
            self.effects["starts that moved"] += log.log_start_offset > 0
        if topic == "__consumer_offsets":
            self.effects["compacted records"] += log.log_end_offset - sum(1 for _ in records(log, 0))
        self.effects["replicas in the second directory"] += log.directory.startswith(f"{SECOND_DIR}/")

    # -- faults -----------------------------------------------------------------------------------------------------

    async def _run_ahead(self) -> None:
        self._any().clock.ahead_per_s_ms = self._chance.choice(AHEAD_PER_S_MS)

    async def _move_log(self) -> None:
        """Move a replica to one of its broker's directories."""
        computer = self._chance.choice(self.world.brokers)
        names = [(TOPIC, 0), (TOPIC, 1), ("moved", 0), ("__consumer_offsets", 0)]
        name, partition = self._chance.choice(names)
        path = self._chance.choice((LOG_DIR, SECOND_DIR))
        topic = AlterReplicaLogDirTopic(name, partitions=[partition])
        with suppress(LostError):
            response = await self._admin.call(
                computer.node_id, AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path, topics=[topic])]), 2
            )
            code = response.results[0].partitions[0].error_code
            self.world.note(f"{name}-{partition} of node {computer.node_id} to {path}: {code}")
            self.effects["moves between directories"] += not code

    async def _change_voters(self) -> None:
        """Take a voter's vote for a while."""
        node_id = self._chance.choice([each.node_id for each in self.world.computers.values() if each.is_controller])
        if self._removed:
            return
        self._removed.add(node_id)
        computer = self.world.computers[node_id]
        request = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=node_id, voter_directory_id=computer.directory_id
        )
        with suppress(LostError):
            response = await self._admin.call(self._chance.choice(self._brokers), request, 0)
            self.world.note(f"voter {node_id} leaves: {response.error_code}")
            self.effects["voters that left"] += not response.error_code
        await self._for(0.2, 2)
        with suppress(LostError):
            await self._vote_again(node_id)

    async def _vote_again(self, node_id: int) -> None:
        """Make a node a voter, if it is none. Raises LostError."""
        computer = self.world.computers[node_id]
        request = AddRaftVoterRequest(
            cluster_id=CLUSTER_ID,
            timeout_ms=CALL_MS,
            voter_id=node_id,
            voter_directory_id=computer.directory_id,
            listeners=[Listener("CONTROLLER", host=computer.host, port=CONTROLLER_PORT)],
        )
        response = await self._admin.call(self._chance.choice(self._brokers), request, 1)
        self.world.note(f"voter {node_id} joins: {response.error_code}")
        if response.error_code in (ErrorCode.NONE, ErrorCode.DUPLICATE_VOTER):
            self._removed.discard(node_id)

    async def _heal(self, tasks: Any) -> None:
        await super()._heal(tasks)
        await self.world.until(self.world.is_whole, 60, "all is whole")
        while self._removed:
            with suppress(LostError):
                await self._vote_again(min(self._removed))
            await asyncio.sleep(0.1)


class YearChecker(ClusterChecker):
    """Knows what may be gone from the start of a log, and what of compacted and lossy topics."""

    def __init__(self, world: ClusterWorld, moved_topics: Any, has_retention: bool) -> None:
        super().__init__(world, moved_topics)
        self._has_retention = has_retention
        self.deleted_to: dict[TopicPartition, int] = {}
        """The highest offset that DeleteRecords was asked for."""
        self.unclean_elections = 0
        self._lossy: PartitionRegistration | None = None

    def look(self) -> None:
        super().look()
        before, self._lossy = self._lossy, self._world.registrations().get(TopicPartition(LOSSY, 0))
        if before is not None and self._lossy is not None and self._lossy.leader >= 0:
            self.unclean_elections += self._lossy.leader not in before.isr

    def see(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        if topic != LOSSY:
            super().see(topic, partition, offset, value)

    def _check_logs(self) -> None:
        for partition, registration in self._world.registrations().items():
            replicas = [self._world.computers[node_id].partition(partition) for node_id in registration.replicas]
            logs = [each.log for each in replicas if each is not None and each.log is not None]
            if partition.topic.startswith("__"):
                contents: list[Any] = [latest(log) for log in logs]
            else:
                start = max(log.log_start_offset for log in logs)
                contents = [list(records(log, start)) for log in logs]
            if any(content != contents[0] for content in contents):
                raise ViolationError(f"I8: the replicas of {partition} differ: {contents}")
            if not partition.topic.startswith("__") and partition.topic != LOSSY:
                self._check_starts(partition, logs)
                self._check_records(partition, {offset: value for offset, _, value in contents[0]})

    def _check_starts(self, partition: TopicPartition, logs: Sequence[Any]) -> None:
        """Check that nothing is gone that nobody was asked to delete.

        Retention counts the records above the high watermark, too, as Apache Kafka's: a replica that has to truncate
        them afterwards keeps less than retention.bytes. So one replica has to keep as much.
        """
        start = max(log.log_start_offset for log in logs)
        if start <= self.deleted_to.get(partition, 0):
            return
        size_bytes = max(sum(segment.size for segment in log.segments) for log in logs)
        if not self._has_retention or size_bytes < RETENTION_BYTES:
            raise ViolationError(
                f"I1: {partition} starts at {start} with {size_bytes} bytes; deletions were asked to "
                f"{self.deleted_to.get(partition, 0)}"
            )

    def _check_records(self, partition: TopicPartition, final: dict[int, bytes]) -> None:
        start = min(final, default=None)
        for name, expected in (("acknowledged", self.acknowledged), ("read", self._seen)):
            for offset, value in expected.get(partition, {}).items():
                if start is not None and offset >= start and final.get(offset) != value:
                    raise ViolationError(
                        f"I1: {value!r} was {name} at {offset} of {partition}, where {final.get(offset)!r} is"
                    )
        if appeared := set(final.values()) & self._refused.get(partition, set()):
            raise ViolationError(f"I11: {sorted(appeared)[0]!r} was refused, and is there")
        for (where, producer), acknowledged in self._order.items():
            if where == partition:
                self._check_order(producer, acknowledged, final)

    def _check_order(self, producer: str, acknowledged: list[bytes], final: dict[int, bytes]) -> None:
        prefix = producer.encode() + b" "
        numbers = [int(value[len(prefix) :]) for _, value in sorted(final.items()) if value.startswith(prefix)]
        if numbers and numbers != list(range(numbers[0], numbers[0] + len(numbers))):
            raise ViolationError(f"I4: {producer} wrote 0, 1, 2, ...; there is {numbers}")
        if numbers and len(acknowledged) > numbers[-1] + 1:
            raise ViolationError(
                f"I1: {producer} was acknowledged {len(acknowledged)} records, {numbers[-1]} is the last number"
            )


def records(log: Any, start: int) -> Iterator[tuple[int, bytes | None, bytes]]:
    """Yield offset, key and value of a log's records from an offset on."""
    position = start
    while True:
        read = log.read(position, READ_BYTES, isolation=FetchIsolation.LOG_END)
        if read.region is None:
            return
        data = read.region.read()
        read.region.release()
        for each in batches(data):
            if not each.is_control:
                for record in each.records():
                    if record.offset >= start:
                        yield record.offset, record.key and bytes(record.key), bytes(record.value or b"")
            position = each.last_offset + 1


def latest(log: Any) -> Mapping[bytes | None, bytes]:
    """Return the last value of each key, without those that are deleted."""
    found = {key: value for _, key, value in records(log, log.log_start_offset)}
    return {key: value for key, value in found.items() if value}


class Reader(Consumer):
    """Reads from its beginning on what there is, from a replica of its rack if it has one (KIP-392)."""

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, rack: str, number: int) -> None:
        super().__init__(world, checker, "reader", number, TOPIC, 0)
        self._rack = rack
        self._preferred = -1
        self.follower_reads = 0

    async def step(self) -> None:
        place = await self.place(self._topic, self._partition)
        node_id = self._preferred if self._preferred >= 0 else place.leader_id
        try:
            response = await self.connections.call(node_id, self._request(place))
            part = response.responses[0].partitions[0] if response.responses else None
            if part is None or part.error_code:
                await self._recover(place, node_id, response.error_code if part is None else part.error_code)
            elif part.preferred_read_replica >= 0:
                self._preferred = part.preferred_read_replica
            elif part.diverging_epoch.end_offset >= 0 and node_id != place.leader_id:
                self._preferred = -1
            else:
                self.follower_reads += node_id != place.leader_id and bool(part.records)
                self._take(part, place)
        except LostError:
            self._preferred = -1
            self.forget_place(self._topic, self._partition)
            raise
        await asyncio.sleep(self.world.loop.rng.uniform(0, 0.2))

    def _request(self, place: Place) -> FetchRequest:
        requested = FetchPartition(
            self._partition,
            current_leader_epoch=place.leader_epoch,
            fetch_offset=self.position,
            last_fetched_epoch=self._last_epoch,
            partition_max_bytes=1 << 20,
        )
        topics = [FetchTopic(self._topic, topic_id=place.topic_id, partitions=[requested])]
        return FetchRequest(max_wait_ms=300, min_bytes=1, session_epoch=-1, topics=topics, rack_id=self._rack)

    async def _recover(self, place: Place, node_id: int, code: int) -> None:
        """After an error: begin anew at the leader, or at its log's start. Raises LostError, ViolationError.

        A node whose metadata is old takes itself for the leader that it was. A consumer does not believe it, as it has
        read records of a later leader epoch (KIP-320).
        """
        is_old = place.leader_epoch < self._last_epoch
        if code != ErrorCode.OFFSET_OUT_OF_RANGE or node_id != place.leader_id or is_old:
            raise LostError(code)
        requested = ListOffsetsPartition(partition_index=0, current_leader_epoch=place.leader_epoch, timestamp=EARLIEST)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(self._topic, partitions=[requested])])
        response = (await self.connections.call(node_id, request, 8)).topics[0].partitions[0]
        if response.error_code:
            raise LostError(response.error_code)
        if response.offset <= self.position:
            raise ViolationError(f"I1: {self.name} has read to {self.position}; the log starts at {response.offset}")
        self.position, self._last_epoch = response.offset, -1


class Trimmer(Client):
    """Deletes the oldest records of a partition, up to some that were acknowledged."""

    async def step(self) -> None:
        place = await self.place(TOPIC, 0)
        checker, where = self.checker, TopicPartition(TOPIC, 0)
        assert isinstance(checker, YearChecker)
        known = max(checker.acknowledged.get(where, {}), default=0)
        offset = self.world.loop.rng.randrange(max(0, known - 30), known + 1)
        checker.deleted_to[where] = max(offset, checker.deleted_to.get(where, 0))
        topic = DeleteRecordsTopic(name=TOPIC, partitions=[DeleteRecordsPartition(partition_index=0, offset=offset)])
        try:
            response = await self.connections.call(
                place.leader_id, DeleteRecordsRequest(topics=[topic], timeout_ms=1500), 2
            )
        except LostError:
            self.forget_place(TOPIC, 0)
            raise
        part = response.topics[0].partitions[0]
        if part.error_code:
            self.forget_place(TOPIC, 0)
            raise LostError(part.error_code)
        if part.low_watermark < offset:
            raise ViolationError(f"records below {offset} of {where} were deleted, and {part.low_watermark} is there")
        self.progress += 1
        await asyncio.sleep(self.world.loop.rng.uniform(0.2, 0.8))


class LossyProducer(Client):
    """Makes a topic whose elections may be unclean, and writes to it what may be lost."""

    async def step(self) -> None:
        try:
            place = await self.place(LOSSY, 0)
        except LostError:
            await self._create()
            raise
        data = build_batch([(START_WALL_MS + self.world.loop.now_ms(), None, b"%d" % self.progress, ())])
        try:
            response = await self.connections.call(place.leader_id, produce_request(place, LOSSY, 0, data))
        except LostError:
            self.forget_place(LOSSY, 0)
            raise
        if code := response.responses[0].partition_responses[0].error_code:
            self.forget_place(LOSSY, 0)
            raise LostError(code)
        self.progress += 1
        await asyncio.sleep(self.world.loop.rng.uniform(0, 0.2))

    async def _create(self) -> None:
        configs = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        topic = CreatableTopic(
            LOSSY,
            num_partitions=1,
            replication_factor=2,
            configs=[CreatableTopicConfig(key, value=value) for key, value in configs.items()],
        )
        response = await self.connections.send_to_any(CreateTopicsRequest(topics=[topic], timeout_ms=CALL_MS))
        if response.topics[0].error_code not in DONE_OR_EXISTS:
            raise LostError(response.topics[0].error_code)


def live_a_year(seed: int) -> list[str]:
    """Run one seed, as cluster_lives.live does."""
    return live(seed, YearLives)


if __name__ == "__main__":
    import sys

    print("\n".join(live_a_year(int(sys.argv[1]))))
