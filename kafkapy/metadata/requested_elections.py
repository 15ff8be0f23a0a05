"""Elections that are asked for: of preferred leaders (by ElectLeaders or for balance), and unclean ones (KIP-460).

Who is elected, here as after a change of the ISR, is decided in elections.py (`PartitionChange`). A preferred election
is never unclean, even if the topic allows it. Elections are independent of each other: callers pass partitions in
slices, so that the event loop is not blocked.
"""

from collections.abc import Sequence
from typing import Any, Final, TypeAlias

from kafkapy.errors import ApiError, repeated
from kafkapy.machine import Decision, Steps
from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.elections import Election
from kafkapy.metadata.partitions import PartitionControl
from kafkapy.metadata.registrations import NO_LEADER, PartitionRegistration
from kafkapy.metadata.topics import TopicControl
from kafkapy.protocol.error_code import ErrorCode

TopicPartitionKey: TypeAlias = tuple[str, int]

PREFERRED: Final = 0
UNCLEAN: Final = 1
ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
"""By ElectLeaders' election type."""
ELECTIONS_PER_SLICE: Final = 200
"""The number of partitions per decision: each takes up to 40 us to decide, encode and replay."""


class RequestedElections:
    """Elections on request, over the tables of topics, partitions and brokers."""

    def __init__(self, brokers: BrokerControl, topics: TopicControl, partitions: PartitionControl) -> None:
        self._brokers = brokers
        self._topics = topics
        self._partitions = partitions

    def decide_candidates(self) -> Steps[Any, list[TopicPartitionKey]]:
        """List the partitions not led by their preferred replica, including leaderless ones. No records."""
        for _ in self._topics.index():
            yield []
        keys: list[TopicPartitionKey] = []
        for topic_id, partition_ids in list(self._topics.indexes.imbalanced.items()):
            name = self._topics.by_id[topic_id].name
            keys += [(name, partition_id) for partition_id in partition_ids]
            yield []
        return Decision(keys, [])

    def decide_elect(
        self, election_type: int, partitions: Sequence[TopicPartitionKey]
    ) -> Decision[Any, list[ApiError | None]]:
        """Elect leaders; the response has an error, or None, for each partition."""
        records: list[Any] = []
        results: list[ApiError | None] = []
        last_name = None
        for name, partition_id in partitions:
            try:
                records.append(self._elect(election_type, name, partition_id))
                results.append(None)
            except ApiError as error:
                results.append(error if name != last_name else ApiError(error.code, repeated(error.message)))
            last_name = name
        assert len(results) == len(partitions), "outcomes are told apart by their order"
        return Decision(results, records)

    def decide_balance(self, partitions: Sequence[TopicPartitionKey]) -> Decision[Any, int]:
        """Elect preferred replicas if possible; the response is the number of partitions that changed."""
        records: list[Any] = []
        for name, partition_id in partitions:
            topic = self._topics.by_name.get(name)
            partition = topic.partitions.get(partition_id) if topic is not None else None
            if topic is None or partition is None or not self._may_improve(partition):
                continue
            record = self._partitions.begin_change(topic, partition_id, Election.PREFERRED).build()
            if record is not None:
                records.append(record)
        return Decision(len(records), records)

    def _may_improve(self, partition: PartitionRegistration) -> bool:
        """Whether an election could help. Skips partitions with a leader while their preferred replica is down."""
        if partition.has_preferred_leader or not partition.replicas:
            return False
        preferred = partition.replicas[0]
        return partition.leader == NO_LEADER or (preferred in partition.isr and self._brokers.is_active(preferred))

    def _elect(self, election_type: int, name: str, partition_id: int) -> Any:
        """Return the record of one election. Raises ApiError."""
        topic = self._topics.by_name.get(name)
        if topic is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
        partition = topic.partitions.get(partition_id)
        if partition is None:
            raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{partition_id}")
        is_preferred = election_type == PREFERRED
        if partition.has_preferred_leader if is_preferred else partition.leader != NO_LEADER:
            raise ApiError(*_NOT_NEEDED)
        record = self._partitions.begin_change(topic, partition_id, ELECTIONS[election_type]).build()
        if record is None:
            raise ApiError(*(_NO_PREFERRED_LEADER if is_preferred else _NO_ELIGIBLE_LEADER))
        return record


_NOT_NEEDED: Final = (ErrorCode.ELECTION_NOT_NEEDED, "Leader election not needed for topic partition.")
_NO_PREFERRED_LEADER: Final = (ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "The preferred leader was not available.")
_NO_ELIGIBLE_LEADER: Final = (
    ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
    "Eligible topic partition leaders are not available.",
)
