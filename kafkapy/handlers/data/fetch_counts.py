"""Counts fetches for BrokerTopicMetrics; called only if topics are counted."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.replication.fetch_session import FetchedPartition
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.partition_read import PartitionRead
    from kafkapy.replication.replica_manager import ReplicaManager


def count_reads(
    readable: "Sequence[tuple[FetchedPartition, HostedPartition]]", responses: "Sequence[PartitionRead]"
) -> None:
    """Count reads of partitions; `responses` are in their order."""
    for (_, partition), response in zip(readable, responses, strict=True):
        if partition.traffic is not None:
            partition.traffic.count_read(response.error_code)


def count_sent(
    readable: "Sequence[tuple[FetchedPartition, HostedPartition]]", responses: "Sequence[PartitionRead]"
) -> None:
    """Count the bytes sent to a consumer."""
    for (_, partition), response in zip(readable, responses, strict=True):
        if partition.traffic is not None:
            partition.traffic.bytes_out += _record_bytes(response)


def count_sent_to_follower(
    manager: "ReplicaManager", responses: "Sequence[tuple[FetchedPartition, PartitionRead]]", replica_id: int
) -> None:
    """Count the bytes sent to a follower."""
    traffic = manager.traffic
    assert traffic is not None, "the caller has checked that topics are counted"
    for requested, response in responses:
        size_bytes = _record_bytes(response)
        if size_bytes:
            topic = requested.known_topic or requested.topic
            registration = manager.image.topics.partition(topic, requested.request.partition)
            is_reassigned = registration is not None and replica_id in registration.adding_replicas
            traffic.count_sent_to_follower(size_bytes, is_reassigned=is_reassigned)


def _record_bytes(response: "PartitionRead") -> int:
    records = response.records
    return records.length if isinstance(records, FileRegion) else len(records or b"")
