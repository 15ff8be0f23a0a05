"""Offsets in transactions, of groups with members: a stale epoch or generation commits nothing. KIP-447, KIP-1251."""

from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from tests.support.client_requests import create_topic, delete_topic, metadata, until
from tests.support.membership import Member, stabilize
from tests.support.offsets import committed, fetch_group, find_coordinator
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient


@pytest.fixture
def group(client: WireClient, topic: str) -> str:
    create_topic(client, topic)
    find_coordinator(client, topic)
    return topic


@pytest.fixture
def producer(client: WireClient, topic: str, group: str) -> TransactionalProducer:
    made = TransactionalProducer(client, topic)
    assert made.init() == ErrorCode.NONE
    return made


def heartbeat(client: WireClient, group: str, member_epoch: int, member_id: str = "m", **fields: Any) -> Any:
    joining: dict[str, Any] = {}
    if member_epoch == 0:
        joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group], "topic_partitions": []}
    values = {"group_id": group, "member_id": member_id, "member_epoch": member_epoch, **joining, **fields}
    return client.call(ConsumerGroupHeartbeatRequest(**values), 1)


def test_a_members_epoch_counts(client: WireClient, group: str, producer: TransactionalProducer) -> None:
    response = heartbeat(client, group, 0)
    assert response.error_code == ErrorCode.NONE
    epoch = response.member_epoch
    requested: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": epoch}
    assert producer.commit_offset(group, group, 5, **requested) == ErrorCode.NONE
    assert producer.commit_offset(group, group, 6, **{**requested, "generation_id_or_member_epoch": epoch + 1}) == (
        ErrorCode.ILLEGAL_GENERATION
    )
    assert producer.commit_offset(group, group, 7, **{**requested, "member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.commit_offset(group, group, 8, generation_id_or_member_epoch=-1, member_id="") == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, group, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, group) == [8]


def test_version_6_names_topics_by_id_and_errors_by_their_own_names(
    client: WireClient, group: str, topic: str, producer: TransactionalProducer
) -> None:
    """KIP-1319."""
    topic_id = metadata(client, topic).topics[0].topic_id
    epoch = heartbeat(client, group, 0).member_epoch
    requested: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": epoch}

    assert producer.commit_offset(group, topic_id, 5, version=6, **requested) == ErrorCode.NONE
    assert producer.commit_offset(group, bytes(15) + b"x", 6, version=6, **requested) == ErrorCode.UNKNOWN_TOPIC_ID
    assert producer.commit_offset(group, bytes(16), 6, version=6, **requested) == ErrorCode.UNKNOWN_TOPIC_ID
    requested["generation_id_or_member_epoch"] = epoch + 1
    assert producer.commit_offset(group, topic_id, 7, version=6, **requested) == ErrorCode.STALE_MEMBER_EPOCH
    missing = f"{group}-missing"
    assert producer.commit_offset(missing, topic_id, 7, version=6, **requested) == ErrorCode.GROUP_ID_NOT_FOUND

    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, group, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, group) == [5]
    (fetched,) = fetch_group(client, group, topic_id).topics
    assert (fetched.topic_id, fetched.partitions[0].committed_offset) == (topic_id, 5)


def test_an_older_epoch_is_good_for_a_partition_that_the_member_had_then(
    client: WireClient, group: str, producer: TransactionalProducer
) -> None:
    first = heartbeat(client, group, 0).member_epoch
    assert heartbeat(client, group, 0, member_id="second").error_code == ErrorCode.NONE
    until(lambda: heartbeat(client, group, first).member_epoch > first)
    requested: dict[str, Any] = {"member_id": "m", "generation_id_or_member_epoch": first}
    assert producer.commit_offset(group, group, 5, **requested) == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE


def test_a_generation_counts(client: WireClient, group: str, producer: TransactionalProducer) -> None:
    member = Member(client, group)
    stabilize(member)
    requested: dict[str, Any] = {"member_id": member.member_id, "generation_id_or_member_epoch": member.generation}
    assert producer.commit_offset(group, group, 5, **requested) == ErrorCode.NONE
    assert producer.commit_offset(
        group, group, 6, **{**requested, "generation_id_or_member_epoch": member.generation + 1}
    ) == (ErrorCode.ILLEGAL_GENERATION)
    assert producer.commit_offset(group, group, 7, **{**requested, "member_id": "x"}) == ErrorCode.UNKNOWN_MEMBER_ID
    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, group, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, group) == [5]


def test_a_member_whose_instance_another_has_is_fenced(
    client: WireClient, group: str, producer: TransactionalProducer
) -> None:
    member = Member(client, group, instance_id="a")
    stabilize(member)
    asked: dict[str, Any] = {
        "member_id": member.member_id,
        "group_instance_id": "a",
        "generation_id_or_member_epoch": member.generation,
    }
    assert producer.commit_offset(group, group, 5, **asked) == ErrorCode.NONE
    fenced = producer.commit_offset(group, group, 6, **{**asked, "member_id": "x"})
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert producer.end(commit=True) == ErrorCode.NONE
    until(lambda: fetch_group(client, group, group, require_stable=True).topics[0].partitions[0].error_code == 0)
    assert committed(client, group, group) == [5]


def test_a_group_that_is_deleted_in_between_takes_its_pending_offsets_along(
    client: WireClient, group: str, producer: TransactionalProducer
) -> None:
    assert producer.commit_offset(group, group, 5) == ErrorCode.NONE
    (result,) = client.call(DeleteGroupsRequest([group]), 2).results
    assert result.error_code == ErrorCode.NONE
    assert producer.end(commit=True) == ErrorCode.NONE
    assert committed(client, group, group, require_stable=True) == [-1]


def test_a_topic_that_is_deleted_in_between_takes_its_pending_offsets_along(
    client: WireClient, group: str, producer: TransactionalProducer
) -> None:
    other = f"{group}-other"
    create_topic(client, other)
    assert producer.commit_offset(group, other, 5) == ErrorCode.NONE
    delete_topic(client, other)
    assert producer.end(commit=True) == ErrorCode.NONE
    create_topic(client, other)
    assert committed(client, group, other, require_stable=True) == [-1]
