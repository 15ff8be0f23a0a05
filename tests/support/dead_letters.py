"""Share partitions of hosted brokers with dead letters: what is written is read off the topic's log."""

from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.metadata.image import RESOURCE_GROUP
from kafkapy.metrics.shares import ShareCounts
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult, CreateTopicsResponse
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.runtime.share.dead_letters import DeadLetters
from kafkapy.runtime.share.share_partitions import SharePartitions
from kafkapy.security.authorizer import AllowAll
from kafkapy.server.dead_letters import new_dead_letters
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.loop import SimLoop
from tests.support.hosting import config_records, topic_id
from tests.support.metadata_services import Deny
from tests.support.share_partition_hosting import Shares, share_partitions_of

DEAD = "dlq.dead"
ENABLED = {"errors.deadletterqueue.group.enable": "true"}
NAME = "errors.deadletterqueue.topic.name"


class TopicMaker:
    """The active controller, as dead letters ask it. `responses`: codes of the next creations, before they work.

    create: makes the topic of this name with these configs.
    """

    def __init__(self, create: Callable[[str, Mapping[str, str]], Any]) -> None:
        self.create = create
        self.responses: list[ErrorCode] = []
        self.requests: list[Any] = []
        self.api_versions = None

    async def send_request(self, request: Any, decide: Any) -> CreateTopicsResponse:
        self.requests.append(request)
        code = self.responses.pop(0) if self.responses else ErrorCode.NONE
        if code is ErrorCode.NOT_CONTROLLER:
            raise ApiError(code)
        (topic,) = request.topics
        if code is ErrorCode.NONE:
            self.create(topic.name, {each.name: each.value for each in topic.configs})
        return CreateTopicsResponse(topics=[CreatableTopicResult(topic.name, error_code=code)])


def no_peer(host: str, port: int) -> Any:
    raise AssertionError(f"a broker alone asks {host}:{port}")


def dead_letters_of(
    node: Any,
    services: Any,
    new_peer: Callable[[str, int], Any] = no_peer,
    counts: ShareCounts | None = None,
    *,
    has_authorizer: bool = False,
) -> DeadLetters:
    """Return what copies the dead letters of a hosted broker, as the server puts it together."""
    services.dynamic_config = SimpleNamespace(static=node.config, current=node.config)
    services.authorizer = Deny() if has_authorizer else AllowAll()
    return new_dead_letters(services, new_peer, counts)


class LetterShares(Shares):
    """A broker alone whose group `g` has dead letters, in a topic of two partitions unless it is to be missing."""

    def __init__(
        self, loop: SimLoop, *, properties: Mapping[str, Any] | None = None, has_topic: bool = True, **own: str
    ) -> None:
        """own: keys of the group, with underscores for dots."""
        super().__init__(loop, properties=properties, **{NAME.replace(".", "_"): DEAD, **own})
        self.counts = ShareCounts(lambda: 0)
        self.maker = TopicMaker(lambda name, configs: self.hosting.create_topic(name, 2, configs=configs))
        self.services.active_controller = self.maker
        if has_topic:
            self.maker.create(DEAD, ENABLED)
        self.configure(**self.own)
        self.partitions = self.new_partitions()

    def new_partitions(self) -> SharePartitions:
        """Return share partitions as after a start of the broker, with the same persisted states."""
        letters = dead_letters_of(self.hosting, self.services, counts=self.counts)
        return share_partitions_of(self.hosting, lambda: self.persister, self.own, dead_letters=letters)

    def configure(self, **own: str) -> None:
        """Set keys of the group, with dots."""
        self.own.update(own)
        self.hosting.commit(*config_records(RESOURCE_GROUP, "g", own))

    def configure_topic(self, **configs: str) -> None:
        self.hosting.alter_configs(DEAD, configs)

    def elect(self, leader_id: int) -> None:
        """Let the first partition of the dead-letter topic have this leader, -1 for none."""
        change = PartitionChangeRecord(partition_id=0, topic_id=topic_id(DEAD), leader=leader_id)
        self.hosting.commit(change)

    def letters(self, partition: int = 0) -> list[Record]:
        return letters_in(self.hosting, partition)

    def letter_offsets(self) -> list[int]:
        return sorted(offset_of(each) for each in self.letters())


def letters_in(node: Any, partition: int = 0, topic: str = DEAD) -> list[Record]:
    """Return the records of a dead-letter topic's partition."""
    return [record for batch in batches_in(node, partition, topic) for record in batch.records()]


def batches_in(node: Any, partition: int = 0, topic: str = DEAD) -> list[Any]:
    hosted = node.manager.partitions.find(topic, partition)
    assert hosted is not None
    assert hosted.log is not None
    region = hosted.log.read(hosted.log.log_start_offset, 1 << 26, isolation=FetchIsolation.LOG_END).region
    if region is None:
        return []
    data = region.read()
    region.release()
    return list(batches(data))


def offset_of(letter: Record) -> int:
    """Return the offset that a dead letter stands for."""
    value = dict(letter.headers)["__dlq.errors.offset"]
    assert value is not None
    return int(value)
