"""Heartbeats of streams members that need no decision: their outcome is that of the decision, whatever came before."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.decision import Client
from kafkapy.group.streams.configured_topology import StatusCode
from kafkapy.group.streams.decision import HeartbeatResult
from kafkapy.group.streams.idle import IdleMembers
from kafkapy.group.streams.settings import RACK_TAGS
from kafkapy.metadata.image import MetadataImage
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    Endpoint,
    KeyValue,
    StreamsGroupHeartbeatRequest,
    TaskOffset,
)
from tests.support.consumer_groups import CLIENT, image_with
from tests.support.streams_groups import StreamsShard, chain, request_of, task_ids, tasks_of

TOPOLOGY = chain(True, sources=("foo",))
CHANGELOG = "app-store0-changelog"
NOTHING = dict.fromkeys(("active_tasks", "standby_tasks", "warmup_tasks"))
OTHER_CLIENT = Client("another", "/127.0.0.1")
STEPS = 400
QUIET_STEPS = 100
"""Without changes: they are longer than the delay of the first assignment, and the interval to the next one."""
STEP_MS = 100


class RepeatingMember:
    """A member that sends what a client does: tasks when they change, and else that it is alive."""

    def __init__(self, member_id: str, instance_id: str | None) -> None:
        self.member_id = member_id
        self._instance_id = instance_id
        self._epoch = 0
        self._endpoint_epoch = -1
        self._reported: dict[str, Any] = {}

    def request(self, **fields: Any) -> StreamsGroupHeartbeatRequest:
        known = {"instance_id": self._instance_id, "endpoint_information_epoch": max(self._endpoint_epoch, 0)}
        if self._epoch == 0:
            return request_of(self.member_id, TOPOLOGY, **known)
        reported, self._reported = self._reported, {}
        values = {"member_epoch": self._epoch, "process_id": None, **NOTHING, **known, **reported, **fields}
        request = request_of(self.member_id, None, **values)
        request.rebalance_timeout_ms = -1
        return request

    def receive(self, result: HeartbeatResult) -> None:
        response = result.response
        self._epoch, self._endpoint_epoch = max(response.member_epoch, 0), response.endpoint_information_epoch
        if response.active_tasks is not None:
            kinds = ("active_tasks", "standby_tasks", "warmup_tasks")
            self._reported = {kind: task_ids(tasks_of(getattr(response, kind)) or set()) for kind in kinds}

    def rejoin(self) -> None:
        self._epoch, self._reported = 0, {}


def outcome(shard: StreamsShard, request: StreamsGroupHeartbeatRequest, version: int, client: Client) -> Any:
    """Return the result of a heartbeat, which is carried out, its records, and the soft state; or the error."""
    try:
        decision = shard.shard.streams.heartbeat(request, version, client, shard.now_ms)
        shard.commit(decision)
    except ApiError as error:
        return error.code, error.message, None
    if "g" not in shard.groups:
        return decision.response, decision.records, None
    group = shard.streams_group()
    soft_state = group.deadline_ms(), dict(group.task_offsets), group.refined_targets
    return decision.response, decision.records, soft_state


def image_of_topics(counts: dict[str, int]) -> MetadataImage:
    return image_with({name: (name[:16].encode().ljust(16), count) for name, count in counts.items()})


@pytest.mark.parametrize("seed", range(20))
def test_an_idle_heartbeat_has_the_outcome_of_its_decision(seed: int) -> None:
    random, counts = Random(seed), {"foo": 2, CHANGELOG: 2}
    keys = {
        "group_streams_assignment_interval_ms": random.choice([0, 5_000]),
        "group_streams_initial_rebalance_delay_ms": random.choice([0, 3_000]),
        "group_streams_num_standby_replicas": random.choice([0, 1]),
        "group_streams_num_warmup_replicas": random.choice([0, 2]),
    }
    shards = [StreamsShard(image_of_topics(counts), **keys) for _ in range(2)]
    members = [RepeatingMember(name, random.choice([None, f"instance-{name}"])) for name in "abc"]
    idle_count = 0

    def heartbeat(member: RepeatingMember, **fields: Any) -> None:
        nonlocal idle_count
        request = member.request(**fields)
        version, client = random.choice([0, 1, 1]), random.choice([CLIENT] * 29 + [OTHER_CLIENT])
        group, image = shards[0].groups.get("g"), shards[0].image
        if group is not None:
            settings = group.own_settings(image.configs)
            idle_count += group.idle.find(request, client, image.topics, settings) is not None
            other = shards[1].streams_group()
            other.idle = IdleMembers(other.log)  # which makes the second shard decide
        first, second = (outcome(shard, request, version, client) for shard in shards)
        assert first == second
        if isinstance(first[0], HeartbeatResult):
            member.receive(first[0])
        else:
            member.rejoin()

    def refused_heartbeat(member: RepeatingMember) -> None:
        """Its records, and the topics that it looks at first, are not written."""
        add_partition(member)
        for shard in shards:
            shard.refuses_append = lambda: True
        heartbeat(member, rack_id="another")
        for shard in shards:
            shard.refuses_append = None

    def add_partition(_member: RepeatingMember) -> None:
        """Its task is added, or the internal topic has too few partitions from now on."""
        counts["foo"] += 1
        counts[CHANGELOG] = random.choice([counts["foo"], counts[CHANGELOG]])
        for shard in shards:
            shard.image = image_of_topics(counts)

    def change_configs(_member: RepeatingMember) -> None:
        chosen = {f"streams.{RACK_TAGS}": random.choice(["", "zone"])}
        for shard in shards:
            shard.group_configs["g"] = chosen
            shard.image = replace(shard.image, configs=replace(shard.image.configs))

    def pass_time(duration_ms: int) -> None:
        for shard in shards:
            shard.pass_time(duration_ms)

    changes = [
        add_partition,
        refused_heartbeat,
        change_configs,
        lambda member: heartbeat(member, shutdown_application=True),
        lambda member: heartbeat(member, member_epoch=-1),
        lambda member: heartbeat(member, user_endpoint=Endpoint("host", port=random.randrange(1, 3))),
        lambda member: heartbeat(member, client_tags=[KeyValue("zone", value="a")]),
        lambda member: heartbeat(member, task_offsets=[TaskOffset("0", partition=0, offset=5)]),
        lambda member: heartbeat(member, rack_id="rack"),
        lambda member: heartbeat(member, instance_id="of another"),
        lambda member: heartbeat(member, endpoint_information_epoch=-1),
        lambda member: heartbeat(member, **{kind: [] for kind in NOTHING}),
        lambda _: pass_time(random.choice([1_000, 50_000])),
    ]
    heartbeat(members[0])
    for step in range(STEPS):
        if step >= QUIET_STEPS and random.random() < 0.05:
            random.choice(changes)(random.choice(members))
            if shards[0].streams_group().shutdown_member_id is not None and random.random() < 0.5:
                pass_time(random.choice([1_000, 50_000]))
        pass_time(STEP_MS)
        heartbeat(random.choice(members))
    assert idle_count > 0, "some heartbeat needed no decision"


def test_a_member_without_tags_is_told_so_after_a_client_that_could_not_read_it() -> None:
    shard = StreamsShard(
        image_of_topics({"foo": 1, CHANGELOG: 1}),
        group_streams_assignment_interval_ms=0,
        group_streams_initial_rebalance_delay_ms=0,
        group_streams_rack_aware_assignment_tags=["zone"],
    )
    member = RepeatingMember("m", None)
    for version in (0, 0, 0, 1):
        decision = shard.shard.streams.heartbeat(member.request(), version, CLIENT, shard.now_ms)
        shard.commit(decision)
        member.receive(decision.response)
    assert [each.status_code for each in decision.response.response.status] == [StatusCode.MISSING_CLIENT_TAGS]
