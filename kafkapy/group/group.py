"""The interface of a group to its shard, which ClassicGroup, ConsumerGroup, ShareGroup and StreamsGroup implement."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from kafkapy.group.records import CoordinatorRecord
from kafkapy.types import Uuid

CheckPartition: TypeAlias = Callable[[str, Uuid, int], None]
"""Called with (topic name, topic id, partition); raises ApiError if the member may not commit that offset."""


class Group(Protocol):
    """The interface of every group: for offset requests, listing and deletion. Error codes are raised as ApiError."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """Return "classic", "consumer", "share" or "streams", as ListGroups shows it."""
        ...

    @property
    def protocol_type(self) -> str | None:
        """Return "consumer", "connect", ...; None or "" for a simple group, which has never had a member."""
        ...

    @property
    def state_name(self) -> str:
        """Return the state as Kafka writes it: "Stable", "PreparingRebalance", ..."""
        ...

    @property
    def is_empty(self) -> bool: ...

    @property
    def member_count(self) -> int: ...

    @property
    def may_expire(self) -> bool:
        """Whether the group is deleted once it is empty and has no committed offsets left."""
        ...

    def deadline_ms(self) -> int | None:
        """Return when to call on_time next (monotonic). May be too early. Cheap: called after every request."""
        ...

    def check_offset_commit(
        self,
        member_id: str,
        instance_id: str | None,
        generation: int,
        *,
        version: int,
        is_transactional: bool,
    ) -> CheckPartition | None:
        """Return None if all partitions may be committed, else a check to call for each partition.

        `generation` is the member epoch of a KIP-848 member, and -1 if the client is not a member. `version` is the
        API version of the request.
        """
        ...

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """Record an accepted commit of a member: in a classic group it counts as a heartbeat."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND if offsets may not be deleted."""
        ...

    def check_deletion(self) -> None:
        """Raise NON_EMPTY_GROUP if the group has members."""
        ...

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return the tombstones that delete the group, without those of its offsets."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member subscribes to the topic: its offsets then do not expire and may not be deleted."""
        ...

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return since when (wall clock ms) an offset committed at that time is unused, or None if it is in use.

        KIP-211. For a simple group and a KIP-848 group: the time of the commit. For a classic group with a protocol
        type: if empty, the time it became empty (the commit if not known); if Stable with known subscriptions, the
        commit (callers keep the offsets of subscribed topics); else None.
        """
        ...
