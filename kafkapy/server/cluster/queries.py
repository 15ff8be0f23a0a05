"""Queries a running cluster: its brokers, leaders and quorum.

Each query takes an `Ask`, which brings a request to the cluster. `asking` makes one for nodes of this version on this
machine: a plain connection for each request, the newest version without negotiation. cli/cluster_link.py makes those
for any cluster.
"""

import functools
import socket
from collections.abc import Collection, Iterator
from dataclasses import field
from typing import Any, Final, Protocol

from kafkapy.dataclass import dataclass
from kafkapy.errors import ProtocolError
from kafkapy.protocol.api import APIS, response_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.describe_cluster_request import DescribeClusterRequest
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.describe_quorum_request import DescribeQuorumRequest, PartitionData, TopicData
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkapy.protocol.primitives import Message, Writer
from kafkapy.protocol.response_error import response_error
from kafkapy.types import METADATA_PARTITION, uuid_to_string

Address = tuple[str, int]

TIMEOUT_S: Final = 5.0
UNREGISTER_TIMEOUT_S: Final = 30.0
CLIENT_ID: Final = "kafkapy-cluster"
CONTROLLER_ENDPOINTS: Final = 2
TOPIC_RESOURCE: Final = 2
MIN_ISR: Final = "min.insync.replicas"
TOPICS_AT_ONCE: Final = 500
SILENT_MS: Final = 10_000
"""A controller that has not fetched for so long is shown as silent."""


class Ask(Protocol):
    """Sends a request to the cluster and returns the response. Raises OSError, ProtocolError."""

    def __call__(self, request: Message, *, timeout_s: float = TIMEOUT_S) -> Any: ...


@dataclass(slots=True)
class TopicPartitions:
    """The partitions of all topics: their number, and those with a problem, as `topic-partition`."""

    topic_count: int = 0
    partition_count: int = 0
    offline: list[str] = field(default_factory=list)
    under_replicated: list[str] = field(default_factory=list)
    leaders: dict[str, dict[int, int]] = field(default_factory=dict)
    """Leader by topic and partition; -1 if there is none."""
    isr_sizes: dict[str, dict[int, int]] = field(default_factory=dict)
    """Number of replicas in sync by topic and partition."""
    replica_counts: dict[int, int] = field(default_factory=dict)
    """Number of replicas by broker."""

    def led_by(self, broker_ids: Collection[int]) -> list[str]:
        """Return the partitions that one of the brokers leads, as `topic-partition`."""
        return [
            f"{topic}-{partition}"
            for topic, leaders in self.leaders.items()
            for partition, leader in leaders.items()
            if leader in broker_ids
        ]


@dataclass(slots=True)
class QuorumReplica:
    """A voter or an observer. directory_id: as text. lag: records behind the leader, -1 if it has not fetched."""

    node_id: int
    directory_id: str
    lag: int
    silent_ms: int = 0
    """Since its last fetch, by the leader's clock; -1 if it has not fetched, or the leader does not say."""

    @property
    def is_silent(self) -> bool:
        return self.lag < 0 or self.silent_ms > SILENT_MS


@dataclass(slots=True)
class QuorumView:
    """voters, observers: by node id. `replicas`: the voters, with their directories; `others`: the observers.

    `listeners`: of the voters' nodes, (name, host, port) by node id; empty before DescribeQuorum 2.
    """

    leader_id: int
    leader_epoch: int
    voters: list[int]
    observers: list[int]
    replicas: list[QuorumReplica] = field(default_factory=list)
    others: list[QuorumReplica] = field(default_factory=list)
    listeners: dict[int, tuple[str, str, int]] = field(default_factory=dict)


def query(address: Address, request: Message, *, timeout_s: float = TIMEOUT_S, max_version: int | None = None) -> Any:
    """Return the response to a request at its newest version, or at `max_version`. Raises OSError, ProtocolError."""
    api_key = request.API_KEY
    assert api_key is not None
    version = APIS[api_key].max_version if max_version is None else max_version
    frame = Writer()
    write_request_header(frame, api_key=api_key, api_version=version, correlation_id=1, client_id=CLIENT_ID)
    frame += request.encode(version)
    with socket.create_connection(address, timeout=timeout_s) as connection:
        connection.sendall(len(frame).to_bytes(4, "big") + frame)
        size = int.from_bytes(_read(connection, 4), "big")
        response = _read(connection, size)
    _, position = read_response_header(response, api_key, version)
    return response_type(api_key).decode(response[position:], version)


def asking(address: Address) -> Ask:
    """Return the function that sends requests to this node."""
    return functools.partial(query, address)


def brokers(ask: Ask) -> dict[int, bool]:
    """Return the registered brokers; True for those that are unfenced. Raises OSError, ProtocolError."""
    response = ask(DescribeClusterRequest(include_fenced_brokers=True))
    return {broker.broker_id: not broker.is_fenced for broker in response.brokers}


def controllers(ask: Ask) -> tuple[int, list[int]]:
    """Return the active controller (-1 if unknown) and all registered ones, as a controller listener reports them."""
    response = ask(DescribeClusterRequest(endpoint_type=CONTROLLER_ENDPOINTS))
    return response.controller_id, [node.broker_id for node in response.brokers]


def quorum(ask: Ask) -> QuorumView | None:
    """Return the quorum as the active controller sees it, queried through a broker; None while there is none."""
    topic = TopicData(
        METADATA_PARTITION.topic, partitions=[PartitionData(partition_index=METADATA_PARTITION.partition)]
    )
    response = ask(DescribeQuorumRequest(topics=[topic]), timeout_s=TIMEOUT_S)
    if response.error_code or not response.topics or response.topics[0].partitions[0].error_code:
        return None
    found = response.topics[0].partitions[0]
    voters = [replica.replica_id for replica in found.current_voters]
    observers = [replica.replica_id for replica in found.observers]
    end_offset = max((each.log_end_offset for each in found.current_voters), default=-1)
    # the leader's own time of fetch is its present: this host's clock may be another's
    now_ms = max((each.last_fetch_timestamp for each in found.current_voters), default=-1)
    replicas, others = (
        [
            QuorumReplica(
                each.replica_id,
                uuid_to_string(each.replica_directory_id),
                end_offset - each.log_end_offset if each.log_end_offset >= 0 else -1,
                now_ms - each.last_fetch_timestamp if each.last_fetch_timestamp >= 0 else -1,
            )
            for each in listed
        ]
        for listed in (found.current_voters, found.observers)
    )
    listeners = {
        node.node_id: (node.listeners[0].name, node.listeners[0].host, node.listeners[0].port)
        for node in response.nodes
        if node.listeners
    }
    return QuorumView(found.leader_id, found.leader_epoch, voters, observers, replicas, others, listeners)


def api_versions(ask: Ask) -> None:
    """Return if the node answers. Raises OSError, ProtocolError."""
    ask(ApiVersionsRequest(client_software_name="kafkapy", client_software_version="1"))


def unregister(ask: Ask, broker_id: int) -> None:
    """Unregister a stopped broker. Raises OSError, ProtocolError, ApiError."""
    response = ask(UnregisterBrokerRequest(broker_id=broker_id), timeout_s=UNREGISTER_TIMEOUT_S)
    if response.error_code:
        raise response_error(response.error_code, response.error_message)


def partitions(ask: Ask) -> TopicPartitions:
    """Return the partitions of all topics, from a broker's metadata. Raises OSError, ProtocolError."""
    found = TopicPartitions()
    for topic in ask(MetadataRequest(topics=None, allow_auto_topic_creation=False)).topics:
        found.topic_count += 1
        found.partition_count += len(topic.partitions)
        found.leaders[topic.name] = {each.partition_index: each.leader_id for each in topic.partitions}
        found.isr_sizes[topic.name] = {each.partition_index: len(each.isr_nodes) for each in topic.partitions}
        for each in topic.partitions:
            name = f"{topic.name}-{each.partition_index}"
            if each.leader_id < 0:
                found.offline.append(name)
            if len(each.isr_nodes) < len(each.replica_nodes):
                found.under_replicated.append(name)
            for replica in each.replica_nodes:
                found.replica_counts[replica] = found.replica_counts.get(replica, 0) + 1
    return found


def by_min_isr(ask: Ask, found: TopicPartitions) -> tuple[list[str], list[str]]:
    """Return the partitions with fewer replicas in sync than min.insync.replicas, and those with just as many.

    As `topic-partition`; one that has as many refuses acks=all after the loss of one. A topic whose configs this user
    may not see counts with 1. Raises OSError, ProtocolError.
    """
    under, at = [], []
    least = dict(_min_isrs(ask, list(found.isr_sizes)))
    for topic, sizes in found.isr_sizes.items():
        for partition, size in sizes.items():
            if size < least.get(topic, 1):
                under.append(f"{topic}-{partition}")
            elif size == least.get(topic, 1):
                at.append(f"{topic}-{partition}")
    return under, at


def _min_isrs(ask: Ask, topics: list[str]) -> Iterator[tuple[str, int]]:
    for start in range(0, len(topics), TOPICS_AT_ONCE):
        resources = [
            DescribeConfigsResource(TOPIC_RESOURCE, resource_name=name, configuration_keys=[MIN_ISR])
            for name in topics[start : start + TOPICS_AT_ONCE]
        ]
        for result in ask(DescribeConfigsRequest(resources=resources)).results:
            for each in result.configs:
                if each.name == MIN_ISR and each.value:
                    yield result.resource_name, int(each.value)


def reassigning(ask: Ask) -> list[str]:
    """Return the partitions that move, as `topic-partition`. Raises OSError, ProtocolError, ApiError."""
    response = ask(ListPartitionReassignmentsRequest(topics=None))
    if response.error_code:
        raise response_error(response.error_code, response.error_message)
    return [f"{topic.name}-{each.partition_index}" for topic in response.topics for each in topic.partitions]


def _read(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes. Raises ProtocolError if the connection ends before that."""
    data = bytearray()
    while len(data) < size:
        received = connection.recv(min(size - len(data), 1 << 16))
        if not received:
            raise ProtocolError("the connection was closed before the response was there")
        data += received
    return bytes(data)
