"""Removal of members from a share group: they leave, or their session expires.

The group epoch is bumped, and the next heartbeat computes a new target.
"""

from collections.abc import Sequence

from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.share.group import ShareGroup
from kafkapy.group.share.records import epoch_record, member_tombstones, target_epoch_record
from kafkapy.group.share.state import count_names
from kafkapy.group.shared_rules import NEVER_ASSIGNED_AT_MS
from kafkapy.metadata.image import MetadataImage


def removal_records(group: ShareGroup, member_ids: Sequence[str], image: MetadataImage) -> list[CoordinatorRecord]:
    """Return the tombstones of members, each with a next epoch of the group, as if they left one after another."""
    group_id, log = group.group_id, group.log
    assert len(set(member_ids)) == len(member_ids), "a member leaves once"
    records: list[CoordinatorRecord] = []
    names, group_epoch = dict(log.topic_names), log.group_epoch
    for member_id in member_ids:
        count_names(names, log.members[member_id], -1)
        group_epoch += 1
        records += member_tombstones(group_id, member_id)
        records.append(epoch_record(group_id, group_epoch, group.hashes.of(names.keys(), image)))
    if member_ids and len(member_ids) == len(log.members):
        assert not names, "somebody subscribes to topics, and no member is left"
        records.append(target_epoch_record(group_id, group_epoch, NEVER_ASSIGNED_AT_MS))
    return records
