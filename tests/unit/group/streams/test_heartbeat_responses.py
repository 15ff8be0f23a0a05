"""Responses to heartbeats of streams members, and records: cases of Apache Kafka's GroupMetadataManagerTest (4.3.1)."""

from dataclasses import replace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.streams.configured_topology import StatusCode
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import Endpoint, StreamsGroupHeartbeatRequest, TaskIds
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from tests.support.consumer_groups import CLIENT, image_of, names_of
from tests.support.streams_groups import StreamsShard, chain, request_of, tasks_of

TOPOLOGY = chain(False, sources=("foo",))
NOTHING = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))


def shard_with(partitions: int = 2, **config: Any) -> StreamsShard:
    keys = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0, **config}
    return StreamsShard(image_of(foo=partitions), **keys)


def join(shard: StreamsShard, member_id: str, **fields: Any) -> StreamsGroupHeartbeatResponse:
    return shard.heartbeat(request_of(member_id, TOPOLOGY, **fields)).response


def beat_request(shard: StreamsShard, member_id: str, **fields: Any) -> StreamsGroupHeartbeatRequest:
    """Return a heartbeat at the member's epoch that says nothing but `fields`."""
    epoch = shard.streams_group().log.members[member_id].member_epoch
    request = request_of(member_id, None, **{"member_epoch": epoch, "process_id": None, **NOTHING, **fields})
    request.rebalance_timeout_ms = -1
    return request


def beat(shard: StreamsShard, member_id: str, **fields: Any) -> StreamsGroupHeartbeatResponse:
    return shard.heartbeat(beat_request(shard, member_id, **fields)).response


def test_a_join_is_told_everything_and_a_heartbeat_what_has_changed() -> None:
    shard = shard_with()
    joined = join(shard, "m")
    assert (joined.member_id, joined.member_epoch, joined.heartbeat_interval_ms) == ("m", 2, 5_000)
    assert tasks_of(joined.active_tasks) == {("0", 0), ("0", 1)}
    assert (joined.standby_tasks, joined.warmup_tasks, joined.status) == ([], [], [])
    again = beat(shard, "m")
    assert (again.member_id, again.member_epoch, again.heartbeat_interval_ms) == ("m", 2, 5_000)
    assert (again.active_tasks, again.standby_tasks, again.warmup_tasks) == (None, None, None)
    assert again.status == [], "it is told that there is nothing to tell"


def test_endpoints_are_told_to_members_that_know_older_ones() -> None:
    shard = shard_with(partitions=4)
    host1, host2 = (Endpoint(host, port=9092) for host in ("host1", "host2"))
    joined = join(shard, "1", user_endpoint=host1, endpoint_information_epoch=0)
    (told,) = joined.partitions_by_user_endpoint or ()
    assert (told.user_endpoint.host, told.user_endpoint.port) == ("host1", 9092)
    assert [(each.topic, each.partitions) for each in told.active_partitions] == [("foo", [0, 1, 2, 3])]
    assert told.standby_partitions == []
    known = {"user_endpoint": host1, "endpoint_information_epoch": joined.endpoint_information_epoch}
    assert beat(shard, "1", **known).partitions_by_user_endpoint is None
    second = join(shard, "2", user_endpoint=host2)
    hosts = {each.user_endpoint.host for each in second.partitions_by_user_endpoint or ()}
    assert hosts == {"host1", "host2"}, "the new one is among them"


@pytest.mark.parametrize("is_leaving", [False, True])
def test_all_members_are_told_who_wants_the_application_to_shut_down(is_leaving: bool) -> None:
    shard = shard_with()
    join(shard, "1")
    join(shard, "2")
    fields = {"member_epoch": -1} if is_leaving else {}
    asked = beat(shard, "1", shutdown_application=True, **fields)
    expected = (
        StatusCode.SHUTDOWN_APPLICATION,
        "Streams group member 1 encountered a fatal error and requested a shutdown for the entire application.",
    )
    assert [(each.status_code, each.status_detail) for each in asked.status or ()] == ([] if is_leaving else [expected])
    assert expected in [(each.status_code, each.status_detail) for each in beat(shard, "2").status or ()]


def test_one_member_too_many_is_refused() -> None:
    shard = shard_with(group_streams_max_size=2)
    join(shard, "1")
    join(shard, "2")
    with pytest.raises(ApiError) as caught:
        shard.shard.streams.heartbeat(request_of("3", TOPOLOGY), 1, CLIENT, shard.now_ms)
    assert caught.value.code == ErrorCode.GROUP_MAX_SIZE_REACHED
    join(shard, "2")


def test_a_member_in_another_process_leads_to_a_new_target() -> None:
    shard = shard_with()
    join(shard, "m")
    request = beat_request(shard, "m", process_id="process-id2")
    decision = shard.shard.streams.heartbeat(request, 1, CLIENT, shard.now_ms)
    names = [each.replace("StreamsGroup", "") for each in names_of(shard.commit(decision))]
    assert names == ["MemberMetadata", "Metadata", "TargetAssignmentMetadata", "CurrentMemberAssignment"]
    log = shard.streams_group().log
    assert (log.group_epoch, log.assignment_epoch, log.members["m"].member_epoch) == (3, 3, 3)
    assert log.members["m"].assigned.active == {"0": {0: 2, 1: 2}}, "they were assigned before"


def test_another_number_of_standbys_raises_the_groups_epoch() -> None:
    shard = shard_with()
    join(shard, "m")
    assert shard.streams_group().log.assignment_configs == {"num.standby.replicas": "0"}
    shard.group_configs["g"] = {"streams.num.standby.replicas": "2"}
    shard.config = replace(shard.config)  # settings are read anew when the broker's or the groups' have changed
    owned = {**{each: [] for each in NOTHING}, "active_tasks": [TaskIds("0", partitions=[0, 1])]}
    request = beat_request(shard, "m", **owned)
    decision = shard.shard.streams.heartbeat(request, 1, CLIENT, shard.now_ms)
    (metadata,) = [each.value for each in decision.records if isinstance(each.value, StreamsGroupMetadataValue)]
    assert metadata.epoch == 3
    assert [(each.key, each.value) for each in metadata.last_assignment_configs or ()] == [
        ("num.standby.replicas", "2")
    ]
    shard.commit(decision)
    assert shard.streams_group().log.members["m"].member_epoch == 3
