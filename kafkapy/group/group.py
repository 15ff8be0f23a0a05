"""What a shard asks of any group, whatever its protocol: classic.ClassicGroup and consumer.ConsumerGroup are ones."""

from collections.abc import Callable, Iterable
from typing import Protocol, TypeAlias

from kafkapy.group.records import CoordinatorRecord
from kafkapy.types import Uuid

CheckPartition: TypeAlias = Callable[[str, Uuid, int], None]
"""Raises ApiError for a partition (topic name, topic id, partition) whose offset the member may not commit."""


class Group(Protocol):
    """A group as offsets, listing and deletion see it. Codes are raised as ApiError."""

    @property
    def group_id(self) -> str: ...

    @property
    def group_type(self) -> str:
        """Return "classic" or "consumer", as ListGroups shows it."""
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

    def deadline_ms(self) -> int | None:
        """Return when on_time wants to be called (monotonic); may be early, cheap to ask after every request."""
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
        """Return None where all partitions may be committed, else what each has to pass.

        `generation` is the member epoch of a KIP-848 member; -1 comes from who is not a member. `version` is that of
        the request's API.
        """
        ...

    def on_offset_commit(self, member_id: str, now_ms: int) -> None:
        """A member's commit is fine: a classic group takes it for a heartbeat."""
        ...

    def check_offset_fetch(self, member_id: str | None, member_epoch: int) -> None: ...

    def check_offset_delete(self) -> None:
        """Raise NON_EMPTY_GROUP or GROUP_ID_NOT_FOUND where offsets may not be deleted."""
        ...

    def check_deletion(self) -> None:
        """Raise NON_EMPTY_GROUP where the group has members."""
        ...

    def tombstone_records(self) -> Iterable[CoordinatorRecord]:
        """Return what deletes the group, its offsets aside."""
        ...

    def is_subscribed_to(self, topic: str) -> bool:
        """Return whether a member wants the topic: its offsets then neither expire nor may be deleted."""
        ...

    def offsets_unused_since_ms(self, commit_timestamp_ms: int) -> int | None:
        """Return since when (wall clock) an offset committed at that time counts as unused; None: it is in use.

        KIP-211: a classic group with a protocol type: when it became empty, or the commit where that is not known;
        Stable with known subscriptions: the commit (of topics it is not subscribed to); else None. A simple group and a
        KIP-848 group: the commit.
        """
        ...
