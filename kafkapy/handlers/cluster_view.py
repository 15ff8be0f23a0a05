"""The brokers and partitions as clients of one listener see them, for Metadata and DescribeTopicPartitions.

Clients only get endpoints of the listener name on which they connected. Fenced brokers do not count as alive. The
leader is returned even while it is fenced, as in Apache Kafka: electing another one is up to the controller.
"""

from kafkapy.metadata.image import ClusterImage
from kafkapy.metadata.registrations import BrokerRegistration, PartitionRegistration
from kafkapy.metadata.topic_names import INTERNAL_TOPICS, invalid_topic_name_reason
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.seams import Random

NO_BROKER = -1


class ClusterView:
    """A cluster image as seen on one listener."""

    def __init__(self, cluster: ClusterImage, listener_name: str) -> None:
        self._brokers = cluster.brokers
        self.reachable = {broker.id: broker for broker in cluster.brokers.values() if listener_name in broker.endpoints}
        """Registered brokers with an endpoint on this listener, fenced ones included."""
        self.alive = {broker.id: broker for broker in self.reachable.values() if not broker.fenced}

    def leader_id(self, partition: PartitionRegistration) -> int:
        return partition.leader if partition.leader in self.reachable else NO_BROKER

    def leader_error(self, partition: PartitionRegistration, *, has_listener_error: bool) -> ErrorCode:
        """Return the error for a leader that is not reachable, else NONE. Metadata knows LISTENER_NOT_FOUND from v6."""
        if partition.leader in self.reachable:
            return ErrorCode.NONE
        if partition.leader in self._brokers and has_listener_error:
            return ErrorCode.LISTENER_NOT_FOUND
        return ErrorCode.LEADER_NOT_AVAILABLE

    def offline_replicas(self, partition: PartitionRegistration) -> list[int]:
        """Return the replicas that are not alive on this listener, or whose log directory is offline."""
        return [
            replica
            for replica, directory in zip(partition.replicas, partition.directories, strict=True)
            if replica not in self.alive or not self.alive[replica].has_online_directory(directory)
        ]


def random_alive_broker(cluster: ClusterImage, random: Random) -> int:
    """Return the broker that clients get as controller in KRaft: any alive one, because each forwards requests."""
    alive = [broker.id for broker in cluster.brokers.values() if not broker.fenced]
    return alive[random.randrange(0, len(alive))] if alive else NO_BROKER


def endpoint_of(broker: BrokerRegistration, listener_name: str) -> tuple[str, int]:
    endpoint = broker.endpoints[listener_name]
    return endpoint.host, endpoint.port


def missing_topic_error(name: str) -> ErrorCode:
    """Return the error code of a topic that does not exist: INVALID_TOPIC_EXCEPTION if its name is invalid."""
    is_valid = invalid_topic_name_reason(name) is None
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if is_valid else ErrorCode.INVALID_TOPIC_EXCEPTION


def is_internal(name: str) -> bool:
    return name in INTERNAL_TOPICS
