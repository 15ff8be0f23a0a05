"""The table of served APIs, with all facts about an API in its row. ApiVersions lists it; nothing else is served.

A row's versions are literals: a spec that is raised for a new version changes nothing until the row is raised, after
the handler knows the version. An API is listed with the versions whose semantics are implemented. Produce is listed
from 0 although 0 to 2 are refused: without them librdkafka assumes a broker without message format 2 and stops
compressing (KAFKA-18659).
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final

from kafkapy.dataclass import dataclass

MANY: Final = 100_000
"""The maximum number of elements (array entries and tagged fields) of a request, unless its row has another.

An element takes up to 4 us to decode and 0.4 KB of memory, so a request takes at most 40 MB beside its bytes. Requests
with 10,000 topics or partitions stay far below the limit. Deviation: Apache Kafka refuses an array of more than
1,000,000 elements, and more than 10,000 tagged fields. Here all elements of a request count together, and fewer are
allowed, because each takes more memory than its bytes.
"""
FEW: Final = 1_000
"""For requests with few elements: a version, filters, the protocols of a member."""
MEMBERS: Final = 10_000
"""For requests about the members of one group, which are decided together."""
PRODUCED: Final = 20_000
"""For Produce, which is decoded in one turn: topics and partitions."""
FETCHED: Final = 30_000
"""For Fetch, and for filters of partitions, which are handled in one turn: 10,000 topics and their partitions."""
CHANGED: Final = 20_000
"""For changes of metadata, of which one has at most 10,000 records; and for DescribeConfigs: a resource has many."""
OWNED_TASKS: Final = 65_000
"""For heartbeats of streams groups: a member may have all 20,000 tasks of a group, and report two offsets of each."""
REASSIGNED: Final = 60_000
"""For reassignments, where a partition's target is an array of its own: 10,000 partitions of five replicas."""
MARKERS: Final = 5_000
"""For WriteTxnMarkers, which other brokers send: each marker is a batch to append."""
ACLS: Final = 20_000
"""For CreateAcls: above the number that a request may create, so that a larger one is answered with the reason."""


class Listener(Enum):
    """On which listeners an API is served."""

    BROKER = "broker"
    CONTROLLER = "controller"
    BOTH = "both"


class Forwarding(Enum):
    """What a broker that is not the active controller does with a client's request."""

    NONE = "none"
    """It handles the request."""
    WHOLE = "whole"
    """It forwards the request unchanged, in an Envelope."""
    IN_PART = "in part"
    """Its handler forwards the rest: what is not its own resource (configs), what it need not refuse (tokens)."""


@dataclass(frozen=True, slots=True)
class Parking:
    """The share of an API's parked requests in the room for all parked requests.

    share: of that room, how much may be in use with them. Anyone who may read can fill the fetches' with some
    connections, and wait for ever; that leaves writes and rebalances theirs.
    time_limit: the field with the time for which they wait; None if they cannot be answered without waiting.
    is_prompt: with that field 0 they wait for nothing that other requests do. A Produce may be verified first.
    """

    share: float
    time_limit: str | None = None
    is_prompt: bool = False


Levels = tuple[tuple[str, str], ...]
"""Nested arrays, the outermost first: (attribute of the request, attribute of the response with an entry for each)."""


@dataclass(frozen=True, slots=True)
class Parts:
    """How an API's large requests are split. `either`: alternatives; the first with a filled outermost array is used.

    is_prepared: the handler's module has `prepare(services, context, request)`, which is called with a large request
    before it is split, for checks of the whole request (such as duplicates).
    """

    either: tuple[Levels, ...]
    is_prepared: bool = False


@dataclass(frozen=True, slots=True)
class ServedApi:
    """One row of the table.

    handler: its module below kafkapy. listed_min: what ApiVersions says; older than served_min only for Produce.
    max_elements: the bound of array entries and tagged fields of a request. is_counted: what its requests decode to is
    counted as request memory; `parking`: what holds for those that wait for other requests. response_bytes: what the
    response of a large one takes beyond the part of the request's elements, also counted. writer: the module below
    kafkapy whose `write` encodes large responses, in place of their own. in_turns: its handler gives way to the loop
    between turns of 4 ms (runtime/turns.py). parts: its large requests are served in parts (serving/large_requests.py).
    One with neither is handled in one turn, within its max_elements. is_between_nodes: sent by other nodes, so that no
    client quota holds for it. is_telemetry: listed and served only while there is a receiver of client metrics, as in
    Apache Kafka. has_legacy: handlers.legacy serves the versions that Kafka 4 removed, if kafkapy.legacy.clients.enable
    is set, for clients from 0.9 on.
    """

    api_key: int
    listener: Listener
    handler: str
    served_min: int
    max_version: int
    max_elements: int = MANY
    listed_from: int | None = None
    forwarding: Forwarding = Forwarding.NONE
    is_counted: bool = True
    parking: Parking | None = None
    response_bytes: int = 0
    writer: str | None = None
    in_turns: bool = False
    parts: Parts | None = None
    is_between_nodes: bool = False
    is_telemetry: bool = False
    has_legacy: bool = False

    @property
    def listed_min(self) -> int:
        return self.served_min if self.listed_from is None else self.listed_from


BROKER, CONTROLLER, BOTH = Listener.BROKER, Listener.CONTROLLER, Listener.BOTH
WHOLE, IN_PART = Forwarding.WHOLE, Forwarding.IN_PART
MAX_DESCRIBED_BYTES: Final = 32 << 20
"""The configs in a response, about: of 6,000 topics with synonyms and documentation, of 12,000 without the latter. They
are made one at a time."""
PRODUCES: Final = Parking(0.75, "timeout_ms")
FETCHES: Final = Parking(0.5, "max_wait_ms", is_prompt=True)
DELETIONS: Final = Parking(0.75, "timeout_ms", is_prompt=True)
REBALANCES: Final = Parking(1.0)
VERIFICATIONS: Final = Parking(1.0)
"""AddPartitionsToTxn: what has room on another broker waits for it, and the other way round."""
OF_TOPICS: Final = Parts(((("topics", "topics"),),), is_prepared=True)
OF_PARTITIONS: Final = Parts(((("topics", "topics"), ("partitions", "partitions")),))
OFFSETS_OF_GROUP: Final = (("topics", "topics"), ("partition_indexes", "partitions"))
OF_OFFSETS: Final = Parts(((("groups", "groups"), *OFFSETS_OF_GROUP), OFFSETS_OF_GROUP))

ROWS: Final = (
    ServedApi(
        0,
        BROKER,
        "handlers.data.produce",
        3,
        13,
        PRODUCED,
        listed_from=0,
        has_legacy=True,
        parking=PRODUCES,
        in_turns=True,
    ),
    ServedApi(1, BROKER, "handlers.data.fetch", 4, 18, FETCHED, has_legacy=True, parking=FETCHES),
    # Fetch 11 and older do not say which epoch was fetched last (KIP-595).
    ServedApi(1, CONTROLLER, "handlers.cluster.raft_requests", 4, 18, FEW, parking=FETCHES, is_between_nodes=True),
    ServedApi(2, BROKER, "handlers.data.list_offsets", 1, 11, has_legacy=True, in_turns=True),
    ServedApi(3, BROKER, "handlers.topics.metadata", 0, 13, in_turns=True, parts=OF_TOPICS),
    ServedApi(8, BROKER, "handlers.groups.offset_commit", 2, 10, parts=OF_PARTITIONS),
    ServedApi(9, BROKER, "handlers.groups.offset_fetch", 1, 10, in_turns=True, parts=OF_OFFSETS),
    ServedApi(10, BROKER, "handlers.groups.find_coordinator", 0, 6, in_turns=True),
    ServedApi(11, BROKER, "handlers.groups.join_group", 0, 9, FEW, parking=REBALANCES),
    ServedApi(12, BROKER, "handlers.groups.heartbeat", 0, 4, FEW),
    ServedApi(13, BROKER, "handlers.groups.leave_group", 0, 5, MEMBERS),
    ServedApi(14, BROKER, "handlers.groups.sync_group", 0, 5, MEMBERS, parking=REBALANCES),
    ServedApi(15, BROKER, "handlers.groups.describe_groups", 0, 6, in_turns=True),
    ServedApi(16, BROKER, "handlers.groups.list_groups", 0, 5, FEW, in_turns=True),
    ServedApi(17, BOTH, "handlers.security.sasl_handshake", 0, 1, FEW),
    ServedApi(18, BOTH, "handlers.cluster.api_versions", 0, 5, FEW),
    ServedApi(19, BOTH, "handlers.topics.create_topics", 2, 7, CHANGED, forwarding=WHOLE, has_legacy=True),
    ServedApi(20, BOTH, "handlers.topics.delete_topics", 1, 6, CHANGED, forwarding=WHOLE, has_legacy=True),
    ServedApi(21, BROKER, "handlers.data.delete_records", 0, 2, CHANGED, parking=DELETIONS, in_turns=True),
    # InitProducerId 6 is unstable in 4.3 (two-phase commit, KIP-939).
    ServedApi(22, BROKER, "handlers.transactions.init_producer_id", 0, 5, FEW),
    ServedApi(23, BROKER, "handlers.data.offset_for_leader_epoch", 2, 4, in_turns=True),
    ServedApi(
        24, BROKER, "handlers.transactions.add_partitions_to_txn", 0, 5, CHANGED, parking=VERIFICATIONS, in_turns=True
    ),
    ServedApi(25, BROKER, "handlers.transactions.add_offsets_to_txn", 0, 4, FEW),
    ServedApi(26, BROKER, "handlers.transactions.end_txn", 0, 5, FEW),
    ServedApi(27, BROKER, "handlers.data.write_txn_markers", 1, 2, MARKERS, is_between_nodes=True),
    ServedApi(28, BROKER, "handlers.transactions.txn_offset_commit", 0, 6, CHANGED),
    ServedApi(29, BOTH, "handlers.security.describe_acls", 1, 3, FEW, in_turns=True),
    ServedApi(30, BOTH, "handlers.security.create_acls", 1, 3, ACLS, forwarding=WHOLE),
    ServedApi(31, BOTH, "handlers.security.delete_acls", 1, 3, FEW, forwarding=WHOLE, in_turns=True),
    ServedApi(
        32,
        BOTH,
        "handlers.configs.describe_configs",
        1,
        4,
        CHANGED,
        response_bytes=MAX_DESCRIBED_BYTES,
        writer="handlers.configs.shared_rows",
        in_turns=True,
    ),
    ServedApi(33, BOTH, "handlers.configs.alter_configs", 0, 2, CHANGED, forwarding=IN_PART, in_turns=True),
    ServedApi(34, BROKER, "handlers.cluster.alter_replica_log_dirs", 1, 2, CHANGED, in_turns=True),
    ServedApi(35, BROKER, "handlers.cluster.describe_log_dirs", 1, 5, FETCHED, in_turns=True),
    ServedApi(36, BOTH, "handlers.security.sasl_authenticate", 0, 2, FEW),
    ServedApi(37, BOTH, "handlers.topics.create_partitions", 0, 3, CHANGED, forwarding=WHOLE),
    ServedApi(38, BOTH, "handlers.security.create_delegation_token", 1, 3, FEW, forwarding=IN_PART),
    ServedApi(39, BOTH, "handlers.security.renew_delegation_token", 1, 2, FEW, forwarding=IN_PART),
    ServedApi(40, BOTH, "handlers.security.expire_delegation_token", 1, 2, FEW, forwarding=IN_PART),
    ServedApi(41, BROKER, "handlers.security.describe_delegation_token", 1, 3, FEW, in_turns=True),
    ServedApi(42, BROKER, "handlers.groups.delete_groups", 0, 3, in_turns=True),
    ServedApi(43, BOTH, "handlers.cluster.elect_leaders", 0, 2, forwarding=WHOLE),
    ServedApi(44, BOTH, "handlers.configs.incremental_alter_configs", 0, 1, CHANGED, forwarding=IN_PART, in_turns=True),
    ServedApi(45, BOTH, "handlers.cluster.alter_partition_reassignments", 0, 1, REASSIGNED, forwarding=WHOLE),
    ServedApi(46, BOTH, "handlers.cluster.list_partition_reassignments", 0, 0, forwarding=WHOLE),
    ServedApi(47, BROKER, "handlers.groups.offset_delete", 0, 0, parts=OF_PARTITIONS),
    ServedApi(48, BROKER, "handlers.security.describe_client_quotas", 0, 1, FEW, in_turns=True),
    ServedApi(49, BOTH, "handlers.security.alter_client_quotas", 0, 1, CHANGED, forwarding=WHOLE),
    ServedApi(50, BROKER, "handlers.security.describe_user_scram_credentials", 0, 0, MEMBERS, in_turns=True),
    ServedApi(51, BOTH, "handlers.security.alter_user_scram_credentials", 0, 0, CHANGED, forwarding=WHOLE),
    ServedApi(52, CONTROLLER, "handlers.cluster.raft_requests", 0, 2, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(53, CONTROLLER, "handlers.cluster.raft_requests", 0, 1, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(54, CONTROLLER, "handlers.cluster.raft_requests", 0, 1, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(55, BOTH, "handlers.cluster.describe_quorum", 0, 2, FEW, forwarding=WHOLE),
    ServedApi(56, CONTROLLER, "handlers.controller.alter_partition", 2, 3, is_between_nodes=True),
    ServedApi(57, BOTH, "handlers.cluster.update_features", 0, 2, FEW, forwarding=WHOLE),
    ServedApi(58, CONTROLLER, "serving.envelope", 0, 0, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(59, CONTROLLER, "handlers.cluster.raft_requests", 0, 1, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(60, BROKER, "handlers.cluster.describe_cluster", 0, 2, FEW),
    ServedApi(60, CONTROLLER, "handlers.cluster.describe_controllers", 0, 2, FEW),
    ServedApi(61, BROKER, "handlers.data.describe_producers", 0, 0, in_turns=True),
    ServedApi(62, CONTROLLER, "handlers.controller.broker_registration", 0, 4, FEW, is_between_nodes=True),
    ServedApi(63, CONTROLLER, "handlers.controller.broker_heartbeat", 0, 2, is_between_nodes=True),
    ServedApi(64, BOTH, "handlers.cluster.unregister_broker", 0, 0, FEW, forwarding=WHOLE),
    ServedApi(65, BROKER, "handlers.transactions.describe_transactions", 0, 0, in_turns=True),
    ServedApi(66, BROKER, "handlers.transactions.list_transactions", 0, 2, FEW, in_turns=True),
    ServedApi(67, CONTROLLER, "handlers.controller.allocate_producer_ids", 0, 0, FEW, is_between_nodes=True),
    ServedApi(68, BROKER, "handlers.groups.consumer_group_heartbeat", 0, 1, CHANGED),
    ServedApi(69, BROKER, "handlers.groups.consumer_group_describe", 0, 1, in_turns=True),
    ServedApi(70, CONTROLLER, "handlers.controller.controller_registration", 0, 0, FEW, is_between_nodes=True),
    ServedApi(71, BROKER, "handlers.configs.get_telemetry_subscriptions", 0, 0, FEW, is_telemetry=True),
    ServedApi(72, BROKER, "handlers.configs.push_telemetry", 0, 0, FEW, is_telemetry=True, in_turns=True),
    ServedApi(73, CONTROLLER, "handlers.controller.assign_replicas_to_dirs", 0, 0, is_between_nodes=True),
    ServedApi(74, BROKER, "handlers.configs.list_config_resources", 0, 1, FEW),
    ServedApi(75, BROKER, "handlers.topics.describe_topic_partitions", 0, 0, in_turns=True),
    ServedApi(76, BROKER, "handlers.share.share_group_heartbeat", 1, 1, CHANGED),
    ServedApi(77, BROKER, "handlers.share.share_group_describe", 1, 1, in_turns=True),
    ServedApi(78, BROKER, "handlers.share.share_fetch", 1, 2, FETCHED, parking=FETCHES, in_turns=True),
    ServedApi(79, BROKER, "handlers.share.share_acknowledge", 1, 2, FETCHED, in_turns=True),
    ServedApi(80, BOTH, "handlers.cluster.raft_requests", 0, 1, FEW, forwarding=WHOLE, is_counted=False),
    ServedApi(81, BOTH, "handlers.cluster.raft_requests", 0, 0, FEW, forwarding=WHOLE, is_counted=False),
    ServedApi(82, CONTROLLER, "handlers.cluster.raft_requests", 0, 0, FEW, is_counted=False, is_between_nodes=True),
    ServedApi(83, BROKER, "handlers.share.initialize_share_group_state", 0, 0, CHANGED, in_turns=True),
    ServedApi(84, BROKER, "handlers.share.read_share_group_state", 0, 0, CHANGED, in_turns=True),
    ServedApi(85, BROKER, "handlers.share.write_share_group_state", 0, 1, MANY, in_turns=True),
    ServedApi(86, BROKER, "handlers.share.delete_share_group_state", 0, 0, CHANGED, in_turns=True),
    ServedApi(87, BROKER, "handlers.share.read_share_group_state_summary", 0, 1, CHANGED, in_turns=True),
    ServedApi(88, BROKER, "handlers.streams.streams_group_heartbeat", 0, 1, OWNED_TASKS),
    ServedApi(89, BROKER, "handlers.streams.streams_group_describe", 0, 1, in_turns=True),
    ServedApi(90, BROKER, "handlers.share.describe_share_group_offsets", 0, 1, CHANGED, in_turns=True),
    ServedApi(91, BROKER, "handlers.share.alter_share_group_offsets", 0, 0, CHANGED, in_turns=True),
    ServedApi(92, BROKER, "handlers.share.delete_share_group_offsets", 0, 0, CHANGED, in_turns=True),
    ServedApi(93, BROKER, "handlers.streams.streams_group_topology_description_update", 0, 0, CHANGED),
    ServedApi(94, BOTH, "handlers.cluster.unregister_controller", 0, 0, FEW, forwarding=WHOLE),
)
"""Ascending by API key, the order in which ApiVersions lists them. Without `is_counted` are the requests between voters
of the quorum, for which others wait, and the Envelope, whose content is counted."""

BROKER_APIS: dict[int, ServedApi] = {row.api_key: row for row in ROWS if row.listener is not CONTROLLER}
"""The APIs of the broker listeners, by API key."""
CONTROLLER_APIS: dict[int, ServedApi] = {row.api_key: row for row in ROWS if row.listener is not BROKER}
"""The APIs of the controller listener, by API key.

Deviation: Apache Kafka's controllers list DescribeDelegationToken and DescribeUserScramCredentials, too, and answer
both with UNKNOWN_SERVER_ERROR. Here they are not listed, because a client can then say what a controller lacks.
"""
FORWARDED_APIS: Final = frozenset(row.api_key for row in ROWS if row.forwarding is WHOLE)
"""The APIs whose requests a broker forwards unchanged if it is not the active controller."""
UNCOUNTED: Final = frozenset(row.api_key for row in ROWS if not row.is_counted)
PARKED: Final[Mapping[int, Parking]] = {row.api_key: row.parking for row in ROWS if row.parking is not None}
"""How those requests share their room that wait for others, by API key."""
RESPONSE_BYTES: Final = {row.api_key: row.response_bytes for row in ROWS if row.response_bytes}
"""What the responses of large requests are counted with before these are decoded, by API key."""
WRITERS: Final = {row.api_key: row.writer for row in ROWS if row.writer is not None}
"""The modules that encode large responses, by API key."""
