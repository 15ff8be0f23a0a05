"""Collects a running cluster's data for `kafkapy cluster check`: a server.migration.survey.Survey.

Works with kafkapy and Apache Kafka, over connections of our own (--command-config), at the highest common versions.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from kafkapy.cli.cluster_link import BrokerQueries
from kafkapy.cli.connection import Connection
from kafkapy.errors import ProtocolError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_log_dirs_request import DescribeLogDirsRequest
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.list_config_resources_request import ListConfigResourcesRequest
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.server.migration.survey import HIDDEN, Broker, Partition, Survey, Topic, Voter
from kafkapy.types import METADATA_PARTITION

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC = 2, 3, 4
SET_SOURCES: Final = (DYNAMIC_BROKER, DYNAMIC_DEFAULT, STATIC)
"""Sources of explicitly set configs."""
TOPIC_KEYS: Final = ["min.insync.replicas", "remote.storage.enable"]
TOPICS_AT_ONCE: Final = 500
"""Topics of one DescribeConfigs: a response of some 2 MB."""
CAUGHT_UP_MS: Final = 10_000
"""How far a voter may be behind the most recent one, by its last caught-up time."""


def survey(servers: str) -> Survey:
    """Query one broker about the cluster, and each broker about itself. Raises OSError, ProtocolError."""
    with BrokerQueries(Connection.to_any(servers)) as broker:
        cluster = broker.query(DescribeClusterRequest(include_fenced_brokers=True))
        leader_id, voters = _quorum(broker)
        alive = [each for each in cluster.brokers if not each.is_fenced]
        return Survey(
            cluster_id=cluster.cluster_id,
            brokers=[_broker(each.broker_id, each.host, each.port) for each in alive],
            fenced=[each.broker_id for each in cluster.brokers if each.is_fenced],
            leader_id=leader_id,
            voters=voters,
            topics=_topics(broker),
            reassigned=_reassigned(broker),
            subscriptions=_subscriptions(broker),
        )


def _quorum(broker: BrokerQueries) -> tuple[int, list[Voter]]:
    """Return the active controller and the voters; (-1, []) if there is no quorum."""
    if not broker.knows(DescribeQuorumRequest):
        return -1, []
    wanted = TopicData(
        METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=METADATA_PARTITION.partition)]
    )
    response = broker.query(DescribeQuorumRequest(topics=[wanted]))
    _check(response.error_code, "DescribeQuorum")
    partition = response.topics[0].partitions[0]
    _check(partition.error_code, "DescribeQuorum")
    newest_ms = max(each.last_caught_up_timestamp for each in partition.current_voters)
    voters = [
        Voter(
            each.replica_id,
            each.log_end_offset,
            each.replica_id == partition.leader_id or each.last_caught_up_timestamp >= newest_ms - CAUGHT_UP_MS,
        )
        for each in partition.current_voters
    ]
    return partition.leader_id, voters


def _topics(broker: BrokerQueries) -> list[Topic]:
    response = broker.query(MetadataRequest(topics=None, allow_auto_topic_creation=False))
    topics = {
        topic.name: Topic(topic.name, [_partition(topic.name, each) for each in topic.partitions])
        for topic in response.topics
    }
    names = list(topics)
    for start in range(0, len(names), TOPICS_AT_ONCE):
        chunk = names[start : start + TOPICS_AT_ONCE]
        resources = [
            DescribeConfigsResource(TOPIC_RESOURCE, resource_name=name, configuration_keys=TOPIC_KEYS) for name in chunk
        ]
        for result in broker.query(DescribeConfigsRequest(resources=resources)).results:
            values = {each.name: each.value for each in result.configs}
            topic = topics[result.resource_name]
            topic.min_insync_replicas = int(values.get("min.insync.replicas") or 1)
            topic.is_remote = values.get("remote.storage.enable") == "true"
    return list(topics.values())


def _partition(topic: str, found: Any) -> Partition:
    return Partition(
        f"{topic}-{found.partition_index}", found.leader_id, tuple(found.replica_nodes), tuple(found.isr_nodes)
    )


def _reassigned(broker: BrokerQueries) -> list[str]:
    response = broker.query(ListPartitionReassignmentsRequest(topics=None))
    _check(response.error_code, "ListPartitionReassignments")
    return [f"{topic.name}-{each.partition_index}" for topic in response.topics for each in topic.partitions]


def _subscriptions(broker: BrokerQueries) -> list[str]:
    """Return the client metrics subscriptions. Brokers before 3.7 have none."""
    if not broker.knows(ListConfigResourcesRequest):
        return []
    is_filtered = broker.versions[ListConfigResourcesRequest.API_KEY or 0][1] > 0
    types = [CLIENT_METRICS_RESOURCE] if is_filtered else []
    response = broker.query(ListConfigResourcesRequest(resource_types=types))
    _check(response.error_code, "ListConfigResources")
    return [each.resource_name for each in response.config_resources]


# -- each broker ------------------------------------------------------------------------------------------------------


def _broker(node_id: int, host: str, port: int) -> Broker:
    """Return a broker's responses about itself, or why there are none."""
    try:
        with BrokerQueries(Connection(host, port)) as broker:
            return Broker(
                node_id,
                properties=dict(_properties(broker, node_id)),
                features=broker.features,
                apis=frozenset(broker.versions),
                group_types=_groups(broker),
                offline_log_dirs=tuple(_offline_log_dirs(broker)),
            )
    except (OSError, ProtocolError) as error:
        return Broker(node_id, problem=f"{host}:{port} does not answer: {error}")


def _properties(broker: BrokerQueries, node_id: int) -> Iterator[tuple[str, str]]:
    resource = DescribeConfigsResource(BROKER_RESOURCE, resource_name=str(node_id), configuration_keys=None)
    (result,) = broker.query(DescribeConfigsRequest(resources=[resource])).results
    _check(result.error_code, f"DescribeConfigs of broker {node_id}")
    for each in result.configs:
        if each.config_source in SET_SOURCES:
            yield each.name, HIDDEN if each.value is None else each.value


def _groups(broker: BrokerQueries) -> dict[str, str]:
    response = broker.query(ListGroupsRequest())
    _check(response.error_code, "ListGroups")
    return {each.group_id: each.group_type for each in response.groups}


def _offline_log_dirs(broker: BrokerQueries) -> Sequence[str]:
    response = broker.query(DescribeLogDirsRequest(topics=[]))
    _check(response.error_code, "DescribeLogDirs")
    return [each.log_dir for each in response.results if each.error_code == ErrorCode.KAFKA_STORAGE_ERROR]


def _check(error_code: int, subject: str) -> None:
    """Raise ProtocolError if a response has an error."""
    if error_code:
        raise ProtocolError(f"{subject}: {ErrorCode(error_code).name}")
