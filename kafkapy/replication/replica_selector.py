"""The preferred read replica of a consumer: one in its rack (KIP-392, RackAwareReplicaSelector). Pure."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kafkapy.metadata.registrations import BrokerRegistration
    from kafkapy.replication.hosted_partitions import HostedPartition

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The supported replica.selector.class: others stop the start (config/checks.py). Unset: all read from the leader."""


def preferred_read_replica(
    partition: "HostedPartition",
    brokers: "Mapping[int, BrokerRegistration]",
    *,
    rack: str,
    listener_name: str,
    fetch_offset: int,
) -> int | None:
    """Return the most caught-up in-sync follower in a rack, None without one or if the leader is there. Leader only.

    A candidate must have fetch_offset, and the listener by which the consumer is connected.
    """
    leader = brokers.get(partition.leader_id)
    if leader is not None and leader.rack == rack:
        return None
    candidates = []
    for replica_id, follower in partition.followers.items():
        broker = brokers.get(replica_id)
        if (
            broker is not None
            and broker.rack == rack
            and not broker.fenced
            and listener_name in broker.endpoints
            and replica_id in partition.isr
            and follower.log_start_offset <= fetch_offset <= follower.log_end_offset
        ):
            candidates.append((follower.log_end_offset, follower.caught_up_ms, replica_id))
    return max(candidates)[2] if candidates else None
