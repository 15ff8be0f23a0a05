"""The content of a DescribeQuorum response: the leader and the progress of each replica."""

import logging

from kafkapy.dataclass import dataclass
from kafkapy.raft.core import RaftCore
from kafkapy.raft.progress import ReplicaProgress
from kafkapy.raft.roles import Leader
from kafkapy.raft.voters import Endpoint
from kafkapy.types import ReplicaKey, uuid_to_string

logger = logging.getLogger("kafkapy.runtime.quorum.quorum")


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    """Times are wall clock in ms, -1 for never. log_end_offset is -1 while unknown."""

    key: ReplicaKey
    log_end_offset: int
    last_fetch_timestamp_ms: int
    last_caught_up_timestamp_ms: int


@dataclass(frozen=True, slots=True)
class QuorumDescription:
    """high_watermark is -1 until a record of the leader's epoch is committed."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    endpoints: dict[int, tuple[Endpoint, ...]]
    """The endpoints of each voter; DescribeQuorum 2 lists them (KIP-853)."""


def replaced_voters(core: RaftCore) -> tuple[ReplicaKey, ...]:
    """Return the observers whose node is a voter with another directory: it was lost, or formatted again.

    Such a node does not vote until it is added, and the voter of its former directory removed. Empty unless this node
    leads.
    """
    role = core.role
    if not isinstance(role, Leader):
        return ()
    return tuple(key for key in role.progress.observers if key.node_id in role.progress.voters)


def warn_of_replaced_voters(core: RaftCore, warned_of: set[ReplicaKey]) -> None:
    """Log the nodes that have lost the directory with which they vote; add them to those already logged."""
    for key in set(replaced_voters(core)) - warned_of:
        warned_of.add(key)
        logger.warning(
            "Node %d is a voter with another directory than it has, %s: it does not vote until it is added to the "
            "voters, and its former directory removed",
            key.node_id,
            uuid_to_string(key.directory_id),
        )


def describe_quorum(core: RaftCore, *, wall_ms: int, monotonic_ms: int) -> QuorumDescription | None:
    """Return the description; None unless this node leads. The leader's own times are the current time."""
    role = core.role
    if not isinstance(role, Leader):
        return None
    role.progress.forget_silent_observers(monotonic_ms)
    to_wall_ms = wall_ms - monotonic_ms

    def describe(replica: ReplicaProgress) -> ReplicaDescription:
        if replica.key.node_id == core.local.node_id:
            return ReplicaDescription(replica.key, replica.durable_end_offset, wall_ms, wall_ms)
        fetch_ms, caught_up_ms = replica.last_fetch_ms, replica.last_caught_up_ms
        return ReplicaDescription(
            replica.key,
            replica.durable_end_offset,
            fetch_ms + to_wall_ms if fetch_ms >= 0 else -1,
            caught_up_ms + to_wall_ms if caught_up_ms >= 0 else -1,
        )

    return QuorumDescription(
        leader_id=role.leader_id,
        leader_epoch=role.leader_epoch,
        high_watermark=role.progress.high_watermark,
        voters=tuple(describe(replica) for replica in role.progress.voters.values()),
        observers=tuple(describe(replica) for replica in role.progress.observers.values()),
        endpoints={voter.node_id: voter.endpoints for voter in core.voters.current},
    )
