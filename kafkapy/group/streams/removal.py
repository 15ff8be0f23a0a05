"""Removes members: those that leave, and those whose session or revocation timeout has expired."""

from collections.abc import Sequence
from typing import Final

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shared_rules import NEVER_ASSIGNED_AT_MS
from kafkapy.group.streams.records import member_tombstones, metadata_record, target_epoch_record
from kafkapy.group.streams.state import StreamsGroupLog

BYTES_PER_BATCH: Final = 100_000
"""The size of a batch with records that remove members: far below its bound, max.message.bytes."""
RECORD_BYTES: Final = 100
"""About the size of the four records of a member, without its id and the group's."""


def members_of_one_batch(group_id: str, member_ids: Sequence[str]) -> Sequence[str]:
    """Return the first members, as many as fit in one batch; the others time out again after FENCE_RETRY_MS."""
    left = BYTES_PER_BATCH
    for count, member_id in enumerate(member_ids):
        left -= 3 * len(member_id.encode()) + 4 * len(group_id.encode()) + RECORD_BYTES
        if left < 0 and count:
            return member_ids[:count]
    return member_ids


def removal_records(log: StreamsGroupLog, member_ids: Sequence[str]) -> list[CoordinatorRecord]:
    """Return the tombstones of members; each member's removal raises the group epoch."""
    assert len(set(member_ids)) == len(member_ids), "a member leaves once"
    assert log.members.keys() >= set(member_ids), "tombstones of members that the group has not"
    records: list[CoordinatorRecord] = []
    group_epoch = log.group_epoch
    for member_id in member_ids:
        group_epoch += 1
        records += member_tombstones(log.group_id, member_id)
        records.append(
            metadata_record(
                log,
                group_epoch=group_epoch,
                metadata_hash=log.metadata.metadata_hash,
                validated_topology_epoch=log.metadata.validated_topology_epoch,
                assignment_configs=log.assignment_configs,
            )
        )
    if member_ids and len(member_ids) == len(log.members):
        records.append(target_epoch_record(log.group_id, group_epoch, NEVER_ASSIGNED_AT_MS))
    return records
