"""Appends of plain batches that a request has for several partitions, where the outcome of each is known at once.

The effects are those of ReplicaManager.append_records, without the objects in which it keeps an outcome for later.
"""

from typing import TYPE_CHECKING

from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.storage.log.plain_append import append_plain_part

if TYPE_CHECKING:
    from kafkapy.record.small_batch import HeaderFields
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager
    from kafkapy.storage.log.append import AppendResult


def is_final_at_once(partition: "HostedPartition", required_acks: int, record_count: int) -> bool:
    """Whether plain batches are taken here, and their response need wait for no other replica and no flush.

    A flush that is under way counts, too: the response to a duplicate may have to wait for it.
    """
    log = partition.log
    return (
        log is not None
        and partition.role is Role.LEADER
        and (partition.is_alone or required_acks != ALL_ACKS)
        and log.takes_plain_batches
        and log.flush_required_to <= log.recovery_point
        and not log.is_flush_due_after(record_count)
    )


def append_plain_batch(
    manager: "ReplicaManager",
    partition: "HostedPartition",
    data: bytes,
    start: int,
    end: int,
    header: "HeaderFields",
    now_ms: int,
) -> "AppendResult | None":
    """Append data[start:end] to a partition that `is_final_at_once`; None, with nothing changed, if it is not plain.

    Then append_records finds the outcome. Raises ApiError, StorageError and AssertionError for `refuse_append`.
    """
    log = partition.log
    if log is None or partition.role is not Role.LEADER or log.log_dir.offline_reason is not None:
        return None  # an earlier append of the request has failed, and its directory with it
    result = append_plain_part(log, data, start, end, header, partition.leader_epoch, now_ms)
    if result is None:
        return None
    traffic = partition.traffic
    if traffic is not None:
        traffic.count_appends(produces=1, size_bytes=end - start, messages=result.last_offset - result.first_offset + 1)
    manager.notify_appended(partition)
    return result
