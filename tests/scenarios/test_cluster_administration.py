"""What administrators of a cluster ask, answered by one node: codes and messages, in the words of Apache Kafka."""

from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from kafkapy.protocol.messages.list_partition_reassignments_request import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from kafkapy.protocol.messages.unregister_broker_request import UnregisterBrokerRequest
from kafkapy.protocol.messages.unregister_controller_request import UnregisterControllerRequest
from kafkapy.protocol.messages.update_features_request import FeatureUpdateKey, UpdateFeaturesRequest
from tests.support.client_requests import create_topic
from tests.support.wire import WireClient

MANUAL = "The manual partition assignment includes"


def reassigned(
    client: WireClient, topic: str, *targets: list[int] | None, **fields: Any
) -> list[tuple[int, str | None]]:
    """Give partition 0 each of the targets in one request, return each response's code and message."""
    topics = [ReassignableTopic(topic, partitions=[ReassignablePartition(0, replicas=target) for target in targets])]
    response = client.call(AlterPartitionReassignmentsRequest(topics=topics, **fields), 1)
    assert (response.error_code, response.error_message) == (0, None)
    assert response.allow_replication_factor_change == fields.get("allow_replication_factor_change", True)
    return [(each.error_code, each.error_message) for each in response.responses[0].partitions]


def test_targets_of_a_reassignment_are_checked(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    cases: list[tuple[list[int] | None, int, str | None]] = [
        ([1], 0, None),
        ([9], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker 9, but no such broker is registered."),
        ([1, 1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} the broker 1 more than once."),
        ([], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} an empty replica list."),
        ([-1], ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{MANUAL} broker -1, but no such broker is registered."),
        (None, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, None),
    ]

    responses = reassigned(client, topic, *(target for target, _, _ in cases))

    assert responses == [(code, message) for _, code, message in cases]


def test_unknown_topics_and_partitions_are_not_reassigned(client: WireClient, topic: str) -> None:
    create_topic(client, topic)
    topics = [
        ReassignableTopic("nowhere", partitions=[ReassignablePartition(0, replicas=[1])]),
        ReassignableTopic(topic, partitions=[ReassignablePartition(4, replicas=None)]),
        ReassignableTopic(topic, partitions=[]),
    ]

    response = client.call(AlterPartitionReassignmentsRequest(topics=topics), 0)

    found = [
        (each.name, [(part.error_code, part.error_message) for part in each.partitions]) for each in response.responses
    ]
    assert found == [
        ("nowhere", [(3, "Unable to find a topic named nowhere.")]),
        (topic, [(3, f"Unable to find partition {topic}:4.")]),
        (topic, []),
    ]


def test_no_topics_to_reassign_is_a_response_without_any(client: WireClient) -> None:
    response = client.call(AlterPartitionReassignmentsRequest(topics=[]), 1)

    assert (response.error_code, response.error_message, response.responses) == (0, "", [])


@pytest.mark.parametrize("timeout_ms", [0, -1, 60_000])
@pytest.mark.parametrize("names", [None, [], ["nowhere"], "its own"])
def test_nothing_is_being_reassigned(client: WireClient, topic: str, names: Any, timeout_ms: int) -> None:
    """Whatever the timeout is: kafka-go's is 0."""
    create_topic(client, topic)
    names = [topic] if names == "its own" else names
    topics = (
        None if names is None else [ListPartitionReassignmentsTopics(name, partition_indexes=[0, 1]) for name in names]
    )

    response = client.call(ListPartitionReassignmentsRequest(timeout_ms, topics=topics), 0)

    assert (response.error_code, response.error_message, response.topics) == (0, None, [])


@pytest.mark.parametrize("timeout_ms", [0, -1])
@pytest.mark.parametrize("version", [0, 2])
def test_an_election_in_no_time_is_timed_out(client: WireClient, topic: str, version: int, timeout_ms: int) -> None:
    create_topic(client, topic)
    requested = [TopicPartitions(topic, partitions=[0])]
    some = client.call(ElectLeadersRequest(topic_partitions=requested, timeout_ms=timeout_ms), version)
    all_topics = client.call(ElectLeadersRequest(topic_partitions=None, timeout_ms=timeout_ms), version)
    none = client.call(ElectLeadersRequest(topic_partitions=[], timeout_ms=timeout_ms), version)

    (result,) = some.replica_election_results
    assert [each.error_code for each in result.partition_result] == [ErrorCode.REQUEST_TIMED_OUT]
    if version:
        assert some.error_code == all_topics.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert (all_topics.replica_election_results, none.error_code) == ([], 0)


@pytest.mark.parametrize(
    ("version", "election_type", "code"),
    [
        (0, 0, ErrorCode.ELECTION_NOT_NEEDED),
        (1, 1, ErrorCode.ELECTION_NOT_NEEDED),
        (2, 0, ErrorCode.ELECTION_NOT_NEEDED),
    ],
)
def test_leaders_that_are_right_are_not_elected(
    client: WireClient, topic: str, version: int, election_type: int, code: ErrorCode
) -> None:
    create_topic(client, topic)
    requested = [TopicPartitions(topic, partitions=[0, 3]), TopicPartitions("nowhere", partitions=[0])]
    request = ElectLeadersRequest(election_type=election_type, topic_partitions=requested)

    response = client.call(request, version)

    assert response.error_code == 0
    found = {
        (each.topic, part.partition_id): (part.error_code, part.error_message)
        for each in response.replica_election_results
        for part in each.partition_result
    }
    assert found == {
        (topic, 0): (code, "Leader election not needed for topic partition."),
        (topic, 3): (3, f"No such partition as {topic}-3"),
        ("nowhere", 0): (3, "No such topic as nowhere"),
    }


def test_all_partitions_are_looked_at_and_named_by_topic_where_nothing_is_to_do(client: WireClient, topic: str) -> None:
    create_topic(client, topic)

    response = client.call(ElectLeadersRequest(election_type=0, topic_partitions=None), 2)

    assert response.error_code == 0
    (own,) = [each for each in response.replica_election_results if each.topic == topic]
    assert own.partition_result == []


@pytest.mark.parametrize(("partitions", "code"), [([], 0), ([0], ErrorCode.INVALID_REQUEST)])
def test_an_unknown_election_is_refused(
    connect: Callable[[], WireClient], topic: str, partitions: list[int], code: int
) -> None:
    client = connect()
    create_topic(client, topic)
    requested = [TopicPartitions(topic, partitions=partitions)] if partitions else []

    response = client.call(ElectLeadersRequest(election_type=7, topic_partitions=requested), 2)

    assert response.error_code == code
    messages = [part.error_message for each in response.replica_election_results for part in each.partition_result]
    assert messages == ["Unknown election type 7"] * len(partitions)


@pytest.mark.parametrize("broker_id", [9, -1])
def test_an_unknown_broker_is_not_unregistered(client: WireClient, broker_id: int) -> None:
    response = client.call(UnregisterBrokerRequest(broker_id=broker_id), 0)

    message = f"Broker ID {broker_id} is not currently registered"
    assert (response.error_code, response.error_message) == (ErrorCode.BROKER_ID_NOT_REGISTERED, message)


@pytest.mark.parametrize(
    ("controller_id", "code", "message"),
    [
        (1, ErrorCode.INVALID_REQUEST, "Controller cannot unregister itself while it is active."),
        (9, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID 9 is not currently registered."),
        (-1, ErrorCode.CONTROLLER_ID_NOT_REGISTERED, "Controller ID -1 is not currently registered."),
    ],
)
def test_the_active_controller_and_an_unknown_one_are_not_unregistered(
    client: WireClient, controller_id: int, code: int, message: str
) -> None:
    response = client.call(UnregisterControllerRequest(controller_id=controller_id), 0)

    assert (response.error_code, response.error_message) == (code, message)


FAILED = "The update failed for all features since the following feature had an error: "
TV, MV, GV, KV = "transaction.version", "metadata.version", "group.version", "kraft.version"
UPGRADE, SAFE, UNSAFE = 1, 2, 3


def updated(client: WireClient, name: str, level: int, kind: int, version: int = 2, **fields: Any) -> Any:
    update = FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind if version > 0 else UPGRADE)
    return client.call(UpdateFeaturesRequest(feature_updates=[update], **fields), version)


@pytest.mark.parametrize(
    ("name", "level", "kind", "reason"),
    [
        (TV, 3, UPGRADE, "Local controller 1 only supports versions 0-2"),
        (MV, 34, UPGRADE, "Local controller 1 only supports versions 7-33"),
        (MV, 6, SAFE, "Local controller 1 only supports versions 7-33"),
        (GV, 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("foo.version", 1, UPGRADE, "Local controller 1 does not support this feature."),
        (TV, -1, UPGRADE, "A feature version cannot be less than 0."),
        (TV, 1, 0, "The controller does not support the given upgrade type."),
        (TV, 1, 9, "The controller does not support the given upgrade type."),
        (
            TV,
            1,
            UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to either safe "
            "or unsafe downgrade.",
        ),
        (KV, 0, SAFE, "Can't downgrade the version of this feature."),
        (KV, 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
    ],
)
def test_levels_that_cannot_be_are_refused(client: WireClient, name: str, level: int, kind: int, reason: str) -> None:
    response = updated(client, name, level, kind, validate_only=True)

    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == f"{FAILED}Invalid update version {level} for feature {name}. {reason}"
    assert response.results == []


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        (SAFE, "Refusing to perform the requested downgrade because it might delete metadata information."),
        (UNSAFE, "Unsafe metadata downgrade is not supported in this version."),
    ],
)
def test_metadata_version_does_not_lose_records(client: WireClient, kind: int, reason: str) -> None:
    response = updated(client, MV, 32, kind)

    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert response.error_message == f"{FAILED}Unsupported metadata.version downgrade from 33 to 32. {reason}"


@pytest.mark.parametrize("version", [0, 1, 2])
def test_levels_go_down_and_up_again(client: WireClient, version: int) -> None:
    lowered = updated(client, GV, 0, SAFE)
    raised = updated(client, GV, 1, UPGRADE, version)

    assert (lowered.error_code, lowered.error_message, lowered.results) == (0, None, [])
    assert (raised.error_code, raised.error_message) == (0, None)
    results = [(each.feature, each.error_code, each.error_message) for each in raised.results]
    assert results == ([] if version == 2 else [(GV, 0, "NONE")])


def test_a_dry_run_and_no_updates_change_nothing(client: WireClient) -> None:
    dry = updated(client, GV, 0, SAFE, validate_only=True)
    again = updated(client, KV, 1, UPGRADE)
    none = client.call(UpdateFeaturesRequest(feature_updates=[]), 2)

    assert [(each.error_code, each.error_message) for each in (dry, again, none)] == [(0, None)] * 3
    assert updated(client, GV, 1, UPGRADE).error_code == 0
