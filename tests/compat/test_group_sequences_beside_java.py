"""Random sequences of group requests to kafkapy and to Apache Kafka 4.4.0: each response is the same.

Three groups become what their first requests make of them: classic, consumer or share groups, which classic members may
turn into each other. Members join, heartbeat at their epoch and at others, change what they subscribe to and leave;
offsets are committed, fetched and deleted; groups are listed, described and deleted, by each API whatever they are.

KAFKAPY_SOAK_SEEDS runs more sequences; a failure names its seed, and the steps that led to it.
"""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from harness.servers import Server
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages import consumer_group_heartbeat_request as consuming
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.describe_groups_request import DescribeGroupsRequest
from kafkapy.protocol.messages.describe_share_group_offsets_request import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.list_groups_request import ListGroupsRequest
from kafkapy.protocol.messages.offset_delete_request import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from kafkapy.protocol.messages.offset_fetch_request import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.types import uuid_to_string
from tests.support import java_tools
from tests.support.beside_java import both_brokers
from tests.support.client_requests import create_topic, until
from tests.support.membership import assignment, join_request, subscription
from tests.support.offsets import commit_request, find_coordinator
from tests.support.recorded_groups import unordered
from tests.support.wire import CLIENT_ID, WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

LONG_MS = 1_800_000
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
    "group.consumer.assignor.offload.enable": "false",
    "group.consumer.max.session.timeout.ms": str(LONG_MS),
    "group.consumer.session.timeout.ms": str(LONG_MS),
    "group.share.assignment.interval.ms": "0",
    "group.share.assignor.offload.enable": "false",
    "group.share.max.session.timeout.ms": str(LONG_MS),
    "group.share.session.timeout.ms": str(LONG_MS),
}
"""Targets are there with the response that asks for them, and nothing times out on a loaded machine."""
SEEDS = 2 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
STEPS = 80
GROUPS, MEMBERS, TOPICS = 3, 2, 2
"""Only the first topic exists: how partitions of several are shared out depends on their ids."""
PARTITIONS = 6
"""Each member gets as many as the others; which ones, depends on the ids that members are given."""
LEFT_OUT = ("throttleTimeMs",)
GIVEN_ID = re.compile(rf"({CLIENT_ID}-[0-9a-f-]{{36}}|[A-Za-z0-9_-]{{22}})$")
"""Of a classic group with the client's id before it, of a consumer group alone."""
JOINS, LEAVES = 0, -1


class Side:
    """One broker with the topics and groups of a sequence, and what it told the members."""

    def __init__(self, server: Server, name: str, stack: ExitStack) -> None:
        self.client = stack.enter_context(WireClient(server.bootstrap))
        self.topics = [f"{name}-{number}" for number in range(TOPICS)]
        topic_id = create_topic(self.client, self.topics[0], PARTITIONS)
        self.groups = [f"{name}-group-{number}" for number in range(GROUPS)]
        find_coordinator(self.client, self.groups[0])
        self._topic_id = uuid_to_string(topic_id)
        self._given: dict[str, str] = {}
        self.classic: dict[int, tuple[str, int]] = {}
        """The id and generation of each group's classic member."""
        self.epochs: dict[tuple[int, int], int] = {}
        self.owned: dict[tuple[int, int], list[consuming.TopicPartitions]] = {}

    def call(self, request: Any, version: int) -> tuple[Any, Any]:
        """Return the response, and as plain values that are the same on both brokers."""
        response = self.client.call(request, version)
        return response, unordered(self._plain(to_json(response, version)))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            return {key: self._of(key, each) for key, each in value.items() if key not in LEFT_OUT}
        return "the topic's id" if value == self._topic_id else value

    def _of(self, key: str, value: Any) -> Any:
        if key in ("memberId", "leader") and isinstance(value, str) and GIVEN_ID.match(value):
            return self._given.setdefault(value, f"given id {len(self._given)}")
        return (
            len(value) if key == "partitions" and all(isinstance(each, int) for each in value) else self._plain(value)
        )


class Sequence:
    """The steps of one seed, each of which both brokers take."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.random = Random(seed)
        self.sides = sides
        self.steps: list[str] = []

    def run(self) -> None:
        steps = {
            self.join_classic: 4,
            self.sync: 3,
            self.beat_classic: 2,
            self.leave_classic: 1,
            self.consume: 10,
            self.share: 6,
            self.commit: 4,
            self.fetch_offsets: 3,
            self.delete_offsets: 1,
            self.delete_group: 1,
            self.describe: 4,
            self.list_groups: 2,
        }
        for _ in range(STEPS):
            (step,) = self.random.choices([*steps], [*steps.values()])
            step()

    def both(self, what: str, step: Callable[[Side], Any]) -> None:
        self.steps.append(what)
        ours, javas = [step(side) for side in self.sides]
        assert ours == javas, "\n".join([*self.steps, f"kafkapy:      {ours}", f"Apache Kafka: {javas}"])

    def _group(self) -> int:
        return self.random.randrange(GROUPS)

    def _topics(self) -> list[int]:
        return sorted(self.random.sample(range(TOPICS), self.random.randint(1, TOPICS)))

    # -- classic members

    def join_classic(self) -> None:
        group, topics, is_new = self._group(), self._topics(), self.random.random() < 0.2

        def step(side: Side) -> Any:
            known = "" if is_new or group not in side.classic else side.classic[group][0]
            named = subscription(*[side.topics[each] for each in topics])
            for _ in range(2):
                request = join_request(
                    side.groups[group], known, protocols={"range": named},
                    session_timeout_ms=LONG_MS, rebalance_timeout_ms=LONG_MS,
                )  # fmt: skip
                response, plain = side.call(request, 9)
                known = response.member_id
                if response.error_code:
                    continue
                side.classic[group] = response.member_id, response.generation_id
                break
            return plain

        if is_new and any(group in side.classic for side in self.sides):
            return  # it would wait for the other one
        self.both(f"a classic member joins {group} for {topics}, new: {is_new}", step)

    def sync(self) -> None:
        group, partitions = self._group(), self.random.sample(range(PARTITIONS), 2)

        def step(side: Side) -> Any:
            member_id, generation = side.classic.get(group, ("nobody", 1))
            given = [SyncGroupRequestAssignment(member_id, assignment=assignment(side.topics[0], *partitions))]
            request = SyncGroupRequest(
                side.groups[group], generation_id=generation, member_id=member_id, assignments=given,
                protocol_type="consumer", protocol_name="range",
            )  # fmt: skip
            return side.call(request, 5)[1]

        self.both(f"the classic member of {group} syncs", step)

    def beat_classic(self) -> None:
        group, more = self._group(), self.random.choice([0, 0, 0, 1, -1])

        def step(side: Side) -> Any:
            member_id, generation = side.classic.get(group, ("nobody", 1))
            request = HeartbeatRequest(side.groups[group], generation_id=generation + more, member_id=member_id)
            return side.call(request, 4)[1]

        self.both(f"the classic member of {group} heartbeats at {more}", step)

    def leave_classic(self) -> None:
        group = self._group()

        def step(side: Side) -> Any:
            member_id, _ = side.classic.pop(group, ("nobody", 1))
            return side.call(LeaveGroupRequest(side.groups[group], members=[MemberIdentity(member_id)]), 5)[1]

        self.both(f"the classic member of {group} leaves", step)

    # -- members of the other kinds

    def _epoch(self) -> str:
        return self.random.choices(["joins", "stays", "leaves", "before", "ahead"], [3, 8, 1.5, 0.7, 0.7])[0]

    def _sent_epoch(self, side: Side, key: tuple[int, int], word: str) -> int:
        last = side.epochs.get(key, 0)
        return {"joins": JOINS, "stays": last, "leaves": LEAVES, "before": last - 1, "ahead": last + 5}[word]

    def consume(self) -> None:
        key = group, member = self._group(), self.random.randrange(MEMBERS)
        word, topics, says_topics = self._epoch(), self._topics(), self.random.random() < 0.3
        owns = self.random.random() < 0.8

        def step(side: Side) -> Any:
            epoch = self._sent_epoch(side, key, word)
            names = [side.topics[each] for each in topics]
            fields: dict[str, Any] = {}
            if epoch == JOINS:
                fields = {"subscribed_topic_names": names, "rebalance_timeout_ms": LONG_MS, "topic_partitions": []}
            elif epoch > 0:
                fields = {"subscribed_topic_names": names if says_topics else None}
                fields["topic_partitions"] = side.owned.get(key) if owns else None
            request = consuming.ConsumerGroupHeartbeatRequest(
                side.groups[group], member_id=f"~c{member}", member_epoch=epoch, **fields
            )
            response, plain = side.call(request, 1)
            if response.error_code == 0:
                side.epochs[key] = max(response.member_epoch, 0)
                if response.assignment is not None:
                    side.owned[key] = [
                        consuming.TopicPartitions(each.topic_id, partitions=each.partitions)
                        for each in response.assignment.topic_partitions
                    ]
                if epoch == LEAVES:
                    side.owned.pop(key, None)
            return plain

        self.both(f"consumer {key} {word} for {topics if says_topics or word == 'joins' else None}, owns: {owns}", step)

    def share(self) -> None:
        key = group, member = self._group(), self.random.randrange(MEMBERS)
        word, topics, says_topics = self._epoch(), self._topics(), self.random.random() < 0.3

        def step(side: Side) -> Any:
            epoch = self._sent_epoch(side, key, word)
            names = [side.topics[each] for each in topics]
            says = epoch == JOINS or (epoch > 0 and says_topics)
            request = ShareGroupHeartbeatRequest(
                side.groups[group], member_id=f"s{member}", member_epoch=epoch,
                subscribed_topic_names=names if says else None,
            )  # fmt: skip
            response, plain = side.call(request, 1)
            if response.error_code == 0:
                side.epochs[key] = max(response.member_epoch, 0)
                if says and topics[0] == 0:
                    self._wait_until_initialized(side, group)
            return plain

        self.both(f"share member {key} {word} for {topics if says_topics or word == 'joins' else None}", step)

    def _wait_until_initialized(self, side: Side, group: int) -> None:
        """Until then its partitions are not assigned; a heartbeat asks for what has not been initialised."""
        request = DescribeShareGroupOffsetsRequest(
            [DescribeShareGroupOffsetsRequestGroup(side.groups[group], topics=None)]
        )

        def is_done() -> bool:
            (found,) = side.client.call(request, 1).groups
            return len(found.topics) == 1

        until(is_done)

    # -- offsets

    def commit(self) -> None:
        group, topic = self._group(), self.random.randrange(TOPICS)
        who = self.random.choice(["nobody", "classic", *range(MEMBERS)])
        offset, more = self.random.randrange(100), self.random.choice([0, 0, 0, 1, -1])

        def step(side: Side) -> Any:
            member_id, epoch = "", -1
            if who == "classic":
                member_id, epoch = side.classic.get(group, ("nobody", 1))
                epoch += more
            elif who != "nobody":
                member_id, epoch = f"~c{who}", side.epochs.get((group, who), 0) + more
            request = commit_request(
                side.groups[group], side.topics[topic], offset, member_id=member_id,
                generation_id_or_member_epoch=epoch,
            )  # fmt: skip
            return side.call(request, 9)[1]

        self.both(f"{who} commits {offset} of {topic} to {group} at {more}", step)

    def fetch_offsets(self) -> None:
        group, who = self._group(), self.random.choice(["nobody", "nobody", *range(MEMBERS)])
        names_topics = self.random.random() < 0.5

        def step(side: Side) -> Any:
            fields: dict[str, Any] = {}
            if who != "nobody":
                fields = {"member_id": f"~c{who}", "member_epoch": side.epochs.get((group, who), 0)}
            named = [OffsetFetchRequestTopics(each, partition_indexes=[0, 1]) for each in side.topics]
            asked = OffsetFetchRequestGroup(side.groups[group], topics=named if names_topics else None, **fields)
            return side.call(OffsetFetchRequest(groups=[asked], require_stable=True), 9)[1]

        self.both(f"{who} fetches the offsets of {group}, by topic: {names_topics}", step)

    def delete_offsets(self) -> None:
        group, topic = self._group(), self.random.randrange(TOPICS)

        def step(side: Side) -> Any:
            named = OffsetDeleteRequestTopic(
                side.topics[topic], partitions=[OffsetDeleteRequestPartition(partition_index=0)]
            )
            return side.call(OffsetDeleteRequest(side.groups[group], topics=[named]), 0)[1]

        self.both(f"deletes the offsets of {topic} of {group}", step)

    # -- groups

    def delete_group(self) -> None:
        group = self._group()
        self.both(f"deletes {group}", lambda side: side.call(DeleteGroupsRequest([side.groups[group]]), 3)[1])

    def describe(self) -> None:
        group = self._group()
        kind, version = self.random.choice(
            [
                (DescribeGroupsRequest, 5),
                (DescribeGroupsRequest, 6),
                (ConsumerGroupDescribeRequest, 1),
                (ShareGroupDescribeRequest, 1),
            ]
        )
        self.both(f"{kind.NAME} {group}", lambda side: side.call(kind([side.groups[group]]), version)[1])

    def list_groups(self) -> None:
        states = self.random.choice([[], ["Stable"], ["Empty"], ["stable", "empty"], ["Dead"], ["PreparingRebalance"]])
        types = self.random.choice([[], ["consumer"], ["classic"], ["share"], ["Share", "Classic"]])

        def step(side: Side) -> Any:
            _, plain = side.call(ListGroupsRequest(states, types_filter=types), 5)
            plain["groups"] = [each for each in plain["groups"] if each["groupId"] in side.groups]
            return plain

        self.both(f"lists {states} {types}", step)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with both_brokers(tmp_path_factory, PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("seed", range(SEEDS))
def test_responses_are_the_same(seed: int, servers: list[Server]) -> None:
    with ExitStack() as stack:
        Sequence(seed, [Side(server, f"groups-{seed}", stack) for server in servers]).run()
