"""Sessions and times to revoke tasks: cases of Apache Kafka's GroupMetadataManagerTest (4.3.1) about them."""

from typing import Any

from kafkapy.group.streams.tasks import MemberState
from kafkapy.protocol.messages.streams_group_heartbeat_request import TaskIds
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkapy.protocol.messages.streams_group_metadata_value import StreamsGroupMetadataValue
from tests.support.consumer_groups import image_of, names_of
from tests.support.streams_groups import StreamsShard, chain, request_of

TOPOLOGY = chain(False, sources=("foo",))
SESSION_MS, INTERVAL_MS, REBALANCE_MS = 45_000, 5_000, 12_000
REMOVAL = ["-CurrentMemberAssignment", "-TargetAssignmentMember", "-MemberMetadata", "Metadata"]


class Members:
    """Two members of a topic with three partitions, which the first one runs until the second one joins."""

    def __init__(self) -> None:
        keys = {"group_streams_assignment_interval_ms": 0, "group_streams_initial_rebalance_delay_ms": 0}
        self.shard = StreamsShard(image_of(foo=3), **keys)
        self.epochs: dict[str, int] = {}

    def join(self, member_id: str) -> StreamsGroupHeartbeatResponse:
        request = request_of(member_id, TOPOLOGY)
        request.rebalance_timeout_ms = REBALANCE_MS
        return self._send(member_id, request)

    def beat(self, member_id: str, *owned: int, **fields: Any) -> StreamsGroupHeartbeatResponse:
        """Heartbeat with the tasks that a member still has; without any, it tells none."""
        tasks = {"active_tasks": [TaskIds("0", partitions=list(owned))]} if owned else {}
        nothing = {} if owned else dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))
        values = {"member_epoch": self.epochs[member_id], "process_id": None, **tasks, **nothing, **fields}
        request = request_of(member_id, None, **values)
        request.rebalance_timeout_ms = -1
        return self._send(member_id, request)

    def _send(self, member_id: str, request: Any) -> StreamsGroupHeartbeatResponse:
        response = self.shard.heartbeat(request).response
        self.epochs[member_id] = response.member_epoch
        return response

    def state_of(self, member_id: str) -> MemberState:
        return self.shard.streams_group().log.members[member_id].state

    def pass_time(self, duration_ms: int) -> list[str]:
        """Return the names of the records that are written."""
        return [name.replace("StreamsGroup", "") for name in names_of(self.shard.pass_time(duration_ms))]


def active(response: StreamsGroupHeartbeatResponse) -> list[int] | None:
    """Return the active tasks that a response assigns, None if it leaves them as they are."""
    if response.active_tasks is None:
        return None
    return sorted(partition for each in response.active_tasks for partition in each.partitions)


def with_one_that_must_revoke() -> tuple[Members, list[int]]:
    """Return the members after the first was told to revoke a task, and the tasks that it keeps."""
    members = Members()
    first = members.join("1")
    assert (first.member_epoch, active(first), first.heartbeat_interval_ms) == (2, [0, 1, 2], INTERVAL_MS)
    assert members.pass_time(INTERVAL_MS) == []
    second = members.join("2")
    assert (second.member_epoch, active(second)) == (3, [])
    assert members.pass_time(INTERVAL_MS) == []
    told = members.beat("1")
    kept = active(told)
    assert told.member_epoch == 2
    assert kept is not None
    assert len(kept) == 2
    assert members.state_of("1") is MemberState.UNREVOKED_TASKS
    return members, kept


def test_a_session_begins_anew_with_each_heartbeat() -> None:
    members = Members()
    members.join("1")
    for _ in range(3):
        assert members.pass_time(SESSION_MS - 1) == []
        members.beat("1")
    assert members.pass_time(SESSION_MS - 1) == []
    assert members.pass_time(1)[:4] == REMOVAL
    assert members.shard.streams_group().is_empty
    assert members.pass_time(SESSION_MS) == []
    assert members.shard.streams_group().deadline_ms() is None, "no timer is left"


def test_a_member_that_leaves_has_no_session() -> None:
    members = Members()
    members.join("1")
    members.beat("1", member_epoch=-1)
    assert members.pass_time(SESSION_MS) == []
    assert members.shard.streams_group().deadline_ms() is None, "no timer is left"


def test_a_member_that_revokes_in_time_goes_on() -> None:
    members, kept = with_one_that_must_revoke()
    assert members.pass_time(INTERVAL_MS) == []
    acknowledged = members.beat("1", *kept)
    assert (acknowledged.member_epoch, active(acknowledged)) == (3, None)
    assert members.state_of("1") is MemberState.STABLE
    members.beat("2")
    assert members.pass_time(REBALANCE_MS) == [], "the time to revoke is over, and nobody has to"
    assert members.shard.streams_group().log.members.keys() == {"1", "2"}


def test_a_member_that_does_not_revoke_in_time_is_removed() -> None:
    members, _ = with_one_that_must_revoke()
    assert members.pass_time(REBALANCE_MS - 1) == []
    assert members.shard.streams_group().deadline_ms() == members.shard.now_ms + 1
    written = members.shard.pass_time(1)
    assert [name.replace("StreamsGroup", "") for name in names_of(written)] == REMOVAL
    value = written[-1].value
    assert isinstance(value, StreamsGroupMetadataValue)
    assert (value.epoch, value.validated_topology_epoch) == (4, 0)
    log = members.shard.streams_group().log
    assert (log.members.keys(), log.targets.keys()) == ({"2"}, {"2"})


def test_heartbeats_do_not_renew_the_time_to_revoke() -> None:
    members, _ = with_one_that_must_revoke()
    members.pass_time(REBALANCE_MS - 1)
    members.beat("1", 0, 1, 2)
    assert members.state_of("1") is MemberState.UNREVOKED_TASKS
    assert members.pass_time(1) == REMOVAL


def test_another_coordinator_gives_the_time_to_revoke_anew() -> None:
    members, _ = with_one_that_must_revoke()
    members.pass_time(REBALANCE_MS - 1)
    members.shard.restart()
    assert members.pass_time(REBALANCE_MS - 1) == []
    assert members.pass_time(1) == REMOVAL
