"""The table of served APIs and versions. ApiVersions lists it, and the router serves nothing else.

An API is listed with the versions whose semantics are implemented. Produce is listed from 0 although 0 to 2 are
refused: without them librdkafka assumes a broker without message format 2 and stops compressing (KAFKA-18659).
"""

from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.protocol.api import APIS

MANY: Final = 100_000
"""The maximum number of elements (array entries and tagged fields) of a request, unless its row has another.

An element takes up to 4 us to decode and 0.4 KB of memory, so a request takes at most 40 MB beside its bytes. Requests
with 10,000 topics or partitions stay far below the limit. A deviation: Apache Kafka bounds bytes only.
"""
FEW: Final = 1_000
"""For requests with few elements: a version, filters, the protocols of a member."""
MEMBERS: Final = 10_000
"""For requests about the members of one group, which are decided together."""
PRODUCED: Final = 20_000
"""For Produce, which is decoded and carried out in one turn: topics and partitions."""
FETCHED: Final = 30_000
"""For Fetch, and for filters of partitions, which are handled in one turn: 10,000 topics and their partitions."""
CHANGED: Final = 20_000
"""For changes of metadata, of which one has at most 10,000 records; and for DescribeConfigs: a resource has many."""
REASSIGNED: Final = 60_000
"""For reassignments, where a partition's target is an array of its own: 10,000 partitions of five replicas."""
MARKERS: Final = 5_000
"""For WriteTxnMarkers, which other brokers send: each marker is a batch to append."""
ACLS: Final = 20_000
"""For CreateAcls: above the number that a request may create, so that a larger one is answered with the reason."""


class ServedApi(NamedTuple):
    """One row: the module in kafkapy.handlers, the versions listed, the first version served, the element limit."""

    api_key: int
    handler: str
    listed_min: int
    max_version: int
    served_min: int
    max_elements: int


def _row(
    api_key: int,
    handler: str,
    *,
    max_version: int | None = None,
    listed_min: int | None = None,
    max_elements: int = MANY,
) -> ServedApi:
    api = APIS[api_key]
    return ServedApi(
        api_key=api_key,
        handler=handler,
        listed_min=api.min_version if listed_min is None else listed_min,
        max_version=api.max_version if max_version is None else max_version,
        served_min=api.min_version,
        max_elements=max_elements,
    )


BROKER_APIS: dict[int, ServedApi] = {
    row.api_key: row
    for row in (
        _row(0, "produce", listed_min=0, max_elements=PRODUCED),
        _row(1, "fetch", max_elements=FETCHED),
        _row(2, "list_offsets"),
        _row(3, "metadata"),
        _row(8, "offset_commit"),
        _row(9, "offset_fetch"),
        _row(10, "find_coordinator"),
        _row(11, "join_group", max_elements=FEW),
        _row(12, "heartbeat", max_elements=FEW),
        _row(13, "leave_group", max_elements=MEMBERS),
        _row(14, "sync_group", max_elements=MEMBERS),
        _row(15, "describe_groups"),
        _row(16, "list_groups", max_elements=FEW),
        _row(17, "sasl_handshake", max_elements=FEW),
        _row(18, "api_versions", max_elements=FEW),
        _row(19, "create_topics", max_elements=CHANGED),
        _row(20, "delete_topics", max_elements=CHANGED),
        _row(21, "delete_records", max_elements=CHANGED),
        # InitProducerId 6 is unstable in 4.3 (two-phase commit, KIP-939).
        _row(22, "init_producer_id", max_version=5, max_elements=FEW),
        _row(23, "offset_for_leader_epoch"),
        _row(24, "add_partitions_to_txn", max_elements=CHANGED),
        _row(25, "add_offsets_to_txn", max_elements=FEW),
        _row(26, "end_txn", max_elements=FEW),
        _row(27, "write_txn_markers", max_elements=MARKERS),
        _row(28, "txn_offset_commit", max_elements=CHANGED),
        _row(29, "describe_acls", max_elements=FEW),
        _row(30, "create_acls", max_elements=ACLS),
        _row(31, "delete_acls", max_elements=FEW),
        _row(32, "describe_configs", max_elements=CHANGED),
        _row(33, "alter_configs", max_elements=CHANGED),
        _row(34, "alter_replica_log_dirs", max_elements=CHANGED),
        _row(35, "describe_log_dirs", max_elements=FETCHED),
        _row(36, "sasl_authenticate", max_elements=FEW),
        _row(37, "create_partitions", max_elements=CHANGED),
        _row(38, "create_delegation_token", max_elements=FEW),
        _row(39, "renew_delegation_token", max_elements=FEW),
        _row(40, "expire_delegation_token", max_elements=FEW),
        _row(41, "describe_delegation_token", max_elements=FEW),
        _row(42, "delete_groups"),
        _row(43, "elect_leaders"),
        _row(44, "incremental_alter_configs", max_elements=CHANGED),
        _row(45, "alter_partition_reassignments", max_elements=REASSIGNED),
        _row(46, "list_partition_reassignments"),
        _row(47, "offset_delete"),
        _row(48, "describe_client_quotas", max_elements=FEW),
        _row(49, "alter_client_quotas", max_elements=CHANGED),
        _row(50, "describe_user_scram_credentials", max_elements=MEMBERS),
        _row(51, "alter_user_scram_credentials", max_elements=CHANGED),
        _row(55, "describe_quorum", max_elements=FEW),
        _row(57, "update_features", max_elements=FEW),
        _row(60, "describe_cluster", max_elements=FEW),
        _row(61, "describe_producers"),
        _row(64, "unregister_broker", max_elements=FEW),
        _row(65, "describe_transactions"),
        _row(66, "list_transactions", max_elements=FEW),
        _row(68, "consumer_group_heartbeat", max_elements=CHANGED),
        _row(69, "consumer_group_describe"),
        _row(71, "get_telemetry_subscriptions", max_elements=FEW),
        _row(72, "push_telemetry", max_elements=FEW),
        _row(74, "list_config_resources", max_elements=FEW),
        _row(75, "describe_topic_partitions"),
        _row(80, "raft_requests", max_elements=FEW),
        _row(81, "raft_requests", max_elements=FEW),
    )
}
"""The broker listeners' APIs by API key, ascending: the order in which ApiVersions lists them."""

TELEMETRY_APIS = frozenset((71, 72))
"""Listed and served only while there is a receiver of client metrics, as in Apache Kafka."""

CONTROLLER_APIS: dict[int, ServedApi] = {
    row.api_key: row
    for row in (
        # Fetch 11 and older do not say which epoch was fetched last (KIP-595).
        _row(1, "raft_requests", max_elements=FEW),
        _row(17, "sasl_handshake", max_elements=FEW),
        _row(18, "api_versions", max_elements=FEW),
        _row(19, "create_topics", max_elements=CHANGED),
        _row(20, "delete_topics", max_elements=CHANGED),
        _row(29, "describe_acls", max_elements=FEW),
        _row(30, "create_acls", max_elements=ACLS),
        _row(31, "delete_acls", max_elements=FEW),
        _row(32, "describe_configs", max_elements=CHANGED),
        _row(33, "alter_configs", max_elements=CHANGED),
        _row(36, "sasl_authenticate", max_elements=FEW),
        _row(37, "create_partitions", max_elements=CHANGED),
        _row(38, "create_delegation_token", max_elements=FEW),
        _row(39, "renew_delegation_token", max_elements=FEW),
        _row(40, "expire_delegation_token", max_elements=FEW),
        _row(43, "elect_leaders"),
        _row(44, "incremental_alter_configs", max_elements=CHANGED),
        _row(45, "alter_partition_reassignments", max_elements=REASSIGNED),
        _row(46, "list_partition_reassignments"),
        _row(49, "alter_client_quotas", max_elements=CHANGED),
        _row(51, "alter_user_scram_credentials", max_elements=CHANGED),
        _row(52, "raft_requests", max_elements=FEW),
        _row(53, "raft_requests", max_elements=FEW),
        _row(54, "raft_requests", max_elements=FEW),
        _row(55, "describe_quorum", max_elements=FEW),
        _row(56, "alter_partition"),
        _row(57, "update_features", max_elements=FEW),
        _row(58, "envelope", max_elements=FEW),
        _row(59, "raft_requests", max_elements=FEW),
        _row(60, "describe_controllers", max_elements=FEW),
        _row(62, "broker_registration", max_elements=FEW),
        _row(63, "broker_heartbeat"),
        _row(64, "unregister_broker", max_elements=FEW),
        _row(67, "allocate_producer_ids", max_elements=FEW),
        _row(70, "controller_registration", max_elements=FEW),
        _row(73, "assign_replicas_to_dirs"),
        _row(80, "raft_requests", max_elements=FEW),
        _row(81, "raft_requests", max_elements=FEW),
        _row(82, "raft_requests", max_elements=FEW),
    )
}
"""The APIs of the controller listener, by API key."""

FORWARDED_APIS = frozenset((19, 20, 30, 31, 37, 43, 45, 46, 49, 51, 55, 57, 64, 80, 81))
"""The APIs whose requests a broker forwards unchanged if it is not the active controller."""

FORWARDED_IN_PART_APIS = frozenset((33, 38, 39, 40, 44))
"""AlterConfigs and IncrementalAlterConfigs: a broker handles its own resources and forwards the rest.

CreateDelegationToken, RenewDelegationToken, ExpireDelegationToken: a broker refuses what it can and forwards the rest.
"""

FORWARDABLE_APIS = FORWARDED_APIS | FORWARDED_IN_PART_APIS
"""The APIs of which a broker lists the versions that the active controller has, too."""

LEGACY_APIS = frozenset((0, 1, 2, 19, 20))
"""Served from version 0 on by handlers.legacy, if kafkapy.legacy.clients.enable is set: for clients from 0.9 on."""
