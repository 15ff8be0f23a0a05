"""The table of served APIs and versions. ApiVersions lists it, and the router serves nothing else.

An API is listed with the versions whose semantics are implemented. Produce is listed from 0 although 0 to 2 are
refused: without them librdkafka assumes a broker without message format 2 and stops compressing (KAFKA-18659).
"""

from collections.abc import Mapping
from typing import Final

from kafkapy.dataclass import dataclass
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
    """One row: the handler's module below kafkapy, the versions listed, the first version served, the element limit."""

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
        _row(0, "handlers.data.produce", listed_min=0, max_elements=PRODUCED),
        _row(1, "handlers.data.fetch", max_elements=FETCHED),
        _row(2, "handlers.data.list_offsets"),
        _row(3, "handlers.topics.metadata"),
        _row(8, "handlers.groups.offset_commit"),
        _row(9, "handlers.groups.offset_fetch"),
        _row(10, "handlers.groups.find_coordinator"),
        _row(11, "handlers.groups.join_group", max_elements=FEW),
        _row(12, "handlers.groups.heartbeat", max_elements=FEW),
        _row(13, "handlers.groups.leave_group", max_elements=MEMBERS),
        _row(14, "handlers.groups.sync_group", max_elements=MEMBERS),
        _row(15, "handlers.groups.describe_groups"),
        _row(16, "handlers.groups.list_groups", max_elements=FEW),
        _row(17, "handlers.security.sasl_handshake", max_elements=FEW),
        _row(18, "handlers.cluster.api_versions", max_elements=FEW),
        _row(19, "handlers.topics.create_topics", max_elements=CHANGED),
        _row(20, "handlers.topics.delete_topics", max_elements=CHANGED),
        _row(21, "handlers.data.delete_records", max_elements=CHANGED),
        # InitProducerId 6 is unstable in 4.3 (two-phase commit, KIP-939).
        _row(22, "handlers.transactions.init_producer_id", max_version=5, max_elements=FEW),
        _row(23, "handlers.data.offset_for_leader_epoch"),
        _row(24, "handlers.transactions.add_partitions_to_txn", max_elements=CHANGED),
        _row(25, "handlers.transactions.add_offsets_to_txn", max_elements=FEW),
        _row(26, "handlers.transactions.end_txn", max_elements=FEW),
        _row(27, "handlers.data.write_txn_markers", max_elements=MARKERS),
        _row(28, "handlers.transactions.txn_offset_commit", max_elements=CHANGED),
        _row(29, "handlers.security.describe_acls", max_elements=FEW),
        _row(30, "handlers.security.create_acls", max_elements=ACLS),
        _row(31, "handlers.security.delete_acls", max_elements=FEW),
        _row(32, "handlers.configs.describe_configs", max_elements=CHANGED),
        _row(33, "handlers.configs.alter_configs", max_elements=CHANGED),
        _row(34, "handlers.cluster.alter_replica_log_dirs", max_elements=CHANGED),
        _row(35, "handlers.cluster.describe_log_dirs", max_elements=FETCHED),
        _row(36, "handlers.security.sasl_authenticate", max_elements=FEW),
        _row(37, "handlers.topics.create_partitions", max_elements=CHANGED),
        _row(38, "handlers.security.create_delegation_token", max_elements=FEW),
        _row(39, "handlers.security.renew_delegation_token", max_elements=FEW),
        _row(40, "handlers.security.expire_delegation_token", max_elements=FEW),
        _row(41, "handlers.security.describe_delegation_token", max_elements=FEW),
        _row(42, "handlers.groups.delete_groups"),
        _row(43, "handlers.cluster.elect_leaders"),
        _row(44, "handlers.configs.incremental_alter_configs", max_elements=CHANGED),
        _row(45, "handlers.cluster.alter_partition_reassignments", max_elements=REASSIGNED),
        _row(46, "handlers.cluster.list_partition_reassignments"),
        _row(47, "handlers.groups.offset_delete"),
        _row(48, "handlers.security.describe_client_quotas", max_elements=FEW),
        _row(49, "handlers.security.alter_client_quotas", max_elements=CHANGED),
        _row(50, "handlers.security.describe_user_scram_credentials", max_elements=MEMBERS),
        _row(51, "handlers.security.alter_user_scram_credentials", max_elements=CHANGED),
        _row(55, "handlers.cluster.describe_quorum", max_elements=FEW),
        _row(57, "handlers.cluster.update_features", max_elements=FEW),
        _row(60, "handlers.cluster.describe_cluster", max_elements=FEW),
        _row(61, "handlers.data.describe_producers"),
        _row(64, "handlers.cluster.unregister_broker", max_elements=FEW),
        _row(65, "handlers.transactions.describe_transactions"),
        _row(66, "handlers.transactions.list_transactions", max_elements=FEW),
        _row(68, "handlers.groups.consumer_group_heartbeat", max_elements=CHANGED),
        _row(69, "handlers.groups.consumer_group_describe"),
        _row(71, "handlers.configs.get_telemetry_subscriptions", max_elements=FEW),
        _row(72, "handlers.configs.push_telemetry", max_elements=FEW),
        _row(74, "handlers.configs.list_config_resources", max_elements=FEW),
        _row(75, "handlers.topics.describe_topic_partitions"),
        _row(80, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(81, "handlers.cluster.raft_requests", max_elements=FEW),
    )
}
"""The broker listeners' APIs by API key, ascending: the order in which ApiVersions lists them."""

TELEMETRY_APIS = frozenset((71, 72))
"""Listed and served only while there is a receiver of client metrics, as in Apache Kafka."""

CONTROLLER_APIS: dict[int, ServedApi] = {
    row.api_key: row
    for row in (
        # Fetch 11 and older do not say which epoch was fetched last (KIP-595).
        _row(1, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(17, "handlers.security.sasl_handshake", max_elements=FEW),
        _row(18, "handlers.cluster.api_versions", max_elements=FEW),
        _row(19, "handlers.topics.create_topics", max_elements=CHANGED),
        _row(20, "handlers.topics.delete_topics", max_elements=CHANGED),
        _row(29, "handlers.security.describe_acls", max_elements=FEW),
        _row(30, "handlers.security.create_acls", max_elements=ACLS),
        _row(31, "handlers.security.delete_acls", max_elements=FEW),
        _row(32, "handlers.configs.describe_configs", max_elements=CHANGED),
        _row(33, "handlers.configs.alter_configs", max_elements=CHANGED),
        _row(36, "handlers.security.sasl_authenticate", max_elements=FEW),
        _row(37, "handlers.topics.create_partitions", max_elements=CHANGED),
        _row(38, "handlers.security.create_delegation_token", max_elements=FEW),
        _row(39, "handlers.security.renew_delegation_token", max_elements=FEW),
        _row(40, "handlers.security.expire_delegation_token", max_elements=FEW),
        _row(43, "handlers.cluster.elect_leaders"),
        _row(44, "handlers.configs.incremental_alter_configs", max_elements=CHANGED),
        _row(45, "handlers.cluster.alter_partition_reassignments", max_elements=REASSIGNED),
        _row(46, "handlers.cluster.list_partition_reassignments"),
        _row(49, "handlers.security.alter_client_quotas", max_elements=CHANGED),
        _row(51, "handlers.security.alter_user_scram_credentials", max_elements=CHANGED),
        _row(52, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(53, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(54, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(55, "handlers.cluster.describe_quorum", max_elements=FEW),
        _row(56, "handlers.controller.alter_partition"),
        _row(57, "handlers.cluster.update_features", max_elements=FEW),
        _row(58, "serving.envelope", max_elements=FEW),
        _row(59, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(60, "handlers.cluster.describe_controllers", max_elements=FEW),
        _row(62, "handlers.controller.broker_registration", max_elements=FEW),
        _row(63, "handlers.controller.broker_heartbeat"),
        _row(64, "handlers.cluster.unregister_broker", max_elements=FEW),
        _row(67, "handlers.controller.allocate_producer_ids", max_elements=FEW),
        _row(70, "handlers.controller.controller_registration", max_elements=FEW),
        _row(73, "handlers.controller.assign_replicas_to_dirs"),
        _row(80, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(81, "handlers.cluster.raft_requests", max_elements=FEW),
        _row(82, "handlers.cluster.raft_requests", max_elements=FEW),
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

UNCOUNTED: Final = frozenset((52, 53, 54, 58, 59, 80, 81, 82))
"""What voters of the quorum ask each other, which others wait for; and the Envelope, whose content is counted."""


@dataclass(frozen=True, slots=True)
class Parking:
    """How the requests of an API that wait for other requests share the room for such.

    share: of that room, how much may be in use with them. Anyone who may read can fill the fetches' with some
    connections, and wait for ever; that leaves writes and rebalances theirs.
    time_limit: the field with the time for which they wait; None if they cannot be answered without waiting.
    is_prompt: with that field 0 they wait for nothing that other requests do. A Produce may be verified first.
    """

    share: float
    time_limit: str | None = None
    is_prompt: bool = False


PARKED: Final[Mapping[int, Parking]] = {
    0: Parking(0.75, "timeout_ms"),  # Produce
    1: Parking(0.5, "max_wait_ms", is_prompt=True),  # Fetch
    11: Parking(1.0),  # JoinGroup
    14: Parking(1.0),  # SyncGroup
    21: Parking(0.75, "timeout_ms", is_prompt=True),  # DeleteRecords
    24: Parking(1.0),  # AddPartitionsToTxn
}
"""By API key. AddPartitionsToTxn: what has room on another broker waits for it, and the other way round."""
