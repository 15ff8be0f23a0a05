"""Requests to every API of the controllers' listener, and what is asked about them: beside authorization_script.py.

No step changes anything, whoever sends it: it names clusters, brokers and topics that do not exist. The exception is
the registration of a controller that is none.
"""

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.primitives import Writer
from tests.support.authorization_script import (
    HOSTS,
    NOTHING,
    Fields,
    Step,
    acls_of_nobody,
    quota_that_cannot_be,
    request,
    scram_that_cannot_be,
    send,
    set_up,
)
from tests.support.client_requests import until
from tests.support.wire import WireClient

NOBODY: Final = 99
CLUSTER_AUTHORIZATION_FAILED: Final = 31
METADATA: Final = "__cluster_metadata"
OTHER_CLUSTER: Final = {"cluster_id": "another"}
DIRECTORY: Final = bytes(15) + b"d"


def play_controller(bootstrap: str, controller: str, audit: Callable[[], Iterable[str]]) -> Iterator[str]:
    """Set up through a broker's listener, then send the steps to the controllers' from each host."""
    with WireClient(bootstrap) as client:
        set_up(client)
    denied = request("DescribeQuorum", {"topics": []})
    with WireClient(controller, source_host=NOTHING) as client:
        until(lambda: client.call(denied, 2).error_code == CLUSTER_AUTHORIZATION_FAILED)  # its authorizer has the ACLs
    yield from send(controller, audit, [(host, step) for host in HOSTS for step in steps(host)])


def steps(host: str) -> Iterator[Step]:
    yield from _quorum()
    yield from _brokers()
    yield from _topics()
    yield from _configs()
    yield from _security()
    yield from _envelopes(host)
    yield Step("ControllerRegistration", 0, "one more", {"controller_id": NOBODY, "incarnation_id": DIRECTORY})


def _quorum() -> Iterator[Step]:
    partition: Fields = {"partition_index": 0}
    topics = [{"topic_name": METADATA, "partitions": [partition]}]
    yield Step("Vote", 2, "of another cluster", {**OTHER_CLUSTER, "voter_id": 1, "topics": topics})
    yield Step("BeginQuorumEpoch", 1, "of another cluster", {**OTHER_CLUSTER, "voter_id": 1, "topics": topics})
    yield Step("EndQuorumEpoch", 1, "of another cluster", {**OTHER_CLUSTER, "topics": topics})
    fetched = [{"topic_id": bytes(15) + b"\1", "partitions": [{"partition": 0, "partition_max_bytes": 1000}]}]
    yield Step("Fetch", 17, "of another cluster", {**OTHER_CLUSTER, "max_wait_ms": 0, "topics": fetched})
    snapshots = [{"name": METADATA, "partitions": [{"partition": 0}]}]
    yield Step("FetchSnapshot", 1, "of another cluster", {**OTHER_CLUSTER, "replica_id": NOBODY, "topics": snapshots})
    yield Step("DescribeQuorum", 2, "the metadata", {"topics": topics})
    stranger: Fields = {**OTHER_CLUSTER, "voter_id": NOBODY, "voter_directory_id": DIRECTORY}
    listeners = [{"name": "CONTROLLER", "host": "localhost", "port": 1}]
    yield Step("AddRaftVoter", 1, "of another cluster", {**stranger, "timeout_ms": 1_000, "listeners": listeners})
    yield Step("RemoveRaftVoter", 0, "of another cluster", stranger)
    yield Step("UpdateRaftVoter", 0, "of another cluster", {**stranger, "listeners": listeners})
    for what, included in (("without operations", False), ("with operations", True)):
        asked = {"endpoint_type": 2, "include_cluster_authorized_operations": included}
        yield Step("DescribeCluster", 2, what, asked)


def _brokers() -> Iterator[Step]:
    stranger: Fields = {"broker_id": NOBODY, "broker_epoch": 7}
    yield Step("AlterPartition", 3, "of a stranger", {**stranger, "topics": []})
    yield Step("BrokerHeartbeat", 1, "of a stranger", stranger)
    yield Step("AllocateProducerIds", 0, "for a stranger", stranger)
    yield Step("AssignReplicasToDirs", 0, "of a stranger", {**stranger, "directories": []})
    registration = {**OTHER_CLUSTER, "broker_id": NOBODY, "incarnation_id": DIRECTORY, "log_dirs": [DIRECTORY]}
    yield Step("BrokerRegistration", 4, "of another cluster", registration)
    yield Step("UnregisterBroker", 0, "one that is not there", {"broker_id": NOBODY})
    yield Step("UnregisterController", 0, "one that is not there", {"controller_id": NOBODY})
    update = [{"feature": "no.feature", "max_version_level": 1, "upgrade_type": 1}]
    yield Step("UpdateFeatures", 2, "for trial", {"feature_updates": update, "validate_only": True})


def _topics() -> Iterator[Step]:
    created = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("new", "twice", "twice")]
    trial = {"timeout_ms": 10_000, "validate_only": True}
    yield Step("CreateTopics", 7, "for trial", {"topics": created, **trial})
    grown = [{"name": name, "count": 2, "assignments": None} for name in ("orders", "unknown")]
    yield Step("CreatePartitions", 3, "for trial", {"topics": grown, **trial})
    deleted: list[Fields] = [{"name": "unknown"}, {"topic_id": b"x" * 16, "name": None}]
    yield Step("DeleteTopics", 6, "that are not there", {"topics": deleted, "timeout_ms": 10_000})
    elected = [{"topic": "orders", "partitions": [0]}]
    yield Step("ElectLeaders", 2, "preferred", {"election_type": 0, "topic_partitions": elected})
    cancelled = [{"name": "orders", "partitions": [{"partition_index": 7, "replicas": None}]}]
    yield Step("AlterPartitionReassignments", 1, "nothing to cancel", {"topics": cancelled})
    yield Step("ListPartitionReassignments", 0, "all", {"topics": None})


def _configs() -> Iterator[Step]:
    kinds = ((2, "orders"), (4, ""), (32, "simple"), (8, "1"), (16, "m"))
    named = [{"resource_type": kind, "resource_name": name} for kind, name in kinds]
    requested = [{**each, "configuration_keys": ["x"]} for each in named]
    yield Step("DescribeConfigs", 4, "each type", {"resources": requested})
    unchanged: list[Fields] = [{**each, "configs": []} for each in named]
    without_logger = [each for each in unchanged if each["resource_type"] != 8]
    yield Step("AlterConfigs", 2, "each type, for trial", {"resources": without_logger, "validate_only": True})
    yield Step("IncrementalAlterConfigs", 1, "each type, for trial", {"resources": unchanged, "validate_only": True})
    yield quota_that_cannot_be()


def _security() -> Iterator[Step]:
    yield from acls_of_nobody()
    yield scram_that_cannot_be()
    owner = {"owner_principal_type": "User", "owner_principal_name": "u"}
    yield Step("CreateDelegationToken", 3, "for another", {**owner, "renewers": [], "max_lifetime_ms": -1})
    yield Step("RenewDelegationToken", 2, "of nobody", {"hmac": b"h", "renew_period_ms": 1})
    yield Step("ExpireDelegationToken", 2, "of nobody", {"hmac": b"h", "expiry_time_period_ms": 1})


def _envelopes(host: str) -> Iterator[Step]:
    """Yield one in the name of a client from the same address, who has no rights."""
    api = "ListPartitionReassignments"
    yield Step("Envelope", 0, "of a client without rights", _envelope(host, api, 0), inside=api)


def _envelope(host: str, api: str, version: int) -> Fields:
    inside: Any = request(api, {"topics": None})
    frame = Writer()
    write_request_header(frame, api_key=inside.API_KEY, api_version=version, correlation_id=1, client_id="c")
    inside.write(frame, version)
    principal = struct.pack(">h", 0) + b"\x05User" + b"\x06carol" + b"\0" + b"\0"
    return {
        "request_data": bytes(frame),
        "request_principal": principal,
        "client_host_address": bytes(map(int, host.split("."))),
    }
