"""Requests to every API, sent from addresses that may do everything, nothing, or a part, and what is asked about them.

A broker sees only User:ANONYMOUS on a PLAINTEXT listener, so the ACLs go by host. `play` sends the script and yields a
row for each question that the audit log has about a request:

    Fetch 12 (tab) topics by name (tab) 127.0.0.3 (tab) READ Topic:unknown x1 Denied at INFO by ... (tab) 29

The last field: which authorization errors the response carries. Each request is answered before the next is sent, so
the lines between two responses are about the later one. What the log says of other addresses (the broker's own requests
to its controller, and their envelopes, come from 127.0.0.1) or of other APIs is left out: to create a topic for a
Metadata request, Apache Kafka sends itself a CreateTopics in the client's name, and asks again.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

from kafkapy.metadata.acl_types import AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.protocol.api import APIS, message_type
from kafkapy.protocol.field_table import FIELDS
from kafkapy.protocol.primitives import MessageStruct
from tests.support.batches import build_batch
from tests.support.client_requests import create_topic, until
from tests.support.offsets import find_coordinator
from tests.support.wire import WireClient

PROPERTIES: Final = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
NOTHING, NO_CLUSTER, NO_TOPIC, ALL = "127.0.0.3", "127.0.0.4", "127.0.0.5", "127.0.0.2"
HOSTS: Final = (NOTHING, NO_CLUSTER, NO_TOPIC, ALL)
"""In this order: the last one changes what is there."""
AUTHORIZATION_ERRORS: Final = frozenset((29, 30, 31, 53))
"""TOPIC, GROUP, CLUSTER and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
CLUSTER: Final = "kafka-cluster"
EVERY_RESOURCE: Final = (
    (ResourceType.TOPIC, "*"),
    (ResourceType.GROUP, "*"),
    (ResourceType.TRANSACTIONAL_ID, "*"),
    (ResourceType.CLUSTER, CLUSTER),
)
LINE: Final = re.compile(
    r"(?P<level>[A-Z]+) Principal = (?P<principal>\S+) is (?P<verdict>\w+) operation = (?P<operation>\w+) "
    r"from host = (?P<host>\S+) on resource = (?P<type>\w+):LITERAL:(?P<name>.*) for request = (?P<api>\w+) "
    r"with resourceRefCount = (?P<count>\d+) based on rule (?P<rule>.*)$"
)
Fields = dict[str, Any]


class Step(NamedTuple):
    api: str
    version: int
    what: str
    fields: Fields
    inside: str = ""
    """The API of the request that an Envelope carries, whose questions belong to the step, too."""


def request(api: str, fields: Fields) -> Any:
    """Return a request from its fields; structs are dicts."""
    return _struct(f"{api}Request", f"{api}Request", fields)


def _struct(message: str, struct: str, fields: Fields) -> Any:
    types = {name: kind.removeprefix("[]") for _, name, kind, *_ in map(str.split, FIELDS[message][struct])}
    make = getattr(sys.modules[message_type(message).__module__], struct)
    return make(**{name: _value(message, types[name], value) for name, value in fields.items()})


def _value(message: str, kind: str, value: Any) -> Any:
    if isinstance(value, dict):
        return _struct(message, kind, value)
    if isinstance(value, list):
        return [_value(message, kind, each) for each in value]
    return value


def play(bootstrap: str, audit: Callable[[], Iterable[str]], apis: Iterable[int]) -> Iterator[str]:
    """Set up, then send the steps of the given APIs from each host. `audit` returns the lines written since it was."""
    with WireClient(bootstrap) as client:
        topic_id = set_up(client)
    served = {APIS[key].request_name.removesuffix("Request") for key in apis}
    script = [(host, step) for host in HOSTS for step in steps(number_of(host), topic_id)]
    script += [(host, step) for host in HOSTS for step in steps_that_create(number_of(host))]
    yield from send(bootstrap, audit, [(host, step) for host, step in script if step.api in served])


def send(bootstrap: str, audit: Callable[[], Iterable[str]], script: Iterable[tuple[str, Step]]) -> Iterator[str]:
    """Send each step from its host, and yield its rows."""
    with ExitStack() as stack:
        clients = {host: stack.enter_context(WireClient(bootstrap, source_host=host)) for host in HOSTS}
        for host, step in script:
            list(audit())
            response = clients[host].call(request(step.api, step.fields), step.version)
            yield from _rows(step, host, audit(), response)


def number_of(host: str) -> str:
    return host.rpartition(".")[2]


def _rows(step: Step, host: str, lines: Iterable[str], response: Any) -> Iterator[str]:
    errors = ",".join(map(str, sorted(set(_errors(response)) & AUTHORIZATION_ERRORS))) or "none"
    matches = (match for match in map(LINE.search, lines) if match and match["host"] == host)
    requested = sorted(_question(match) for match in matches if match["api"] in (step.api, step.inside))
    for question in requested or ["nothing"]:
        yield "\t".join((f"{step.api} {step.version}", step.what, host, question, errors))


def _question(match: "re.Match[str]") -> str:
    rule = match["rule"].partition("(")[0]
    return (
        f"{match['operation']} {match['type']}:{match['name']} x{match['count']} {match['verdict']} "
        f"at {match['level']} by {rule}"
    )


def _errors(response: Any) -> Iterator[int]:
    if isinstance(response, list):
        for each in response:
            yield from _errors(each)
    elif isinstance(response, MessageStruct):
        for name in response.field_names():
            value = getattr(response, name)
            if name == "error_code":
                yield value
            else:
                yield from _errors(value)


def set_up(client: WireClient) -> bytes:
    """Make a topic, groups of each kind and the ACLs; return the topic's id."""
    topic_id = create_topic(client, "orders")
    for group in ("modern", "simple"):
        find_coordinator(client, group)
    joined = request("ConsumerGroupHeartbeat", _heartbeat(["orders"]))
    until(lambda: client.call(joined, 1).error_code == 0)
    until(lambda: not any(_errors(client.call(request("OffsetCommit", _commit("simple", "orders")), 9))))
    _begin_transaction(client)
    client.call(request("CreateAcls", {"creations": list(_acls())}), 3)
    return topic_id


def _begin_transaction(client: WireClient) -> None:
    """Leave a transaction open that has the topic."""
    init = request("InitProducerId", {"transactional_id": "open", **NO_PRODUCER})
    client.call(request("FindCoordinator", {"key_type": 1, "coordinator_keys": ["open"]}), 5)
    until(lambda: client.call(init, 5).error_code == 0)
    producer = client.call(init, 5)
    added = request("AddPartitionsToTxn", _to_txn("open", producer.producer_id, producer.producer_epoch, "orders"))
    until(lambda: not any(_errors(client.call(added, 3))))


def _acls() -> Iterator[Fields]:
    for resource_type, name in EVERY_RESOURCE:
        yield acl(resource_type, name, "*", PermissionType.ALLOW)
        yield acl(resource_type, name, NOTHING, PermissionType.DENY)
    yield acl(ResourceType.CLUSTER, CLUSTER, NO_CLUSTER, PermissionType.DENY)
    yield acl(ResourceType.TOPIC, "*", NO_TOPIC, PermissionType.DENY)


def acl(
    resource_type: ResourceType,
    name: str,
    host: str,
    permission_type: int,
    *,
    user: str = "ANONYMOUS",
    operation: AclOperation = AclOperation.ALL,
) -> Fields:
    """Return an ACL as CreateAcls has it."""
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "resource_pattern_type": PatternType.LITERAL,
        "principal": f"User:{user}",
        "host": host,
        "operation": operation,
        "permission_type": permission_type,
    }


# -- the requests -----------------------------------------------------------------------------------------------------


def steps(number: str, topic_id: bytes) -> Iterator[Step]:
    """Yield the steps for one host; `number` is in the names of what they make."""
    yield from _produce_and_fetch(topic_id)
    yield from _topics(number, topic_id)
    yield from _groups(number, topic_id)
    yield from _transactions(number)
    yield from _share_states(topic_id)
    yield from _share_groups(topic_id)
    yield from _streams_groups()
    yield from _cluster()
    yield from _configs()


def _produce_and_fetch(topic_id: bytes) -> Iterator[Step]:
    plain = build_batch([(1, None, b"v", ())])
    transactional = build_batch(
        [(1, None, b"v", ())], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    by_name = [
        {"name": "orders", "partition_data": [{"index": 0, "records": plain}, {"index": 9, "records": plain}]},
        {"name": "unknown", "partition_data": [{"index": 0, "records": plain}]},
    ]
    hidden = [{"name": "unknown", "partition_data": [{"index": 0, "records": transactional}]}]
    by_id = [{"topic_id": topic_id, "partition_data": [{"index": 0, "records": plain}]}]
    produce: Fields = {"transactional_id": None, "acks": 1, "timeout_ms": 1000}
    yield Step("Produce", 12, "topics by name", {**produce, "topic_data": by_name})
    yield Step("Produce", 13, "a topic by id", {**produce, "topic_data": by_id})
    with_id = {**produce, "transactional_id": "t", "topic_data": [*by_name, *hidden][1:]}
    yield Step("Produce", 12, "a transactional batch for an unknown topic", with_id)
    without = {**produce, "topic_data": hidden}
    yield Step("Produce", 12, "a transactional batch without transactional id", without)
    fetched = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000}]
    topics = [
        {"topic": "orders", "partitions": [*fetched, {**fetched[0], "partition": 9}]},
        {"topic": "unknown", "partitions": fetched},
    ]
    fetch: Fields = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1000}
    yield Step("Fetch", 12, "topics by name", {**fetch, "topics": topics})
    yield Step("Fetch", 17, "a topic by id", {**fetch, "topics": [{"topic_id": topic_id, "partitions": fetched}]})
    yield Step("Fetch", 12, "as a replica", {**fetch, "replica_id": 1, "topics": topics[:1]})
    requested = [{"partition_index": 0, "timestamp": -1}]
    named = [{"name": "orders", "partitions": requested}, {"name": "unknown", "partitions": requested}]
    yield Step("ListOffsets", 7, "two topics", {"replica_id": -1, "topics": named})
    epochs = [{"partition": 0, "current_leader_epoch": -1, "leader_epoch": 0}]
    yield Step(
        "OffsetForLeaderEpoch", 4, "two topics",
        {"topics": [{"topic": "orders", "partitions": epochs}, {"topic": "unknown", "partitions": epochs}]},
    )  # fmt: skip
    deleted = [{"partition_index": 0, "offset": 0}]
    yield Step(
        "DeleteRecords", 2, "two topics",
        {"topics": [{"name": name, "partitions": deleted} for name in ("orders", "unknown")], "timeout_ms": 1000},
    )  # fmt: skip
    producers = [{"name": name, "partition_indexes": [0]} for name in ("orders", "unknown", "no topic!")]
    yield Step("DescribeProducers", 0, "three topics", {"topics": producers})


def _topics(number: str, topic_id: bytes) -> Iterator[Step]:
    operations = {"include_topic_authorized_operations": True, "include_cluster_authorized_operations": True}
    orders, unknown = {"name": "orders"}, {"name": "unknown"}
    yield Step("Metadata", 12, "all topics", {"topics": None})
    yield Step("Metadata", 12, "topics by name", {"topics": [orders, unknown], "allow_auto_topic_creation": False})
    by_id = [{"topic_id": topic_id, "name": None}, {"topic_id": b"x" * 16, "name": None}]
    yield Step("Metadata", 12, "topics by id", {"topics": by_id, "allow_auto_topic_creation": False})
    yield Step("Metadata", 9, "with operations", {"topics": [orders], **operations})
    yield Step("DescribeTopicPartitions", 0, "all topics", {})
    named = [orders, unknown, {"name": "__consumer_offsets"}]
    yield Step("DescribeTopicPartitions", 0, "three topics", {"topics": named})
    created = [
        {"name": name, "num_partitions": 1, "replication_factor": 1}
        for name in (f"made-{number}", f"other-{number}", "twice", "twice", "__cluster_metadata")
    ]
    yield Step("CreateTopics", 7, "new ones", {"topics": created, "timeout_ms": 10_000})
    yield Step("CreateTopics", 4, "for trial", {"topics": created[:1], "timeout_ms": 10_000, "validate_only": True})
    grown = [{"name": name, "count": 2, "assignments": None} for name in ("orders", "unknown")]
    yield Step("CreatePartitions", 3, "for trial", {"topics": grown, "timeout_ms": 10_000, "validate_only": True})
    deleted = [{"name": f"made-{number}"}, {"name": "unknown"}, {"topic_id": b"x" * 16, "name": None}]
    yield Step("DeleteTopics", 6, "by name and id", {"topics": deleted, "timeout_ms": 10_000})
    names = [f"other-{number}", "twice", "twice"]
    yield Step("DeleteTopics", 5, "by name", {"topic_names": names, "timeout_ms": 10_000})


def _groups(number: str, topic_id: bytes) -> Iterator[Step]:
    group = f"group-{number}"
    yield Step("FindCoordinator", 5, "groups", {"key_type": 0, "coordinator_keys": ["modern", "simple"]})
    yield Step("FindCoordinator", 3, "a group", {"key_type": 0, "key": "simple"})
    joining = {
        "group_id": group,
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": b""}],
    }
    yield Step("JoinGroup", 9, "a new member", joining)
    yield Step("SyncGroup", 3, "a member that is none", {"group_id": group, "generation_id": 1, "member_id": "m"})
    yield Step("Heartbeat", 4, "a member that is none", {"group_id": group, "generation_id": 1, "member_id": "m"})
    yield Step("LeaveGroup", 5, "a member that is none", {"group_id": group, "members": [{"member_id": "m"}]})
    both = {"groups": ["simple", "nowhere"], "include_authorized_operations": True}
    yield Step("DescribeGroups", 5, "two groups", both)
    yield Step("ListGroups", 5, "consumer groups", {"types_filter": ["consumer"]})
    yield Step("OffsetCommit", 9, "two topics", _commit("simple", "orders", "unknown"))
    by_id = {"topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 0}]}
    yield Step("OffsetCommit", 10, "a topic by id", {**_commit("simple"), "topics": [by_id]})
    named = [{"name": name, "partition_indexes": [0]} for name in ("orders", "unknown")]
    fetched = [{"group_id": "simple", "topics": named}, {"group_id": "modern", "topics": None}]
    yield Step("OffsetFetch", 9, "two groups", {"groups": fetched})
    yield Step("OffsetFetch", 7, "all of a group", {"group_id": "simple", "topics": None})
    partitions = [{"partition_index": 0}]
    removed = [{"name": name, "partitions": partitions} for name in ("unknown", "absent")]
    yield Step("OffsetDelete", 0, "two topics", {"group_id": "simple", "topics": removed})
    yield Step("DeleteGroups", 2, "two groups", {"groups_names": ["nowhere", "elsewhere", "nowhere"]})
    yield Step("ConsumerGroupHeartbeat", 1, "two topics", {**_heartbeat(["orders", "unknown"]), "member_epoch": 77})
    described = {"group_ids": ["modern", "nowhere"], "include_authorized_operations": True}
    yield Step("ConsumerGroupDescribe", 1, "two groups", described)


def _transactions(number: str) -> Iterator[Step]:
    own, no_producer = f"t-{number}", {"producer_id": 7, "producer_epoch": 0}
    yield Step("FindCoordinator", 5, "transactions", {"key_type": 1, "coordinator_keys": ["open", own]})
    yield Step("InitProducerId", 5, "an idempotent producer", {"transactional_id": None, **NO_PRODUCER})
    yield Step("InitProducerId", 5, "a transactional producer", {"transactional_id": own, **NO_PRODUCER})
    partitions = _to_txn(own, 7, 0, "orders", "unknown", "__consumer_offsets")
    yield Step("AddPartitionsToTxn", 3, "three topics", partitions)
    topics = [{"name": "orders", "partitions": [0]}]
    verified = {"transactional_id": "open", **no_producer, "verify_only": True, "topics": topics}
    yield Step("AddPartitionsToTxn", 5, "as a broker", {"transactions": [verified]})
    transactional = {"transactional_id": own, **no_producer}
    yield Step("AddOffsetsToTxn", 4, "a group", {**transactional, "group_id": "simple"})
    yield Step("EndTxn", 4, "of another producer", {**transactional, "committed": True})
    offsets = [{"partition_index": 0, "committed_offset": 0}]
    committed = [{"name": name, "partitions": offsets} for name in ("orders", "unknown")]
    committing = {**transactional, "group_id": "simple", "topics": committed}
    yield Step("TxnOffsetCommit", 3, "two topics", committing)
    markers = [{**no_producer, "topics": [{"name": "unknown", "partition_indexes": [0]}]}]
    yield Step("WriteTxnMarkers", 1, "to an unknown topic", {"markers": markers})
    yield Step("DescribeTransactions", 0, "two", {"transactional_ids": ["open", "nowhere"]})
    yield Step("ListTransactions", 1, "all", {})


def _share_states(topic_id: bytes) -> Iterator[Step]:
    """Yield what brokers ask the share coordinator; there may be none yet."""

    def of_group(**fields: Any) -> Fields:
        return {"group_id": "queue", "topics": [{"topic_id": topic_id, "partitions": [{"partition": 0, **fields}]}]}

    yield Step("InitializeShareGroupState", 0, "a partition", of_group(state_epoch=1, start_offset=-1))
    yield Step("ReadShareGroupState", 0, "a partition", of_group(leader_epoch=1))
    written: Fields = {"state_epoch": 1, "leader_epoch": 1, "start_offset": 0, "state_batches": []}
    yield Step("WriteShareGroupState", 1, "a partition", of_group(**written))
    yield Step("ReadShareGroupStateSummary", 1, "a partition", of_group(leader_epoch=1))
    yield Step("DeleteShareGroupState", 0, "a partition", of_group())


def _share_groups(topic_id: bytes) -> Iterator[Step]:
    """Yield what members of share groups and tools ask."""
    heartbeat = {"group_id": "queue", "member_id": "m", "member_epoch": 0, "subscribed_topic_names": ["orders"]}
    yield Step("ShareGroupHeartbeat", 1, "joins", heartbeat)
    yield Step("ShareGroupDescribe", 1, "a group", {"group_ids": ["modern"], "include_authorized_operations": True})
    fetched = {"topics": [{"topic_id": topic_id, "partitions": [{"partition_index": 0}]}]}
    session: Fields = {
        "group_id": "queue",
        "member_id": "m",
        "share_session_epoch": 0,
        "max_records": 1,
        "max_wait_ms": 0,
    }
    yield Step("ShareFetch", 1, "opens a session", {**session, "max_bytes": 1_000, **fetched})
    batch = {"first_offset": 0, "last_offset": 0, "acknowledge_types": [1]}
    partitions = [{"partition_index": 0, "acknowledgement_batches": [batch]}]
    acknowledged = {"topics": [{"topic_id": topic_id, "partitions": partitions}]}
    yield Step(
        "ShareAcknowledge",
        1,
        "a record",
        {"group_id": "queue", "member_id": "m", "share_session_epoch": 1, **acknowledged},
    )
    named = {"topics": [{"topic_name": "orders", "partitions": [0]}]}
    yield Step("DescribeShareGroupOffsets", 1, "a topic", {"groups": [{"group_id": "queue", **named}]})
    moved = {"topics": [{"topic_name": "orders", "partitions": [{"partition_index": 0, "start_offset": 0}]}]}
    yield Step("AlterShareGroupOffsets", 0, "a topic", {"group_id": "queue", **moved})
    yield Step("DeleteShareGroupOffsets", 0, "a topic", {"group_id": "queue", "topics": [{"topic_name": "orders"}]})


def _joining_streams(group_id: str, *changelogs: str) -> Fields:
    """Return a heartbeat that joins a streams group, whose topology has these changelog topics."""
    subtopology = {
        "subtopology_id": "0",
        "source_topics": ["orders"],
        "state_changelog_topics": [{"name": name, "partitions": 0} for name in changelogs],
    }
    return {
        "group_id": group_id,
        "member_id": "m",
        "member_epoch": 0,
        "rebalance_timeout_ms": 1_000,
        "process_id": "p",
        "topology": {"epoch": 0, "subtopologies": [subtopology]},
        "active_tasks": [],
        "standby_tasks": [],
        "warmup_tasks": [],
    }


def _streams_groups() -> Iterator[Step]:
    """Yield what members of streams groups and tools ask."""
    yield Step("StreamsGroupHeartbeat", 1, "joins", _joining_streams("streams"))
    described = {"group_ids": ["streams", "modern"], "include_authorized_operations": True}
    yield Step("StreamsGroupDescribe", 1, "two groups", described)
    description: Fields = {"subtopologies": [], "global_stores": []}
    updated = {"group_id": "streams", "member_id": "m", "topology_epoch": 0, "topology_description": description}
    yield Step("StreamsGroupTopologyDescriptionUpdate", 0, "a description", updated)


NO_PRODUCER: Final = {"transaction_timeout_ms": 900_000, "producer_id": -1, "producer_epoch": -1}


def _to_txn(transactional_id: str, producer_id: int, producer_epoch: int, *topics: str) -> Fields:
    return {
        "v3_and_below_transactional_id": transactional_id,
        "v3_and_below_producer_id": producer_id,
        "v3_and_below_producer_epoch": producer_epoch,
        "v3_and_below_topics": [{"name": topic, "partitions": [0]} for topic in topics],
    }


def steps_that_create(number: str) -> Iterator[Step]:
    """Yield the steps after which topics come into being, whenever the broker has made them."""
    missing = [{"name": f"auto-{number}"}, {"name": f"another-{number}"}]
    operations = {"include_topic_authorized_operations": True}
    yield Step("Metadata", 12, "topics to create", {"topics": missing, **operations})
    joining = _joining_streams(f"streams-{number}", f"streams-{number}-changelog")
    yield Step("StreamsGroupHeartbeat", 1, "joins, with a topic to create", {**joining, "member_id": "n"})
    share = ["modern:AAAAAAAAAAAAAAAAAAAAAQ:0", "nonsense"]
    yield Step("FindCoordinator", 6, "share groups", {"key_type": 2, "coordinator_keys": share})


def _cluster() -> Iterator[Step]:
    yield Step("DescribeCluster", 1, "with operations", {"include_cluster_authorized_operations": True})
    yield Step("DescribeCluster", 1, "without operations", {})
    metadata = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield Step("DescribeQuorum", 2, "the metadata", {"topics": metadata})
    yield Step("DescribeLogDirs", 4, "one topic", {"topics": [{"topic": "orders", "partitions": [0]}]})
    moved = [{"path": "/nowhere", "topics": [{"name": "orders", "partitions": [0]}]}]
    yield Step("AlterReplicaLogDirs", 2, "to nowhere", {"dirs": moved})
    yield from _several_brokers()
    yield Step("DescribeUserScramCredentials", 0, "of one", {"users": [{"name": "u"}]})
    yield scram_that_cannot_be()
    yield Step("DescribeClientQuotas", 1, "of one user", {"components": [{"entity_type": "user", "match": "u"}]})
    yield quota_that_cannot_be()
    yield from _delegation_tokens()
    yield from acls_of_nobody()


def scram_that_cannot_be() -> Step:
    upsertion = {"name": "u", "mechanism": 1, "iterations": 1, "salt": b"s", "salted_password": b"p"}
    return Step("AlterUserScramCredentials", 0, "that cannot be", {"deletions": [], "upsertions": [upsertion]})


def quota_that_cannot_be() -> Step:
    entry = {"entity": [{"entity_type": "user", "entity_name": "u"}], "ops": [{"key": "no.quota", "value": 1.0}]}
    return Step("AlterClientQuotas", 1, "that cannot be", {"entries": [entry]})


def acls_of_nobody() -> Iterator[Step]:
    """Yield what lists, deletes and creates ACLs where nothing is found and nothing comes of it."""
    without_match: Fields = {
        "resource_type_filter": 1,
        "resource_name_filter": "absent",
        "pattern_type_filter": 1,
        "principal_filter": "User:nobody",
        "host_filter": None,
        "operation": 1,
        "permission_type": 1,
    }
    yield Step("DescribeAcls", 3, "of nobody", without_match)
    yield Step("DeleteAcls", 3, "of nobody", {"filters": [without_match]})
    refused = [acl(ResourceType.CLUSTER, "no cluster", "*", PermissionType.ALLOW)]
    yield Step("CreateAcls", 3, "one that cannot be", {"creations": refused})


def _several_brokers() -> Iterator[Step]:
    """Yield what changes nothing where there is one broker."""
    partitions = [{"partition_index": 7, "replicas": None}]
    cancelled = [{"name": "orders", "partitions": partitions}]
    yield Step("AlterPartitionReassignments", 1, "nothing to cancel", {"topics": cancelled})
    listed = [{"name": "orders", "partition_indexes": [0]}]
    yield Step("ListPartitionReassignments", 0, "of one topic", {"topics": listed})
    yield Step("ListPartitionReassignments", 0, "all", {"topics": None})
    elected = [{"topic": "orders", "partitions": [0]}]
    yield Step("ElectLeaders", 2, "preferred", {"election_type": 0, "topic_partitions": elected})
    yield Step("UnregisterBroker", 0, "one that is not there", {"broker_id": 99})
    yield Step("UnregisterController", 0, "one that is not there", {"controller_id": 99})
    stranger = {"cluster_id": "another", "voter_id": 99, "voter_directory_id": bytes(15) + b"d"}
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 1}]
    yield Step("AddRaftVoter", 1, "of another cluster", {**stranger, "timeout_ms": 1_000, "listeners": listeners})
    yield Step("RemoveRaftVoter", 0, "of another cluster", stranger)
    update = [{"feature": "no.feature", "max_version_level": 1, "upgrade_type": 1}]
    yield Step("UpdateFeatures", 2, "for trial", {"feature_updates": update, "validate_only": True})


def _delegation_tokens() -> Iterator[Step]:
    """Yield what is not allowed over PLAINTEXT, before any right is asked for."""
    owner = {"owner_principal_type": "User", "owner_principal_name": "u"}
    yield Step("CreateDelegationToken", 3, "for another", {**owner, "renewers": [], "max_lifetime_ms": -1})
    yield Step("RenewDelegationToken", 2, "of nobody", {"hmac": b"h", "renew_period_ms": 1})
    yield Step("ExpireDelegationToken", 2, "of nobody", {"hmac": b"h", "expiry_time_period_ms": 1})
    yield Step("DescribeDelegationToken", 3, "all", {"owners": None})


def _configs() -> Iterator[Step]:
    topic, broker, group, logger, metrics = (2, "orders"), (4, ""), (32, "simple"), (8, "1"), (16, "m")
    named = [{"resource_type": kind, "resource_name": name} for kind, name in (topic, broker, group, logger, metrics)]
    requested = [{**each, "configuration_keys": ["x"]} for each in named]
    yield Step("DescribeConfigs", 4, "each type", {"resources": requested})
    unchanged: list[Fields] = [{**each, "configs": []} for each in named]
    without_logger = [each for each in unchanged if each["resource_type"] != 8]
    yield Step("AlterConfigs", 2, "each type, for trial", {"resources": without_logger, "validate_only": True})
    yield Step("IncrementalAlterConfigs", 1, "each type, for trial", {"resources": unchanged, "validate_only": True})
    yield Step("ListConfigResources", 1, "all", {"resource_types": []})


def _commit(group: str, *topics: str) -> Fields:
    partitions = [{"partition_index": 0, "committed_offset": 0}]
    return {
        "group_id": group,
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "topics": [{"name": topic, "partitions": partitions} for topic in topics],
    }


def _heartbeat(topics: list[str]) -> Fields:
    return {
        "group_id": "modern",
        "member_id": "member",
        "member_epoch": 0,
        "rebalance_timeout_ms": 300_000,
        "subscribed_topic_names": topics,
        "topic_partitions": [],
    }
