"""The controller's table of topics and their partitions: creating, growing and deleting them.

new_partitions.py chooses the replicas of new partitions, topic_names.py checks names; partitions.py has the changes of
partitions when brokers change state. Source: KIP-4, KIP-195, KIP-516, KIP-525.
"""

from collections.abc import Callable, Collection, Generator, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.configs import ConfigControl
from kafkapy.metadata.features import FeatureControl
from kafkapy.metadata.image import MetadataImage
from kafkapy.metadata.limits import ChargePartitions, charge_none, check_operation_size
from kafkapy.metadata.new_partitions import NewPartitions
from kafkapy.metadata.partition_indexes import PartitionIndexes
from kafkapy.metadata.registrations import PartitionRegistration
from kafkapy.metadata.topic_names import NameCollisions, invalid_topic_name_reason, prohibited_name_error
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.messages.partition_record import PartitionRecord
from kafkapy.protocol.messages.topic_record import TopicRecord
from kafkapy.seams import Random
from kafkapy.types import Uuid

if TYPE_CHECKING:
    from kafkapy.protocol.messages.clear_elr_record import ClearElrRecord
    from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
    from kafkapy.protocol.messages.create_partitions_response import CreatePartitionsResponse
    from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
    from kafkapy.protocol.messages.create_topics_response import (
        CreatableTopicConfigs,
        CreatableTopicResult,
        CreateTopicsResponse,
    )
    from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord

PARTITIONS_PER_STEP: Final = 500
"""A topic may have 10,000: their records took 43 ms of a controller's loop on a busy machine."""
TOPICS_PER_STEP: Final = 300

DescribedConfigs: TypeAlias = "dict[tuple[tuple[str, str], ...], list[CreatableTopicConfigs]]"
"""The configs in a CreateTopics response, by the configs that the request sets; lists are shared and not modified."""


@dataclass(slots=True)
class Topic:
    """A topic of the controller's table. `partitions` is dense from 0; only replay changes it, by `set_partition`."""

    name: str
    topic_id: Uuid
    partitions: Mapping[int, PartitionRegistration] = field(default_factory=dict)
    is_shared: bool = field(default=False, compare=False)
    """Whether `partitions` belongs to an image (which makes loading fast) and must be copied before a change."""

    def set_partition(self, partition_id: int, partition: PartitionRegistration) -> None:
        if self.is_shared:
            self.partitions, self.is_shared = dict(self.partitions), False
        assert isinstance(self.partitions, dict)
        self.partitions[partition_id] = partition


class TopicControl:
    """Topics and partitions, including uncommitted ones; `decide_*` methods do not change them."""

    def __init__(
        self,
        features: FeatureControl,
        brokers: BrokerControl,
        configs: ConfigControl,
        random: Random,
        *,
        default_partition_count: int = 1,
        default_replication_factor: int = 1,
    ) -> None:
        self._features = features
        self._brokers = brokers
        self._configs = configs
        self._random = random
        self.new_partitions = NewPartitions(
            brokers,
            random,
            default_partition_count=default_partition_count,
            default_replication_factor=default_replication_factor,
        )
        self.by_id: dict[Uuid, Topic] = {}
        self.by_name: dict[str, Topic] = {}
        self._indexes: PartitionIndexes | None = None
        self._collisions = NameCollisions()

    def load(self, image: MetadataImage) -> Iterator[None]:
        """Load the image's topics, in steps."""
        self.by_id, self.by_name, self._collisions = {}, {}, NameCollisions()
        self._indexes = None
        for count, topic in enumerate(image.topics.by_name.values(), 1):
            if count % TOPICS_PER_STEP == 0:
                yield
            self._add(Topic(topic.name, topic.topic_id, topic.partitions, is_shared=True))

    @property
    def indexes(self) -> PartitionIndexes:
        """The partitions that are being reassigned, and those not led by their preferred replica."""
        for _ in self.index():
            pass
        assert self._indexes is not None
        return self._indexes

    @property
    def has_indexes(self) -> bool:
        return self._indexes is not None

    def index(self) -> Iterator[None]:
        """Build the indexes if they do not exist, in steps. Nothing may be replayed between the steps."""
        if self._indexes is None:
            indexes = PartitionIndexes()
            yield from indexes.build((topic.topic_id, topic.partitions) for topic in self.by_id.values())
            self._indexes = indexes

    # -- decisions ------------------------------------------------------------------------------------------------

    def decide_create(
        self,
        request: "CreateTopicsRequest",
        describable: Callable[[str], bool] | None = None,
        charge_partitions: ChargePartitions = charge_none,
    ) -> "Steps[Any, CreateTopicsResponse]":
        """Decide CreateTopics for topics with distinct names; each topic succeeds or fails independently.

        `describable(topic)`: may the client see the configs? None if the response has no place for them.
        """
        from kafkapy.protocol.messages.create_topics_response import CreateTopicsResponse

        self.new_partitions.check_total(request)
        records: list[Any] = []
        results = []
        described: DescribedConfigs = {}
        for topic in request.topics:
            try:
                topic_records, result, configs = yield from self._create(topic, charge_partitions)
                if describable is not None:
                    self._describe(result, configs, described if describable(topic.name) else None)
            except ApiError as error:
                results.append(_failed(topic.name, error))
            else:
                records += topic_records
                results.append(result)
                check_operation_size(len(records))
            yield []
        response = CreateTopicsResponse(topics=results)
        # decided to the end even so, since validate_only asks for the response that the request would get
        return Decision(response, [] if request.validate_only else records, is_atomic=True)

    def decide_delete(
        self, topic_ids: Collection[Uuid], charge_partitions: ChargePartitions = charge_none
    ) -> Decision[Any, dict[Uuid, ApiError | None]]:
        """Decide DeleteTopics; a result of None is success. Unknown ids get UNKNOWN_TOPIC_ID.

        Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR for topics beyond the limit of one operation. Here it is
        POLICY_VIOLATION, because that says what to change.
        """
        results: dict[Uuid, ApiError | None] = {}
        records: list[RemoveTopicRecord] = []
        for topic_id in topic_ids:
            try:
                records.append(self._removal(topic_id, len(records), charge_partitions))
                results[topic_id] = None
            except ApiError as error:
                results[topic_id] = error
        return Decision(results, records, is_atomic=True)

    def decide_create_partitions(
        self, request: "CreatePartitionsRequest", charge_partitions: ChargePartitions = charge_none
    ) -> "Steps[Any, CreatePartitionsResponse]":
        """Decide CreatePartitions for topics with distinct names; each topic succeeds or fails independently.

        Deviation: Apache Kafka answers UNKNOWN_SERVER_ERROR for topics beyond the limit of one operation and all later
        ones, but creates the partitions within the limit. Here they get POLICY_VIOLATION and no partitions, because an
        error is to mean that nothing was done.
        """
        from kafkapy.protocol.messages.create_partitions_response import (
            CreatePartitionsResponse,
            CreatePartitionsTopicResult,
        )

        check_operation_size(len(request.topics))
        records: list[Any] = []
        results = []
        for topic in request.topics:
            result = CreatePartitionsTopicResult(name=topic.name, error_code=ErrorCode.NONE, error_message=None)
            try:
                records += yield from self._grow(topic, len(records), charge_partitions)
            except ApiError as error:
                result.error_code, result.error_message = int(error.code), error.message
            results.append(result)
            yield []
        response = CreatePartitionsResponse(results=results)
        return Decision(response, [] if request.validate_only else records, is_atomic=True)

    # -- replay ---------------------------------------------------------------------------------------------------

    def replay_topic(self, record: TopicRecord) -> None:
        assert record.name not in self.by_name, f"topic {record.name} is created twice"
        self._add(Topic(record.name, record.topic_id))

    def replay_partition(self, record: PartitionRecord) -> None:
        self._set(self._topic(record.topic_id), record.partition_id, PartitionRegistration.from_record(record))

    def replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        partition = topic.partitions.get(record.partition_id)
        assert partition is not None, f"{topic.name}-{record.partition_id} changes but does not exist"
        self._set(topic, record.partition_id, partition.merge(record))

    def replay_remove(self, record: "RemoveTopicRecord") -> None:
        topic = self._topic(record.topic_id)
        assert self.by_name.get(topic.name) is topic, f"{topic.name} is another topic by its name than by its id"
        del self.by_id[topic.topic_id]
        if self._indexes is not None:
            self._indexes.forget(topic.topic_id, topic.partitions)
        del self.by_name[topic.name]
        self._configs.forget_topic(topic.name)
        self._collisions.remove(topic.name)

    def replay_clear_elr(self, record: "ClearElrRecord") -> None:
        topics = [self.by_name[record.topic_name]] if record.topic_name else list(self.by_id.values())
        for topic in topics:
            for partition_id, partition in list(topic.partitions.items()):
                if partition.elr or partition.last_known_elr:
                    change = PartitionChangeRecord(eligible_leader_replicas=[], last_known_elr=[])
                    self._set(topic, partition_id, partition.merge(change))

    # -- creating -------------------------------------------------------------------------------------------------

    def _create(
        self, topic: "CreatableTopic", charge_partitions: ChargePartitions
    ) -> "Generator[list[Any], None, tuple[list[Any], CreatableTopicResult, dict[str, str]]]":
        """Return the topic's records, its result without configs, and the configs that the request sets. In steps."""
        from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult

        self._check_new_name(topic.name)
        configs = _creation_configs(topic)
        config_records = self._configs.records_for_new_topic(topic.name, configs) if configs else []
        partitions = self.new_partitions.of_topic(topic)
        assert max(partitions) == len(partitions) - 1, f"the partitions of {topic.name} would have a gap"
        charge_partitions(len(partitions))
        topic_id = self._random.uuid()
        records = [
            TopicRecord(name=topic.name, topic_id=topic_id),
            *config_records,
            *(yield from _partition_records(topic_id, partitions)),
        ]
        result = CreatableTopicResult(name=topic.name, topic_id=topic_id, error_code=ErrorCode.NONE, error_message=None)
        result.num_partitions = len(partitions)
        result.replication_factor = len(partitions[0].replicas)
        return records, result, configs

    def _describe(
        self, result: "CreatableTopicResult", configs: Mapping[str, str], described: "DescribedConfigs | None"
    ) -> None:
        """Add a topic's effective configs to its result; `described` is None if the client may not see them."""
        if described is not None:
            result.configs = self._effective_configs(configs, described)
        else:
            result.num_partitions = result.replication_factor = -1
            result.topic_config_error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED

    def _check_new_name(self, name: str) -> None:
        reason = invalid_topic_name_reason(name)
        if reason is not None:
            raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        prohibited = prohibited_name_error(name)
        if prohibited is not None:
            raise prohibited
        if name in self.by_name:
            raise ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        colliding = self._collisions.find(name)
        if colliding:
            raise ApiError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {min(colliding)}"
            )

    def _effective_configs(
        self, configs: Mapping[str, str], described: DescribedConfigs
    ) -> "list[CreatableTopicConfigs]":
        """Return the effective configs of a topic; topics of a request with equal configs share one list."""
        alike = tuple(sorted(configs.items()))
        if alike not in described:
            described[alike] = self._describe_configs(configs)
        return described[alike]

    def _describe_configs(self, configs: Mapping[str, str]) -> "list[CreatableTopicConfigs]":
        from kafkapy.protocol.messages.create_topics_response import CreatableTopicConfigs

        effective = sorted(self._configs.effective_topic_configs(configs), key=lambda config: config.name)
        return [
            CreatableTopicConfigs(
                name=config.name,
                value=None if config.is_sensitive else config.value,
                read_only=config.is_read_only,
                config_source=config.source,
                is_sensitive=config.is_sensitive,
            )
            for config in effective
        ]

    # -- deleting, growing ----------------------------------------------------------------------------------------

    def _removal(self, topic_id: Uuid, record_count: int, charge_partitions: ChargePartitions) -> "RemoveTopicRecord":
        from kafkapy.protocol.messages.remove_topic_record import RemoveTopicRecord

        if topic_id not in self.by_id:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
        check_operation_size(record_count + 1)
        charge_partitions(len(self.by_id[topic_id].partitions))
        return RemoveTopicRecord(topic_id=topic_id)

    def _grow(
        self, request: "CreatePartitionsTopic", record_count: int, charge_partitions: ChargePartitions
    ) -> Generator[list[Any], None, list[PartitionRecord]]:
        """Return the records of the new partitions, in steps. Raises ApiError.

        `record_count`: the operation's records so far.
        """
        topic = self.by_name.get(request.name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        added = request.count - current
        if added == 0:
            raise ApiError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if added < 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {current} partition(s); "
                f"{request.count} would not be an increase.",
            )
        check_operation_size(record_count + added)
        self.new_partitions.check_assignment_count(request, added)
        # Last, because it charges the quota: what is refused is not charged.
        charge_partitions(added)
        partitions = self.new_partitions.added_to(topic.partitions, request)
        return (yield from _partition_records(topic.topic_id, partitions))

    # -- the table ------------------------------------------------------------------------------------------------

    def _add(self, topic: Topic) -> None:
        assert topic.topic_id not in self.by_id, f"{topic.name} has the id of {self.by_id[topic.topic_id].name}"
        self.by_id[topic.topic_id] = topic
        self.by_name[topic.name] = topic
        self._collisions.add(topic.name)

    def _set(self, topic: Topic, partition_id: int, partition: PartitionRegistration) -> None:
        if self._indexes is not None:
            self._indexes.update(topic.topic_id, partition_id, topic.partitions.get(partition_id), partition)
        topic.set_partition(partition_id, partition)

    def _topic(self, topic_id: Uuid) -> Topic:
        topic = self.by_id.get(topic_id)
        assert topic is not None, "a record names a topic id that does not exist"
        return topic


def _partition_records(
    topic_id: Uuid, partitions: Mapping[int, PartitionRegistration]
) -> Generator[list[Any], None, list[PartitionRecord]]:
    """Return the records of new partitions, PARTITIONS_PER_STEP a step."""
    records = []
    for partition_id, partition in partitions.items():
        records.append(partition.to_record(topic_id, partition_id))
        if len(records) % PARTITIONS_PER_STEP == 0:
            yield []
    return records


def _creation_configs(topic: "CreatableTopic") -> dict[str, str]:
    if not topic.configs:
        return {}
    nulls = [config.name for config in topic.configs if config.value is None]
    if nulls:
        raise ApiError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return {config.name: config.value for config in topic.configs if config.value is not None}


def _failed(name: str, error: ApiError) -> "CreatableTopicResult":
    from kafkapy.protocol.messages.create_topics_response import CreatableTopicResult

    return CreatableTopicResult(name=name, error_code=int(error.code), error_message=error.message)
