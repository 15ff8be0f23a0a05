"""Appends of plain batches that a request has for several partitions.

The effects are those of ReplicaManager.append_records, without the objects in which it keeps an outcome for later.
"""

from typing import TYPE_CHECKING

from kafkapy.replication.partition import Role
from kafkapy.replication.replica_manager import ALL_ACKS
from kafkapy.storage.log.plain_append import NOT_PLAIN, append_plain_part

if TYPE_CHECKING:
    from kafkapy.record.small_batch import HeaderFields
    from kafkapy.replication.hosted_partitions import HostedPartition
    from kafkapy.replication.replica_manager import ReplicaManager


def may_append_plain(partition: "HostedPartition", required_acks: int, record_count: int) -> bool:
    """Whether plain batches are taken here, and their response need wait for no flush.

    A flush that is under way counts, too: the response to a duplicate may have to wait for it.
    """
    log = partition.log
    return (
        log is not None
        and partition.role is Role.LEADER
        and (required_acks != ALL_ACKS or partition.is_alone or not partition.is_under_min_isr)
        and log.takes_plain_batches
        and log.flush_required_to <= log.recovery_point
        and log.log_end_offset + record_count - log.recovery_point < log.flush_messages  # as Log.is_flush_due_after
    )


def append_plain_batch(
    manager: "ReplicaManager",
    partition: "HostedPartition",
    data: bytes,
    start: int,
    end: int,
    header: "HeaderFields",
    now_ms: int,
) -> int:
    """Append data[start:end] to a partition for which `may_append_plain` is true; return the base offset.

    NOT_PLAIN, with nothing changed: append_records finds the outcome. Raises ApiError, StorageError and AssertionError
    for `refuse_append`.
    """
    log = partition.log
    if log is None or partition.role is not Role.LEADER or log.log_dir.offline_reason is not None:
        return NOT_PLAIN  # an earlier append of the request has failed, and its directory with it
    base_offset = append_plain_part(log, data, start, end, header, partition.leader_epoch, now_ms)
    if base_offset < 0:
        return base_offset
    traffic = partition.traffic
    if traffic is not None:
        traffic.count_appends(produces=1, size_bytes=end - start, messages=log.log_end_offset - base_offset)
    manager.notify_appended(partition)
    return base_offset
