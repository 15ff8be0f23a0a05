"""A shard of KIP-848 groups without a broker: decisions are encoded, kept as a log, decoded and replayed at once."""

from collections.abc import Mapping, Set
from dataclasses import replace
from typing import Any

from kafkapy.config.group import GroupCoordinatorConfig
from kafkapy.config.share import ShareConfig
from kafkapy.errors import ApiError
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.subscriptions import ResolvedRegex, TopicMatches, match_topics
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.group.records import CoordinatorRecord, decode_record, encode_record
from kafkapy.group.settings import GroupSettings
from kafkapy.group.shard import GroupShard
from kafkapy.machine import end_of
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage, Provenance, TopicImage, TopicsImage
from kafkapy.metadata.persistent import PersistentMap
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.types import ONE_UUID, Uuid
from tests.support.chance import SeededRandom

CLIENT = Client("client", "/127.0.0.1")
WALL_START_MS = 1_700_000_000_000
LogEntry = tuple[bytes | None, bytes | None]


def topic_id(name: str) -> Uuid:
    return name.encode().ljust(16, b"\0")


def image_of(offset: int = 1, **partition_counts: int) -> MetadataImage:
    """Return an image with these topics; a topic's id is made of its name."""
    return image_with({name: (topic_id(name), count) for name, count in partition_counts.items()}, offset)


def image_with(topics: Mapping[str, tuple[Uuid, int]], offset: int = 1) -> MetadataImage:
    record = PartitionRecord(replicas=[1], isr=[1], leader=1, directories=[ONE_UUID])
    partition = PartitionRegistration.from_record(record)
    images = [
        TopicImage(name, identity, dict.fromkeys(range(count), partition)) for name, (identity, count) in topics.items()
    ]
    by_name = PersistentMap({image.name: image for image in images})
    by_id = PersistentMap({image.topic_id: image for image in images})
    return replace(EMPTY_IMAGE, provenance=Provenance(offset, 1, 0), topics=TopicsImage(by_name, by_id))


class GroupWorld:
    """One shard, its log, its clock."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, *, seed: int = 0, **config: Any) -> None:
        self.config = replace(GroupCoordinatorConfig(), **{"group_consumer_assignment_interval_ms": 0, **config})
        self.share_config = ShareConfig()
        self.group_configs: dict[str, dict[str, str]] = {}
        self.image = image
        self.now_ms = 1_000
        self.log: list[LogEntry] = []
        self.random = SeededRandom(seed)
        self.restart()

    def restart(self, *, wall_ahead_ms: int = 0) -> None:
        """Fail over: a fresh shard that knows what the log says and nothing else. Its wall clock may be wrong."""
        settings = GroupSettings(
            lambda: self.config, lambda group_id: self.group_configs.get(group_id, {}), lambda: self.share_config
        )
        self.shard = GroupShard(
            settings,
            metadata=lambda: self.image,
            random=self.random,
            wall_ms=lambda: WALL_START_MS + self.now_ms + wall_ahead_ms,
            now_ms=lambda: self.now_ms,
        )
        self.groups, self.consumer = self.shard.groups, self.shard.consumer
        for offset, entry in enumerate(self.log):
            self._replay(entry, offset)
        self.shard.on_loaded(self.now_ms)

    def load(self, *records: CoordinatorRecord) -> None:
        """Fail over to a log with these records at its end, as another broker may have written them."""
        for record in records:
            _, key, value, _ = encode_record(record, WALL_START_MS + self.now_ms)
            self.log.append((key, value))
        self.restart()

    def group(self, group_id: str = "g") -> ConsumerGroup:
        found = self.groups[group_id]
        assert isinstance(found, ConsumerGroup)
        return found

    def commit(self, decision: GroupDecision) -> list[CoordinatorRecord]:
        for record in decision.records:
            _, key, value, _ = encode_record(record, WALL_START_MS + self.now_ms)
            self._replay((key, value), len(self.log))
            self.log.append((key, value))
        return decision.records

    def pass_time(self, duration_ms: int) -> list[CoordinatorRecord]:
        """Let time pass and do what is due at its end; return what that wrote."""
        self.now_ms += duration_ms
        written: list[CoordinatorRecord] = []
        for group in list(self.groups.values()):
            deadline_ms = group.deadline_ms()
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                written += self.commit(self.shard.on_time(group.group_id, self.now_ms))
        return written

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        decision = self.consumer.heartbeat(request, version, CLIENT, self.now_ms)
        self.written = self.commit(decision)
        if decision.due_regexes:
            matches = resolve(decision.due_regexes, self.image, WALL_START_MS + self.now_ms)
            self.written = self.written + self.commit(self.consumer.resolve_regexes(request.group_id, matches))
        assert isinstance(decision.response, ConsumerGroupHeartbeatResponse)
        return decision.response

    def _replay(self, entry: LogEntry, offset: int) -> None:
        record = decode_record(*entry)
        assert record is not None
        self.shard.replay(record, offset)


def resolve(regexes: Set[str], image: MetadataImage, wall_ms: int) -> dict[str, ResolvedRegex]:
    """Match expressions with all topics, as RegexMatching does in turns."""

    def matched(regex: str) -> Set[str]:
        return end_of(match_topics(regex, frozenset(image.topics.by_name), TopicMatches())).topics

    version = image.provenance.last_offset
    return {regex: ResolvedRegex(frozenset(matched(regex)), version, wall_ms) for regex in sorted(regexes)}


class FakeConsumer:
    """A member as a client keeps it: revokes when it is told to, reports what it owns, starts over when fenced."""

    def __init__(self, world: GroupWorld, member_id: str, *topics: str, **fields: Any) -> None:
        self.world = world
        self.member_id = member_id
        self.topics = list(topics)
        self.fields = fields
        self.epoch = 0
        self.owned: dict[Uuid, set[int]] = {}
        self.reported: dict[Uuid, set[int]] | None = None
        self.last_heard_ms = 0

    def request(self, **fields: Any) -> ConsumerGroupHeartbeatRequest:
        return ConsumerGroupHeartbeatRequest(
            **{
                "group_id": "g",
                "member_id": self.member_id,
                "member_epoch": self.epoch,
                "instance_id": self.fields.get("instance_id"),
                **fields,
            }
        )

    def join(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Join, or join again, with nothing owned."""
        self.epoch, self.owned, self.reported = 0, {}, None
        return self._exchange(
            self.request(
                **{
                    "rebalance_timeout_ms": 60_000,
                    "subscribed_topic_names": self.topics,
                    "topic_partitions": [],
                    **self.fields,
                    **fields,
                }
            )
        )

    def beat(self, **fields: Any) -> ConsumerGroupHeartbeatResponse:
        """Heartbeat as the Java client does: what it owns is told when it has changed."""
        if self.epoch <= 0:
            return self.join()
        if self.reported != self.owned:
            fields = {"topic_partitions": self.report(), **fields}
            self.reported = {identity: set(partitions) for identity, partitions in self.owned.items()}
        return self._exchange(self.request(**fields))

    def report(self) -> list[TopicPartitions]:
        return [TopicPartitions(identity, partitions=sorted(partitions)) for identity, partitions in self.owned.items()]

    def leave(self, epoch: int = -1) -> ConsumerGroupHeartbeatResponse:
        response = self.world.send(self.request(member_epoch=epoch))
        self.epoch, self.owned, self.reported = 0, {}, None
        return response

    def partitions(self) -> list[tuple[str, int]]:
        """Return what the member owns, by name."""
        return sorted(
            (identity.rstrip(b"\0").decode(), partition)
            for identity, partitions in self.owned.items()
            for partition in partitions
        )

    def _exchange(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response = self.world.send(request)
        self.accept(response)
        return response

    def accept(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.last_heard_ms = self.world.now_ms
        self.epoch = response.member_epoch
        if response.assignment is not None:
            self.owned = {topic.topic_id: set(topic.partitions) for topic in response.assignment.topic_partitions}


def reconcile(*consumers: FakeConsumer, rounds: int = 6) -> None:
    """Let everyone heartbeat in turn until all must be where they belong."""
    for _ in range(rounds):
        for consumer in consumers:
            consumer.beat()


def error_of(call: Any, *arguments: Any, **fields: Any) -> tuple[int, str | None]:
    """Return the code and message that a call is refused with."""
    try:
        call(*arguments, **fields)
    except ApiError as error:
        return int(error.code), error.message
    raise AssertionError("it was not refused")


def names_of(records: list[Any]) -> list[str]:
    """Return the records' types, tombstones with a minus before."""
    return [
        ("" if record.value is not None else "-") + record.key.NAME.removeprefix("ConsumerGroup").removesuffix("Key")
        for record in records
    ]


def settled_pair(world: GroupWorld) -> tuple[FakeConsumer, FakeConsumer]:
    """Return members "a" and "b", who have divided the topic foo between them."""
    first, second = FakeConsumer(world, "a", "foo"), FakeConsumer(world, "b", "foo")
    first.join()
    second.join()
    reconcile(first, second)
    return first, second
