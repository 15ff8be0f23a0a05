"""Share groups (KIP-932) by raw requests: what no client should send, and what two clients may do at once."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_share_group_offsets_request import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.delete_share_group_offsets_request import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest
from tests.scenarios.conftest import IS_APACHE, serving
from tests.support.client_requests import batch_of, create_topic, delete_topic, describe_topic, produce, until
from tests.support.features import SAFE_DOWNGRADE, UPGRADE, set_feature_level
from tests.support.group_configs import set_group_configs
from tests.support.membership import describe_group, join_request
from tests.support.offsets import commit, committed, delete_offsets, find_coordinator
from tests.support.share_members import ENDS, LEAVES, OPENS, ShareMember
from tests.support.wire import WireClient

NONE, INVALID_REQUEST = ErrorCode.NONE, ErrorCode.INVALID_REQUEST
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
RECORDS = 10

Join = Callable[..., ShareMember]


@pytest.fixture
def join(client: WireClient, group: str) -> Iterator[Join]:
    """Return a member that is assigned both partitions of the topic, which has some records in its first one."""
    set_group_configs(client, group, share_auto_offset_reset="earliest")
    produce(client, group, batch_of(RECORDS))
    topic_id = describe_topic(client, group).topic_id
    members: list[ShareMember] = []

    def start(member_id: str = "m", connection: WireClient | None = None) -> ShareMember:
        member = ShareMember(connection or client, group, topic_id, member_id)
        member.join(group)
        members.append(member)
        return member

    yield start
    for member in members:
        member.heartbeat(member_epoch=LEAVES)


@pytest.fixture
def member(join: Join) -> ShareMember:
    return join()


# -- heartbeats -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "fields",
    [
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": []},
        {"member_id": ""},
        {"member_id": "m" * 37},
        {"group_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
    ],
    ids=str,
)
def test_a_heartbeat_that_says_what_it_cannot_mean_is_refused(
    client: WireClient, group: str, fields: dict[str, Any]
) -> None:
    values = {"member_epoch": 0, "subscribed_topic_names": [group], **fields}
    assert ShareMember(client, group, b"").heartbeat(**values).error_code == INVALID_REQUEST


def test_members_are_fenced_by_epochs_they_cannot_have(member: ShareMember) -> None:
    assert member.heartbeat(member_epoch=member.epoch + 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert member.heartbeat(member_id="x").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert member.heartbeat(group_id="nowhere").error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert member.heartbeat().error_code == NONE


def test_an_epoch_older_than_the_previous_is_fenced(member: ShareMember, group: str) -> None:
    epochs = [member.epoch]
    for names in ([group, "beside"], [group]):
        until(lambda names=names: member.heartbeat(subscribed_topic_names=names).member_epoch > epochs[-1])
        epochs.append(member.epoch)
    assert member.heartbeat(member_epoch=epochs[0]).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    lost = member.heartbeat(member_epoch=epochs[1])  # as if the response that told the last one was lost
    assert (lost.error_code, lost.member_epoch) == (NONE, epochs[2])


def test_a_group_has_200_members(client: WireClient, group: str) -> None:
    members = [ShareMember(client, group, b"", f"m{number}") for number in range(201)]
    until(lambda: members[0].heartbeat(subscribed_topic_names=[group]).error_code == NONE)
    codes = [member.heartbeat(subscribed_topic_names=[group]).error_code for member in members[1:]]
    assert codes == [NONE] * 199 + [ErrorCode.GROUP_MAX_SIZE_REACHED]


# -- sessions ---------------------------------------------------------------------------------------------------------


def test_what_opens_a_session_has_no_acknowledgements(member: ShareMember) -> None:
    assert member.fetch((0, 0, [ACCEPT])).error_code == INVALID_REQUEST


@pytest.mark.parametrize("field", ["max_wait_ms", "min_bytes", "max_bytes", "max_records"])
def test_a_renewal_fetches_nothing(member: ShareMember, field: str) -> None:
    member.acquire(1)
    zeros = dict.fromkeys(("max_wait_ms", "min_bytes", "max_bytes", "max_records"), 0)
    assert member.fetch((0, 0, [RENEW]), is_renew_ack=True, **{**zeros, field: 1}).error_code == INVALID_REQUEST
    (topic,) = member.fetch((0, 0, [RENEW]), is_renew_ack=True, **zeros).responses
    assert [each.acknowledge_error_code for each in topic.partitions] == [NONE]


def test_a_session_counts_its_requests(member: ShareMember) -> None:
    assert member.fetch(share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert member.acknowledge((0, 0, [ACCEPT]), share_session_epoch=1) == ErrorCode.SHARE_SESSION_NOT_FOUND
    member.acquire(1)
    at = member.session_epoch
    assert member.fetch(share_session_epoch=at + 1).error_code == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, [1]), share_session_epoch=at + 1) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, [1]), share_session_epoch=OPENS) == ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert member.acknowledge((0, 0, [1])) == NONE
    assert member.send_acknowledgements(share_session_epoch=ENDS, topics=[]).error_code == NONE
    assert member.fetch(share_session_epoch=1).error_code == ErrorCode.SHARE_SESSION_NOT_FOUND


def test_one_session_too_many_is_refused_after_its_wait(tmp_path_factory: pytest.TempPathFactory) -> None:
    with (
        serving(tmp_path_factory, {"group.share.max.share.sessions": "200"}) as servers,
        WireClient(servers) as client,
        WireClient(servers) as late,
    ):
        topic_id = create_topic(client, "t")
        for number in range(200):  # group.share.max.size, which is the least
            assert ShareMember(client, "g", topic_id, f"m{number}").fetch(max_wait_ms=0).error_code == NONE
        one_more = ShareMember(late, "g", topic_id, "one more")
        sent_at = time.monotonic()
        assert one_more.fetch(max_wait_ms=400).error_code == ErrorCode.SHARE_SESSION_LIMIT_REACHED
        assert time.monotonic() - sent_at >= 0.35


def test_sessions_end_when_share_groups_are_taken_away(tmp_path_factory: pytest.TempPathFactory) -> None:
    """With them what is acquired: the records come again, as if they had never been delivered."""
    with serving(tmp_path_factory) as servers, WireClient(servers) as client:
        topic_id = create_topic(client, "t")
        find_coordinator(client, "g")
        set_group_configs(client, "g", share_auto_offset_reset="earliest")
        produce(client, "t", batch_of(2))
        member = ShareMember(client, "g", topic_id)
        member.join("t")
        assert member.acquire(1) == [(0, 0, 1)]
        set_feature_level(client, "share.version", 0, SAFE_DOWNGRADE)
        until(lambda: member.fetch().error_code == ErrorCode.UNSUPPORTED_VERSION)
        set_feature_level(client, "share.version", 1, UPGRADE)
        until(lambda: member.fetch().error_code != ErrorCode.UNSUPPORTED_VERSION)
        assert member.fetch().error_code == ErrorCode.SHARE_SESSION_NOT_FOUND
        member.session_epoch = 0
        assert member.acquire(2) == [(0, 1, 1)]


@pytest.mark.parametrize("mode", [-1, 2])
def test_unknown_acquire_modes_are_refused(member: ShareMember, mode: int) -> None:
    assert member.fetch(share_acquire_mode=mode).error_code == ErrorCode.UNKNOWN_SERVER_ERROR


# -- acknowledgements -------------------------------------------------------------------------------------------------

INVALID = [
    [(0, 0, [5])],
    [(0, 0, [-1])],
    [(0, 0, [])],
    [(0, 0, [RENEW])],
    [(0, 3, [ACCEPT, ACCEPT])],
    [(3, 2, [ACCEPT])],
    [(3, 4, [ACCEPT]), (0, 1, [ACCEPT])],
    [(0, 3, [ACCEPT]), (2, 4, [ACCEPT])],
    [(0, 0, [ACCEPT, ACCEPT])],
    [(100, 100, [ACCEPT])],
    [(2, 100, [ACCEPT])],
]


@pytest.mark.parametrize("batches", INVALID, ids=str)
def test_acknowledgements_that_cannot_be_are_refused(member: ShareMember, batches: list[Any]) -> None:
    member.acquire(5)
    assert member.acknowledge(*batches) == INVALID_REQUEST
    assert member.acknowledge((0, 4, [ACCEPT])) == NONE


def test_an_acknowledgement_is_of_records_that_the_member_holds(join: Join, connect: Callable[[], WireClient]) -> None:
    one, other = join("one"), join("other", connect())
    (mine,) = one.acquire(3)
    assert mine == (0, 2, 1)
    other.fetch(partition=1)
    assert other.acknowledge((0, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((0, 0, [RELEASE])) == NONE
    assert one.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
    assert one.acknowledge((1, 2, [ACCEPT, REJECT])) == NONE
    assert one.acknowledge((1, 2, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE


def test_records_whose_lock_timed_out_are_no_longer_the_members(tmp_path_factory: pytest.TempPathFactory) -> None:
    locks = {f"group.share.{each}record.lock.duration.ms": "1000" for each in ("min.", "")}
    with (
        serving(tmp_path_factory, locks) as servers,
        WireClient(servers) as client,
        WireClient(servers) as beside,
    ):
        topic_id = create_topic(client, "t")
        find_coordinator(client, "g")
        set_group_configs(client, "g", share_auto_offset_reset="earliest")
        produce(client, "t", batch_of(1))
        slow, other = ShareMember(client, "g", topic_id, "slow"), ShareMember(beside, "g", topic_id, "other")
        for each in (slow, other):
            each.join("t")
        assert slow.acquire(1) == [(0, 0, 1)]
        set_group_configs(client, "g", share_record_lock_duration_ms="30000")  # on a busy machine 1 s is short
        assert other.acquire(1) == [(0, 0, 2)], "once the lock has timed out"
        assert slow.acknowledge((0, 0, [ACCEPT])) == ErrorCode.INVALID_RECORD_STATE
        assert other.acknowledge((0, 0, [ACCEPT])) == NONE


def test_an_error_that_says_nothing_of_the_leader_names_none(join: Join, connect: Callable[[], WireClient]) -> None:
    """A deviation: what Apache Kafka names makes franz-go fetch from broker 0 for ever."""
    one, other = join("one"), join("other", connect())
    one.acquire(1)
    other.fetch(partition=1)
    named = (0, 0) if IS_APACHE else (-1, -1)

    ((late,),) = [each.partitions for each in other.send_acknowledgements((0, 0, [ACCEPT])).responses]
    assert late.error_code == ErrorCode.INVALID_RECORD_STATE
    assert (late.current_leader.leader_id, late.current_leader.leader_epoch) == named
    ((good,),) = [each.partitions for each in one.send_acknowledgements((0, 0, [ACCEPT])).responses]
    assert good.error_code == NONE
    assert (good.current_leader.leader_id, good.current_leader.leader_epoch) == (0, 0)
    fetched = [each for topic in one.fetch(partition=9).responses for each in topic.partitions]
    (missing,) = [each for each in fetched if each.partition_index == 9]
    assert missing.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert (missing.current_leader.leader_id, missing.current_leader.leader_epoch) == named


def test_a_refused_batch_undoes_those_before_it(member: ShareMember) -> None:
    member.acquire(3)
    assert member.acknowledge((0, 0, [ACCEPT]), (50, 50, [ACCEPT])) == INVALID_REQUEST
    assert member.acknowledge((0, 2, [ACCEPT])) == NONE


def test_acknowledgements_below_the_start_are_ignored(member: ShareMember) -> None:
    member.acquire(3)
    assert member.acknowledge((0, 2, [ACCEPT])) == NONE
    assert member.acknowledge((0, 1, [ACCEPT])) == NONE


def test_released_records_come_again(member: ShareMember) -> None:
    assert member.acquire(4) == [(0, 3, 1)]
    assert member.acknowledge((0, 3, [ACCEPT, RELEASE, REJECT, GAP])) == NONE
    assert member.acquire(2)[0] == (1, 1, 2)


def test_what_ends_a_session_releases_what_its_member_holds(join: Join, connect: Callable[[], WireClient]) -> None:
    one = join("one")
    assert one.acquire(2) == [(0, 1, 1)]
    one.send_acknowledgements(share_session_epoch=ENDS, topics=[])
    assert join("other", connect()).acquire(2) == [(0, 1, 2)]


def test_acknowledgements_of_partitions_that_are_gone(client: WireClient, member: ShareMember, group: str) -> None:
    member.acquire(1)
    assert member.acknowledge((0, 0, [ACCEPT]), partition=1) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert member.acknowledge((0, 0, [ACCEPT]), partition=9) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    delete_topic(client, group)
    assert member.acknowledge((0, 0, [ACCEPT])) in (
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )


# -- a share group is asked as another kind, and another kind as one ---------------------------------------------------


def alter_offsets(client: WireClient, group: str) -> int:
    topic = AlterShareGroupOffsetsRequestTopic(
        group, partitions=[AlterShareGroupOffsetsRequestPartition(partition_index=0, start_offset=0)]
    )
    return int(client.call(AlterShareGroupOffsetsRequest(group, topics=[topic]), 0).error_code)


def delete_share_offsets(client: WireClient, group: str) -> int:
    topic = DeleteShareGroupOffsetsRequestTopic(group)
    return int(client.call(DeleteShareGroupOffsetsRequest(group, topics=[topic]), 0).error_code)


def test_offsets_of_groups_with_members_stay(client: WireClient, member: ShareMember, group: str) -> None:
    assert alter_offsets(client, group) == ErrorCode.NON_EMPTY_GROUP
    assert delete_share_offsets(client, group) == ErrorCode.NON_EMPTY_GROUP


def test_a_classic_group_has_no_share_offsets(client: WireClient, group: str) -> None:
    joined = client.call(join_request(group), 9)  # the member id that it is to join with
    assert client.call(join_request(group, joined.member_id), 9).error_code == NONE
    assert alter_offsets(client, group) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_share_offsets(client, group) == ErrorCode.GROUP_ID_NOT_FOUND
    response = ShareMember(client, group, b"").heartbeat(subscribed_topic_names=[group])
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def streams_heartbeat(group: str) -> StreamsGroupHeartbeatRequest:
    topology = Topology(0, subtopologies=[Subtopology("0", source_topics=[group])])
    tasks = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    request = StreamsGroupHeartbeatRequest(group, member_id="s", process_id="p", topology=topology, **tasks)
    request.rebalance_timeout_ms = 30_000
    return request


@pytest.mark.parametrize("kind", ["consumer", "streams"])
def test_groups_of_other_kinds_have_no_share_offsets(client: WireClient, group: str, kind: str) -> None:
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group], "topic_partitions": []}
    consumer = ConsumerGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=0, **joining)
    request = consumer if kind == "consumer" else streams_heartbeat(group)
    assert client.call(request, 1).error_code == NONE
    assert alter_offsets(client, group) == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_share_offsets(client, group) == ErrorCode.GROUP_ID_NOT_FOUND
    response = ShareMember(client, group, b"").heartbeat(subscribed_topic_names=[group])
    assert response.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_share_group_asked_as_another_kind(client: WireClient, member: ShareMember, group: str) -> None:
    joined = client.call(join_request(group), 9)
    assert joined.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    synced = client.call(SyncGroupRequest(group, generation_id=1, member_id="m"), 5)
    assert synced.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "it names no protocol"
    named = SyncGroupRequest(group, member_id="m", protocol_type="consumer", protocol_name="range")
    assert client.call(named, 5).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    beaten = client.call(HeartbeatRequest(group, generation_id=1, member_id="m"), 4)
    assert beaten.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    joining = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [group], "topic_partitions": []}
    request = ConsumerGroupHeartbeatRequest(group_id=group, member_id="c", member_epoch=0, **joining)
    assert client.call(request, 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert client.call(streams_heartbeat(group), 1).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert delete_offsets(client, group, group, 0).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert commit(client, group, group, 0) == [ErrorCode.GROUP_ID_NOT_FOUND]
    assert committed(client, group, group, partitions=[0]) == [-1]
    assert describe_group(client, group, 6).error_code == ErrorCode.GROUP_ID_NOT_FOUND
    old = describe_group(client, group, 5)
    assert (old.error_code, old.group_state) == (NONE, "Dead")
