"""What nodes ask each other, asked wrongly or by strangers: Apache Kafka's codes, and nobody else is disturbed."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.handlers.forwarding import encode_principal
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages import (
    alter_partition_request,
    begin_quorum_epoch_request,
    describe_quorum_request,
    end_quorum_epoch_request,
    fetch_snapshot_request,
    update_raft_voter_request,
    vote_request,
)
from kafkapy.protocol.messages.allocate_producer_ids_request import AllocateProducerIdsRequest
from kafkapy.protocol.messages.broker_heartbeat_request import BrokerHeartbeatRequest
from kafkapy.protocol.messages.broker_registration_request import BrokerRegistrationRequest, Feature, Listener
from kafkapy.protocol.messages.envelope_request import EnvelopeRequest
from kafkapy.protocol.messages.fetch_request import FetchRequest, ReplicaState
from kafkapy.protocol.messages.list_partition_reassignments_request import ListPartitionReassignmentsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.client_requests import (
    batch_of,
    create_topic,
    fetch,
    fetch_partition,
    fetch_topic,
    local_voter,
    metadata,
    produce,
)
from tests.support.wire import WireClient, request_frame

METADATA = "__cluster_metadata"
METADATA_ID = bytes(15) + b"\1"
STRANGER, STRANGERS_DIRECTORY = 77, b"d" * 16
OTHER_CLUSTER = "another-cluster-id-000"
INSIDE = request_frame(ListPartitionReassignmentsRequest(), 0)
METADATA_99 = bytes.fromhex("0003 0063 00000007 ffff 00")
ALICE, HOST = encode_principal("User", "alice"), bytes([127, 0, 0, 1])


class Quorum:
    """What a node says of the quorum of which it is the only voter."""

    def __init__(self, client: WireClient) -> None:
        requested = describe_quorum_request.PartitionData(partition_index=0)
        topic = describe_quorum_request.TopicData(topic_name=METADATA, partitions=[requested])
        response = client.call(describe_quorum_request.DescribeQuorumRequest(topics=[topic]), 2)
        (listener,) = response.nodes[0].listeners
        self.address = f"{listener.host}:{listener.port}"
        self.epoch = response.topics[0].partitions[0].leader_epoch
        self.voter = local_voter(client)
        self.cluster_id = metadata(client).cluster_id


@pytest.fixture
def quorum(client: WireClient) -> Quorum:
    return Quorum(client)


@pytest.fixture
def controller(quorum: Quorum) -> Iterator[WireClient]:
    """A connection to the controllers' listener."""
    with WireClient(quorum.address) as connection:
        yield connection


@pytest.fixture(autouse=True)
def bystander(connect: Callable[[], WireClient], topic: str) -> Iterator[None]:
    """A producer that is served before and after, by the same leader in the same epoch."""
    other = connect()
    create_topic(other, topic)
    epoch = Quorum(other).epoch
    assert produce(other, topic, batch_of()).error_code == 0
    yield
    assert produce(other, topic, batch_of()).error_code == 0
    assert Quorum(other).epoch == epoch


def voted(controller: WireClient, quorum: Quorum, **fields: Any) -> tuple[int, int | None, bool]:
    """Return the codes of the response and of its partition, and whether the vote was given."""
    of_request = {name: fields.pop(name) for name in ("cluster_id", "voter_id") if name in fields}
    name = fields.pop("topic", METADATA)
    defaults = {
        "replica_id": STRANGER,
        "replica_directory_id": STRANGERS_DIRECTORY,
        "voter_directory_id": quorum.voter.directory_id,
        "replica_epoch": quorum.epoch,
        "last_offset": 1 << 40,
        "last_offset_epoch": 0,
    }
    requested = vote_request.PartitionData(**{**defaults, **fields})
    topics = [vote_request.TopicData(topic_name=name, partitions=[requested])]
    defaults = {"cluster_id": quorum.cluster_id, "voter_id": quorum.voter.node_id}
    response = controller.call(vote_request.VoteRequest(**{**defaults, **of_request}, topics=topics), 2)
    if not response.topics:
        return response.error_code, None, False
    (partition,) = response.topics[0].partitions
    return response.error_code, partition.error_code, partition.vote_granted


def test_a_vote_that_nobody_requested_is_not_given(controller: WireClient, quorum: Quorum) -> None:
    assert voted(controller, quorum) == (0, 0, False)
    assert voted(controller, quorum, pre_vote=True) == (0, 0, False)
    earlier = voted(controller, quorum, pre_vote=True, replica_epoch=quorum.epoch - 1)
    assert earlier == (0, ErrorCode.FENCED_LEADER_EPOCH, False)
    assert voted(controller, quorum, voter_id=STRANGER) == (0, ErrorCode.INVALID_VOTER_KEY, False)
    assert voted(controller, quorum, voter_directory_id=STRANGERS_DIRECTORY) == (0, ErrorCode.INVALID_VOTER_KEY, False)
    assert voted(controller, quorum, replica_id=-1) == (0, ErrorCode.INVALID_REQUEST, False)


def test_a_request_for_another_cluster_or_log_is_refused_as_a_whole(controller: WireClient, quorum: Quorum) -> None:
    assert voted(controller, quorum, cluster_id=OTHER_CLUSTER) == (ErrorCode.INCONSISTENT_CLUSTER_ID, None, False)
    assert voted(controller, quorum, topic="orders") == (ErrorCode.INVALID_REQUEST, None, False)
    requested = fetch_topic(METADATA_ID, fetch_partition(last_fetched_epoch=0, current_leader_epoch=quorum.epoch))
    request = FetchRequest(
        cluster_id=OTHER_CLUSTER, replica_state=ReplicaState(replica_id=STRANGER, replica_epoch=-1), topics=[requested]
    )
    assert controller.call(request, 17).error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_fetch_under_the_leaders_own_id_or_one_that_cannot_be_fails_alone(
    controller: WireClient, quorum: Quorum
) -> None:
    def fetched(max_wait_ms: int = 0, node_id: int = quorum.voter.node_id, **fields: Any) -> tuple[int, int, int]:
        defaults = {"last_fetched_epoch": 0, "current_leader_epoch": quorum.epoch}
        topics = [fetch_topic(METADATA_ID, fetch_partition(**{**defaults, **fields}))]
        request = FetchRequest(
            cluster_id=quorum.cluster_id,
            replica_state=ReplicaState(replica_id=node_id, replica_epoch=-1),
            max_wait_ms=max_wait_ms,
            topics=topics,
        )
        response = controller.call(request, 17)
        (partition,) = response.responses[0].partitions
        return response.error_code, partition.error_code, partition.current_leader.leader_id

    leader_id = quorum.voter.node_id
    assert fetched() == (0, ErrorCode.UNKNOWN_SERVER_ERROR, leader_id)
    assert fetched(offset=1 << 40, last_fetched_epoch=quorum.epoch) == (0, 0, leader_id), "it diverges"
    assert fetched(current_leader_epoch=quorum.epoch + 1) == (0, ErrorCode.UNKNOWN_LEADER_EPOCH, leader_id)
    for fields in ({"max_wait_ms": -1}, {"offset": -1}, {"last_fetched_epoch": quorum.epoch + 1}):
        assert fetched(node_id=STRANGER, **fields) == (0, ErrorCode.INVALID_REQUEST, leader_id)


@pytest.mark.ours  # it ends the process of Apache Kafka 4.3.1
def test_a_leader_gives_itself_no_snapshot(controller: WireClient, quorum: Quorum) -> None:
    assert snapshot(controller, quorum, replica_id=quorum.voter.node_id) == (0, ErrorCode.SNAPSHOT_NOT_FOUND)


def snapshot(controller: WireClient, quorum: Quorum, **fields: Any) -> tuple[int, int | None]:
    """Return the codes of a FetchSnapshot response and of its partition."""
    cluster_id, name = fields.pop("cluster_id", quorum.cluster_id), fields.pop("topic", METADATA)
    replica_id = fields.pop("replica_id", STRANGER)
    defaults = {
        "current_leader_epoch": quorum.epoch,
        "snapshot_id": fetch_snapshot_request.SnapshotId(end_offset=3, epoch=quorum.epoch),
    }
    requested = fetch_snapshot_request.PartitionSnapshot(**{**defaults, **fields})
    topics = [fetch_snapshot_request.TopicSnapshot(name=name, partitions=[requested])]
    request = fetch_snapshot_request.FetchSnapshotRequest(
        cluster_id=cluster_id, replica_id=replica_id, max_bytes=1 << 20, topics=topics
    )
    response = controller.call(request, 1)
    return response.error_code, response.topics[0].partitions[0].error_code if response.topics else None


@pytest.mark.ours  # Apache Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR
def test_a_snapshot_that_is_not_there_is_not_found(controller: WireClient, quorum: Quorum) -> None:
    assert snapshot(controller, quorum) == (0, ErrorCode.SNAPSHOT_NOT_FOUND)
    assert snapshot(controller, quorum, position=-1) == (0, ErrorCode.SNAPSHOT_NOT_FOUND)


def test_a_snapshot_request_must_name_this_cluster(controller: WireClient, quorum: Quorum) -> None:
    assert snapshot(controller, quorum, cluster_id=OTHER_CLUSTER) == (ErrorCode.INCONSISTENT_CLUSTER_ID, None)


@pytest.mark.ours  # Apache Kafka 4.3.1 answers UNKNOWN_SERVER_ERROR to whatever has no part of a snapshot
def test_a_snapshot_request_must_name_this_epoch(controller: WireClient, quorum: Quorum) -> None:
    assert snapshot(controller, quorum, current_leader_epoch=quorum.epoch - 1) == (0, ErrorCode.FENCED_LEADER_EPOCH)
    assert snapshot(controller, quorum, current_leader_epoch=quorum.epoch + 1) == (0, ErrorCode.UNKNOWN_LEADER_EPOCH)


def updated(controller: WireClient, quorum: Quorum, **fields: Any) -> tuple[int, tuple[int, int, str]]:
    """Return the code of an UpdateRaftVoter response, and the leader, its epoch and its address."""
    defaults = {
        "cluster_id": quorum.cluster_id,
        "current_leader_epoch": quorum.epoch,
        "voter_id": STRANGER,
        "voter_directory_id": STRANGERS_DIRECTORY,
        "listeners": [update_raft_voter_request.Listener("CONTROLLER", host="127.0.0.1", port=9093)],
        "kraft_version_feature": update_raft_voter_request.KRaftVersionFeature(
            min_supported_version=0, max_supported_version=1
        ),
    }
    request = update_raft_voter_request.UpdateRaftVoterRequest(**{**defaults, **fields})
    response = controller.call(request, 0)
    leader = response.current_leader
    return response.error_code, (leader.leader_id, leader.leader_epoch, f"{leader.host}:{leader.port}")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"cluster_id": OTHER_CLUSTER}, ErrorCode.INCONSISTENT_CLUSTER_ID),
        ({"current_leader_epoch": 0}, ErrorCode.FENCED_LEADER_EPOCH),
        ({"current_leader_epoch": 1 << 30}, ErrorCode.UNKNOWN_LEADER_EPOCH),
        ({"voter_id": -1}, ErrorCode.INVALID_REQUEST),
        ({"listeners": []}, ErrorCode.INVALID_REQUEST),
        (
            {
                "kraft_version_feature": update_raft_voter_request.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=0
                )
            },
            ErrorCode.INVALID_REQUEST,
        ),
        ({}, ErrorCode.VOTER_NOT_FOUND),
    ],
)
def test_a_voter_that_may_not_describe_itself_is_given_the_leader(
    controller: WireClient, quorum: Quorum, fields: dict[str, Any], code: ErrorCode
) -> None:
    assert updated(controller, quorum, **fields) == (code, (quorum.voter.node_id, quorum.epoch, quorum.address))


@pytest.mark.parametrize(
    "kind",
    [
        (begin_quorum_epoch_request, begin_quorum_epoch_request.BeginQuorumEpochRequest),
        (end_quorum_epoch_request, end_quorum_epoch_request.EndQuorumEpochRequest),
    ],
)
def test_a_leader_of_an_earlier_epoch_is_given_the_one_of_now(
    controller: WireClient, quorum: Quorum, kind: tuple[Any, Any]
) -> None:
    module, request_type = kind
    requested = module.PartitionData(partition_index=0, leader_id=STRANGER, leader_epoch=quorum.epoch - 1)
    topics = [module.TopicData(topic_name=METADATA, partitions=[requested])]
    response = controller.call(request_type(cluster_id=quorum.cluster_id, topics=topics), 1)
    (partition,), leader_id = response.topics[0].partitions, quorum.voter.node_id
    assert partition.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert (partition.leader_id, partition.leader_epoch) == (leader_id, quorum.epoch)
    assert [(each.node_id, f"{each.host}:{each.port}") for each in response.node_endpoints] == [
        (leader_id, quorum.address)
    ]


def registered(controller: WireClient, quorum: Quorum, **fields: Any) -> int:
    defaults = {
        "broker_id": STRANGER,
        "cluster_id": quorum.cluster_id,
        "incarnation_id": STRANGERS_DIRECTORY,
        "listeners": [Listener("PLAINTEXT", host="127.0.0.1", port=9092, security_protocol=0)],
        "features": [
            Feature("metadata.version", min_supported_version=7, max_supported_version=1000),
            Feature("group.version", min_supported_version=0, max_supported_version=100),
        ],
        "log_dirs": [STRANGERS_DIRECTORY],
    }
    return int(controller.call(BrokerRegistrationRequest(**{**defaults, **fields}), 4).error_code)


def test_a_node_id_a_directory_and_a_cluster_are_not_taken_twice(controller: WireClient, quorum: Quorum) -> None:
    node_id, directory_id = quorum.voter
    code = registered(controller, quorum, broker_id=node_id)
    assert code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert registered(controller, quorum, log_dirs=[directory_id]) == ErrorCode.INVALID_REGISTRATION
    assert registered(controller, quorum, cluster_id=OTHER_CLUSTER) == ErrorCode.INCONSISTENT_CLUSTER_ID
    old = [Feature("metadata.version", min_supported_version=1, max_supported_version=7)]
    assert registered(controller, quorum, features=old) == ErrorCode.UNSUPPORTED_VERSION
    assert registered(controller, quorum, features=[]) == ErrorCode.INVALID_REGISTRATION


def test_a_request_of_an_earlier_incarnation_of_a_broker_is_refused(controller: WireClient, quorum: Quorum) -> None:
    node_id, code = quorum.voter.node_id, ErrorCode.STALE_BROKER_EPOCH
    for broker_id in (node_id, STRANGER):
        heartbeat = BrokerHeartbeatRequest(broker_id=broker_id, broker_epoch=1 << 40, want_shut_down=True)
        assert controller.call(heartbeat, 1).error_code == code
        assert (
            controller.call(AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=1 << 40), 0).error_code == code
        )
    topics = [alter_partition_request.TopicData(topic_id=STRANGERS_DIRECTORY)]
    requested = alter_partition_request.AlterPartitionRequest(broker_id=node_id, broker_epoch=1 << 40, topics=topics)
    assert controller.call(requested, 3).error_code == code


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"request_principal": b"\0\0garbage"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        ({"client_host_address": b"abc"}, ErrorCode.INVALID_REQUEST),
        ({"request_data": b"\0"}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": INSIDE[:-1]}, ErrorCode.UNSUPPORTED_VERSION),
        ({"request_data": request_frame(BrokerHeartbeatRequest(), 0)}, ErrorCode.INVALID_REQUEST),
        ({"request_data": METADATA_99}, ErrorCode.INVALID_REQUEST),
        ({"client_host_address": b"abc", "request_data": b"\0"}, ErrorCode.INVALID_REQUEST),
        (
            {"request_principal": b"\0\0garbage", "client_host_address": b"abc", "request_data": b"\0"},
            ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ),
        ({}, ErrorCode.NONE),
    ],
)
def test_an_envelope_that_cannot_be_read_is_refused(
    controller: WireClient, how: dict[str, bytes], code: ErrorCode
) -> None:
    envelope = EnvelopeRequest(request_data=INSIDE, request_principal=ALICE, client_host_address=HOST)
    for name, value in how.items():
        setattr(envelope, name, value)
    response = controller.call(envelope, 0)
    assert response.error_code == code


def test_requests_on_the_wrong_listener_cost_their_connection(
    connect: Callable[[], WireClient], quorum: Quorum, topic: str
) -> None:
    to_the_broker = connect()
    to_the_broker.send(vote_request.VoteRequest(cluster_id=quorum.cluster_id), 2)
    assert to_the_broker.is_closed()
    with WireClient(quorum.address) as to_the_controller:
        to_the_controller.send_frame(request_frame(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 12))
        assert to_the_controller.is_closed()


def test_a_client_that_names_a_replica_is_no_replica(client: WireClient, topic: str) -> None:
    response = fetch(client, topic, version=12, replica_id=STRANGER, min_bytes=0)
    assert response.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    response = fetch(client, topic, version=12, replica_id=STRANGER, current_leader_epoch=0)
    assert response.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
