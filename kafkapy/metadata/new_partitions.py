"""The replicas of new partitions: placed over the brokers (placement.py), or assigned by the request. KIP-4, KIP-195.

The leader of a new partition is the first of its replicas that is active, and its ISR are all active ones.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from kafkapy.errors import ApiError
from kafkapy.metadata.brokers import BrokerControl
from kafkapy.metadata.limits import MAX_RECORDS_PER_OPERATION
from kafkapy.metadata.registrations import RECOVERED, PartitionRegistration
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Random

if TYPE_CHECKING:
    from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsTopic
    from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest


class NewPartitions:
    """Chooses the replicas of new partitions among the registered brokers."""

    def __init__(
        self,
        brokers: BrokerControl,
        random: Random,
        *,
        default_partition_count: int,
        default_replication_factor: int,
    ) -> None:
        self._brokers = brokers
        self._random = random
        self._default_partition_count = default_partition_count
        self._default_replication_factor = default_replication_factor

    def check_total(self, request: "CreateTopicsRequest") -> None:
        """Raise ApiError POLICY_VIOLATION if a request creates more partitions than an operation may have records."""
        total = 0
        for topic in request.topics:
            if topic.assignments:
                total += len(topic.assignments)
            elif topic.num_partitions == -1:
                total += self._default_partition_count
            else:
                total += max(topic.num_partitions, 0)
        if total > MAX_RECORDS_PER_OPERATION:
            raise ApiError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")

    def of_topic(self, topic: "CreatableTopic") -> dict[int, PartitionRegistration]:
        """Return the partitions of a new topic by id. Raises ApiError."""
        if topic.assignments:
            return self._assigned_partitions(topic)
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise ApiError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self._default_partition_count if topic.num_partitions == -1 else topic.num_partitions
        factor = self._default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        try:
            return self._placed_partitions(first=0, count=count, replication_factor=factor)
        except ApiError as error:
            raise ApiError(
                error.code, f"Unable to replicate the partition {factor} time(s): {error.message}"
            ) from error

    def _placed_partitions(
        self, *, first: int, count: int, replication_factor: int
    ) -> dict[int, PartitionRegistration]:
        from kafkapy.metadata.placement import place_replicas

        placed = place_replicas(
            self._brokers.usable_brokers(),
            partition_count=count,
            replication_factor=replication_factor,
            random=self._random,
        )
        alike: dict[tuple[int, ...], PartitionRegistration] = {}
        partitions: dict[int, PartitionRegistration] = {}
        for partition_id, replicas in enumerate(map(tuple, placed), first):
            if replicas not in alike:
                alike[replicas] = self._placed_registration(replicas)
            partitions[partition_id] = alike[replicas]
        return partitions

    def _placed_registration(self, replicas: tuple[int, ...]) -> PartitionRegistration:
        isr = list(filter(self._brokers.is_active, replicas))
        if not isr:
            raise ApiError(
                ErrorCode.INVALID_REPLICATION_FACTOR, "All brokers are currently fenced or in controlled shutdown."
            )
        return self._registration(replicas, isr)

    def _assigned_partitions(self, topic: "CreatableTopic") -> dict[int, PartitionRegistration]:
        if topic.replication_factor != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise ApiError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        partitions: dict[int, PartitionRegistration] = {}
        for assignment in topic.assignments:
            index = assignment.partition_index
            if index in partitions:
                raise _bad_assignment(f"Found multiple manual partition assignments for partition {index}")
            factor = len(next(iter(partitions.values())).replicas) if partitions else None
            partitions[index] = self._assigned_partition(assignment.broker_ids, index, factor)
        if sorted(partitions) != list(range(len(partitions))):
            raise _bad_assignment("partitions should be a consecutive 0-based integer sequence")
        return dict(sorted(partitions.items()))

    def _assigned_partition(self, replicas: Sequence[int], index: int, factor: int | None) -> PartitionRegistration:
        self.check_assignment(replicas, factor)
        isr = list(filter(self._brokers.is_active, replicas))
        if not isr:
            raise _bad_assignment(
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in "
                "controlled shutdown."
            )
        return self._registration(replicas, isr)

    def check_assignment(self, replicas: Sequence[int], factor: int | None = None) -> None:
        """Raise ApiError INVALID_REPLICA_ASSIGNMENT unless `replicas` are `factor` distinct registered brokers."""
        if not replicas:
            raise _bad_assignment("The manual partition assignment includes an empty replica list.")
        previous = None
        for replica in sorted(replicas):
            if replica not in self._brokers.brokers:
                raise _bad_assignment(
                    f"The manual partition assignment includes broker {replica}, but no such broker is registered."
                )
            if replica == previous:
                raise _bad_assignment(f"The manual partition assignment includes the broker {replica} more than once.")
            previous = replica
        if factor is not None and len(replicas) != factor:
            raise _bad_assignment(
                f"The manual partition assignment includes a partition with {len(replicas)} replica(s), but this is "
                f"not consistent with previous partitions, which have {factor} replica(s)."
            )

    def _registration(self, replicas: Iterable[int], isr: Sequence[int]) -> PartitionRegistration:
        replicas, members = tuple(replicas), tuple(isr)
        assert members, "a partition begins with a leader: callers refuse it else"
        assert set(members).issubset(replicas), f"{members} of {replicas} would be in sync"
        return PartitionRegistration(
            replicas=replicas,
            directories=tuple(map(self._brokers.default_directory, replicas)),
            isr=members,
            removing_replicas=(),
            adding_replicas=(),
            elr=(),
            last_known_elr=(),
            leader=members[0],
            leader_recovery_state=RECOVERED,
            leader_epoch=0,
            partition_epoch=0,
        )

    def added_to(
        self, partitions: Mapping[int, PartitionRegistration], request: "CreatePartitionsTopic"
    ) -> dict[int, PartitionRegistration]:
        """Return the partitions that a request adds to a topic's `partitions`. Raises ApiError."""
        current = len(partitions)
        added = request.count - current
        factor = len(partitions[0].replicas)
        assert added > 0, "the caller refuses a topic that would not grow"
        if request.assignments is None:
            return self._placed_partitions(first=current, count=added, replication_factor=factor)
        return {
            current + index: self._assigned_partition(assignment.broker_ids, current + index, factor)
            for index, assignment in enumerate(request.assignments)
        }

    @staticmethod
    def check_assignment_count(request: "CreatePartitionsTopic", added: int) -> None:
        """Raise ApiError INVALID_REPLICA_ASSIGNMENT unless a request assigns as many partitions as it adds, or none."""
        if request.assignments is not None and len(request.assignments) != added:
            raise _bad_assignment(
                f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} assignment(s) "
                "were specified."
            )


def _bad_assignment(message: str) -> ApiError:
    return ApiError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
