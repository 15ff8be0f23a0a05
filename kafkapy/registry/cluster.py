"""Connections of a registry to its Kafka cluster, 2.1 or later.

They are our own, not confluent-kafka's, because librdkafka joins only groups of consumers. The versions of requests are
fixed ones that brokers from 2.1 to 4.4 serve.
"""

import logging
import threading
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli.addresses import host_port
from kafkapy.cli.connection import Connection
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_topics_request import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic

if TYPE_CHECKING:
    from kafkapy.cli.client_security import ConnectionSecurity

METADATA_VERSION: Final = 7
CREATE_TOPICS_VERSION: Final = 3
FIND_COORDINATOR_VERSION: Final = 2
DESCRIBE_CONFIGS_VERSION: Final = 2
TOPIC_RESOURCE: Final = 2
CLEANUP_POLICY: Final = "cleanup.policy"
COMPACT: Final = "compact"
GROUP_COORDINATOR: Final = 0
TRANSACTION_COORDINATOR: Final = 1
MAX_REPLICAS: Final = 3
"""The default of kafkastore.topic.replication.factor; fewer if there are fewer brokers."""
CREATE_TIMEOUT_MS: Final = 30_000


logger = logging.getLogger("kafkapy.registry")


class ClusterError(KafkapyError):
    """The cluster does not answer, or refuses a request. `code`: its error code, NONE without one."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.NONE) -> None:
        super().__init__(message)
        self.code = code


class Cluster:
    """Finds the leader of the topic's partition and the group's coordinator; each caller has connections of its own."""

    def __init__(self, servers: str, security: "ConnectionSecurity | None" = None) -> None:
        self._servers = servers
        self._security = security
        self._lock = threading.Lock()
        self.cluster_id = ""

    def to_any(self) -> Connection:
        """Connect to any broker. Raises ClusterError."""
        return self.to(self._servers)

    def to(self, address: str) -> Connection:
        """Connect. Raises ClusterError."""
        try:
            return Connection.to_any(address, security=self._security)
        except (OSError, KafkapyError) as error:
            raise ClusterError(f"no broker answers at {address}: {error}") from error

    def to_leader(self, topic: str) -> Connection:
        """Connect to the leader of partition 0. Raises ClusterError."""
        metadata = self._metadata(topic)
        (described,) = metadata.topics
        check(described.error_code, f"the topic {topic}")
        if len(described.partitions) != 1:
            raise ClusterError(f"the topic {topic} has {len(described.partitions)} partitions; it must have one")
        (partition,) = described.partitions
        leader = next((each for each in metadata.brokers if each.node_id == partition.leader_id), None)
        if leader is None:
            raise ClusterError(f"the topic {topic} has no leader", ErrorCode.LEADER_NOT_AVAILABLE)
        return self.to(host_port(leader.host, leader.port))

    def to_coordinator(self, group: str) -> Connection:
        """Connect to the coordinator of a group. Raises ClusterError."""
        return self._to_coordinator(group, GROUP_COORDINATOR, f"the group {group}")

    def to_transaction_coordinator(self, transactional_id: str) -> Connection:
        """Connect to the coordinator of a transactional id. Raises ClusterError."""
        return self._to_coordinator(
            transactional_id, TRANSACTION_COORDINATOR, f"the transactional id {transactional_id}"
        )

    def _to_coordinator(self, key: str, kind: int, whose: str) -> Connection:
        with self.to_any() as connection:
            found = call(connection, FindCoordinatorRequest(key, key_type=kind), FIND_COORDINATOR_VERSION)
        check(found.error_code, f"the coordinator of {whose}")
        return self.to(host_port(found.host, found.port))

    def create_topic(self, topic: str) -> None:
        """Create the compacted topic if it is not there. Raises ClusterError, also for one that is not compacted."""
        metadata = self._metadata(topic)
        (described,) = metadata.topics
        if described.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            check(described.error_code, f"the topic {topic}")
            self._check_policy(topic)
            return
        new = CreatableTopic(
            topic,
            num_partitions=1,
            replication_factor=min(MAX_REPLICAS, len(metadata.brokers)),
            configs=[CreatableTopicConfig(CLEANUP_POLICY, value=COMPACT)],
        )
        with self._to_controller(metadata) as connection:
            request = CreateTopicsRequest([new], timeout_ms=CREATE_TIMEOUT_MS)
            (created,) = call(connection, request, CREATE_TOPICS_VERSION).topics
        if created.error_code != ErrorCode.TOPIC_ALREADY_EXISTS:
            check(created.error_code, f"creating the topic {topic}", created.error_message)

    def _check_policy(self, topic: str) -> None:
        """Raise ClusterError for a topic whose records are deleted with time, as Confluent's registry does.

        A topic that a client has created by asking for it has the brokers' default.
        """
        resource = DescribeConfigsResource(TOPIC_RESOURCE, resource_name=topic, configuration_keys=[CLEANUP_POLICY])
        with self.to_any() as connection:
            (found,) = call(connection, DescribeConfigsRequest([resource]), DESCRIBE_CONFIGS_VERSION).results
        if found.error_code:
            text = f"{ErrorCode(found.error_code).name}: {found.error_message}"
            logger.warning("Whether the topic %s is compacted is not known (%s)", topic, text)
            return
        policy = next((each.value for each in found.configs if each.name == CLEANUP_POLICY), COMPACT)
        if policy != COMPACT:
            raise ClusterError(
                f"the topic {topic} has {CLEANUP_POLICY}={policy}, which deletes schemas with time: set it to {COMPACT}"
            )

    def _to_controller(self, metadata: Any) -> Connection:
        controller = next((each for each in metadata.brokers if each.node_id == metadata.controller_id), None)
        return self.to_any() if controller is None else self.to(host_port(controller.host, controller.port))

    def _metadata(self, topic: str) -> Any:
        request = MetadataRequest([MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
        with self.to_any() as connection:
            metadata = call(connection, request, METADATA_VERSION)
        with self._lock:
            self.cluster_id = metadata.cluster_id or ""
        return metadata


def call(connection: Connection, request: Any, version: int, timeout_s: float | None = None) -> Any:
    """Return the response. Raises ClusterError; the connection is not to be used after that."""
    try:
        return connection.call(request, version, timeout_s)
    except (OSError, ProtocolError) as error:
        raise ClusterError(f"the broker does not answer: {error}") from error


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise ClusterError for an error code."""
    if code:
        found = ErrorCode(code)
        raise ClusterError(f"{what}: {message or found.message} ({found.name})", found)
