"""Random sequences of valid share requests to kafkapy and to Apache Kafka 4.4.0: each response is the same.

A sequence has three members with sessions of their own, which read two partitions. They fetch, acknowledge, end and
begin sessions; records are produced and deleted, transactions end, keys of the group change, and its offsets are
altered. After each step the start offsets, lags and kept states of both partitions are compared, too.

Apache Kafka does some of it behind its responses; the state is asked for until it is the same on both.
KAFKAPY_SOAK_SEEDS runs more sequences; a failure names its seed, and the steps that led to it.
"""

import base64
import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from harness.servers import Server
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.json_lines import to_json
from kafkapy.protocol.messages import alter_share_group_offsets_request as altering
from kafkapy.protocol.messages import delete_records_request as deleting
from kafkapy.protocol.messages import delete_share_group_offsets_request as forgetting
from kafkapy.protocol.messages import describe_share_group_offsets_request as describing
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.protocol.messages.describe_configs_request import DescribeConfigsRequest, DescribeConfigsResource
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.record.batches import batches
from kafkapy.types import uuid_to_string
from tests.support import java_tools
from tests.support.beside_java import both_brokers
from tests.support.client_requests import LATEST, READ_COMMITTED, batch_of, create_topic, list_offset, produce, until
from tests.support.group_configs import GROUP_RESOURCE, set_group_configs
from tests.support.offsets import find_coordinator
from tests.support.recorded_groups import unordered
from tests.support.share_members import ENDS, LEAVES, OPENS, Acknowledged, ShareMember
from tests.support.share_states import StateClient
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.share.assignment.interval.ms": "0",
    "group.share.max.record.lock.duration.ms": "3600000",
    "group.share.record.lock.duration.ms": "3600000",
    "group.share.max.session.timeout.ms": "3600000",
    "group.share.session.timeout.ms": "3600000",
}
"""Nothing times out while a sequence runs on a loaded machine."""
SEEDS = 2 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
STEPS = 40
SETTLED_S = 60
NO_LIMIT = 5_000
"""More records than there are. Which of two partitions comes first is by chance: Apache Kafka acquires last from those
whose position it has read while it looked for records."""
MEMBERS, PARTITIONS = 3, 2
GAP, ACCEPT, RELEASE, REJECT, RENEW = range(5)
NOTHING = {"max_wait_ms": 0, "min_bytes": 0, "max_bytes": 0, "max_records": 0}
FENCED = ErrorCode.NOT_LEADER_OR_FOLLOWER
"""What is responded after the state's offsets have been altered; the state is read again."""
LEFT_OUT = ("currentLeader", "nodeEndpoints", "throttleTimeMs")
"""The leader that a response names is a deviation (share_fetch.py)."""


class Side:
    """One broker, with the group of a sequence."""

    def __init__(self, server: Server, name: str, stack: ExitStack) -> None:
        self.client = stack.enter_context(WireClient(server.bootstrap))
        self.name = name
        self.topic_id = create_topic(self.client, name, PARTITIONS)
        find_coordinator(self.client, name)
        set_group_configs(self.client, name, share_auto_offset_reset="earliest")
        self.joined = ShareMember(self.client, name, self.topic_id, "joins")
        self.joined.join(name)
        self.members = [
            ShareMember(stack.enter_context(WireClient(server.bootstrap)), name, self.topic_id, f"m{number}")
            for number in range(MEMBERS)
        ]
        # Share partitions are dropped with the last session of their group, and then read again, as one batch for each
        # run. When that is, behind a response or before it, is not compared: this session stays.
        keeper = ShareMember(stack.enter_context(WireClient(server.bootstrap)), name, self.topic_id, "keeps")
        for number in range(PARTITIONS):
            keeper.fetch(partition=number, max_records=0)
        self.states = [StateClient(self.client, name, self.topic_id, number) for number in range(PARTITIONS)]
        self.producer = TransactionalProducer(self.client, name)
        assert self.producer.init() == ErrorCode.NONE

    def plain(self, response: Any, version: int) -> Any:
        return unordered(self._plain(to_json(response, version)))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, list):
            return [self._plain(each) for each in value]
        if isinstance(value, dict):
            left_out: tuple[str, ...] = LEFT_OUT
            if FENCED in (value.get("errorCode"), value.get("acknowledgeErrorCode")):
                left_out += ("errorMessage", "acknowledgeErrorMessage")  # the general message of a code is our own
            return {
                key: _offsets(each) if key == "records" else self._plain(each)
                for key, each in value.items()
                if key not in left_out
            }
        return "the topic's id" if value == uuid_to_string(self.topic_id) else value

    def seen(self) -> Any:
        """Return start offsets and lags, and the states that the share coordinator keeps."""
        topic = describing.DescribeShareGroupOffsetsRequestTopic(self.name, partitions=[*range(PARTITIONS)])
        group = describing.DescribeShareGroupOffsetsRequestGroup(self.name, topics=[topic])
        described = self.client.call(describing.DescribeShareGroupOffsetsRequest([group]), 1)
        kept = []
        for state in self.states:
            read = state.read()
            runs = [(a.first_offset, a.last_offset, a.delivery_state, a.delivery_count) for a in read.state_batches]
            kept.append((read.error_code, read.start_offset, sorted(runs)))
        return self.plain(described, 1), kept


def _offsets(encoded: str | None) -> list[tuple[int, int]] | None:
    """Return the first and the last offset of each batch."""
    if encoded is None:
        return None
    found = batches(base64.b64decode(encoded))
    return [(batch.base_offset, batch.next_offset - 1) for batch in found]


def _has_records(response: Any) -> bool:
    return any(each.acquired_records for topic in response.responses for each in topic.partitions)


def _says_nothing(response: Any) -> bool:
    has_error = any(each.error_code for topic in response.responses for each in topic.partitions)
    return not has_error and not _has_records(response)


class Sequence:
    """The steps of one seed, each of which both brokers take; `held` is what each member may acknowledge."""

    def __init__(self, seed: int, sides: list[Side]) -> None:
        self.random = Random(seed)
        self.sides = sides
        self.steps: list[str] = []
        self.held: dict[tuple[int, int], set[int]] = {}
        self.session: list[set[int]] = [set() for _ in range(MEMBERS)]
        self.ends = [0] * PARTITIONS
        self.unloaded = {*range(PARTITIONS)}
        """Partitions whose state Apache Kafka reads behind the next fetch."""
        self.altered: set[int] = set()
        """Partitions whose acknowledgements may be fenced: Apache Kafka fetches before it knows."""
        self.moved: set[int] = set()
        """Partitions whose log may begin after their next offset: Apache Kafka's next response has none of them."""

    def both(self, what: str, step: Callable[[Side], Any]) -> Any:
        """Let both take a step; return what ours responds."""
        self.steps.append(what)
        ours, javas = [step(side) for side in self.sides]
        assert ours == javas, self._story(ours, javas)
        self.steps.append(f"  {ours}")
        return ours

    def settle(self) -> None:
        """Wait until both have the same state."""
        deadline = time.monotonic() + SETTLED_S
        while True:
            ours, javas = [side.seen() for side in self.sides]
            if ours == javas:
                return
            assert time.monotonic() < deadline, self._story(ours, javas)

    def _story(self, ours: Any, javas: Any) -> str:
        return "\n".join([*self.steps, f"kafkapy:      {ours}", f"Apache Kafka: {javas}"])

    # -- steps

    def run(self) -> None:
        steps = {
            self.fetch: 10,
            self.acknowledge: 8,
            self.renew: 1,
            self.produce: 4,
            self.transact: 2,
            self.end: 1,
            self.delete_records: 1,
            self.configure: 1,
            self.alter: 1,
        }
        self.produce()
        for _ in range(STEPS):
            (step,) = self.random.choices([*steps], [*steps.values()])
            step()
            self.settle()

    def _batches_of(self, member: int, partition: int, types: list[int]) -> list[Acknowledged]:
        """Return acknowledgements of some that the member holds, and rarely of one that it does not."""
        held = sorted(self.held.get((member, partition), ()))
        if self.random.random() < 0.1:
            return [(at := self.random.randrange(self.ends[partition] + 1), at, [self.random.choice(types)])]
        found: list[Acknowledged] = []
        while held and len(found) < 3:
            start = self.random.randrange(len(held))
            run = [held[start]]
            for offset in held[start + 1 : start + self.random.randint(1, 30)]:
                if offset != run[-1] + 1:
                    break
                run.append(offset)
            same = self.random.random() < 0.6
            chosen = [self.random.choice(types)] if same else [self.random.choice(types) for _ in run]
            found.append((run[0], run[-1], chosen))
            held = [offset for offset in held[start:] if offset > run[-1]]
        return found

    def _done(self, member: int, partition: int, acknowledged: list[Acknowledged], code: int) -> None:
        held = self.held.get((member, partition), set())
        if code == FENCED:
            self.unloaded.add(partition)
            self.altered.discard(partition)
            held.clear()
        if code:
            return
        for first, last, types in acknowledged:
            for number, offset in enumerate(range(first, last + 1)):
                if types[number if len(types) > 1 else 0] != RENEW:
                    held.discard(offset)

    def fetch(self) -> None:
        member = self.random.randrange(MEMBERS)
        partition = self.random.randrange(PARTITIONS)
        opens = not self.session[member]
        acknowledged = [] if opens else self._batches_of(member, partition, [ACCEPT, REJECT])
        if self.random.random() < 0.5 or partition in self.moved | self.altered | self.unloaded:
            acknowledged = []
        fields: dict[str, Any] = {
            "max_wait_ms": self.random.choice([0, 20, 300]),
            "max_records": self.random.choice([1, 5, 50, 500]),
            "share_acquire_mode": self.random.randrange(2),
            "min_bytes": self.random.choice([0, 1, 1, 1]),
        }
        self.session[member] |= {partition}
        has_moved = partition in self.moved
        alone = self.moved | self.unloaded
        if alone & self.session[member] or self.random.random() < 0.5:
            forgotten = self.session[member] - {partition}
        else:
            forgotten = set()
        self.session[member] -= forgotten
        if len(self.session[member]) > 1:
            fields["max_records"] = NO_LIMIT
        fields["batch_size"] = self.random.choice([1, 10, fields["max_records"]])
        is_unloaded = bool(self.unloaded & self.session[member])
        if opens or is_unloaded:
            fields["max_wait_ms"], fields["min_bytes"] = 1_000, 1
        self.unloaded -= self.session[member]

        def step(side: Side) -> Any:
            named = [fetching.ForgottenTopic(side.topic_id, partitions=[*forgotten])] if forgotten else []
            sender = side.members[member]
            response = sender.fetch(*acknowledged, partition=partition, forgotten_topics_data=named, **fields)
            # on a loaded machine a state is not always read within the first wait
            if (has_moved and not _has_records(response)) or (is_unloaded and _says_nothing(response)):
                response = sender.fetch(partition=partition, **fields)
            return side.plain(response, 2)

        response = self.both(f"m{member} fetches {partition} {acknowledged} forgetting {forgotten} {fields}", step)
        for topic in response["responses"]:
            for each in topic["partitions"]:
                if each["partitionIndex"] == partition:
                    self._done(member, partition, acknowledged, each["acknowledgeErrorCode"])
                for got in each["acquiredRecords"]:
                    held = self.held.setdefault((member, each["partitionIndex"]), set())
                    held |= set(range(got["firstOffset"], got["lastOffset"] + 1))

    def acknowledge(self) -> None:
        able = [key for key, held in self.held.items() if held and self.session[key[0]]]
        if not able:
            return
        member, partition = self.random.choice(able)
        acknowledged = self._batches_of(member, partition, [ACCEPT, ACCEPT, RELEASE, RELEASE, REJECT, GAP])
        self._acknowledge(member, partition, acknowledged)

    def renew(self) -> None:
        able = [key for key, held in self.held.items() if held and self.session[key[0]]]
        if not able:
            return
        member, partition = self.random.choice(able)
        acknowledged = self._batches_of(member, partition, [RENEW, ACCEPT])
        self._acknowledge(member, partition, acknowledged, is_renew_ack=True)

    def _acknowledge(self, member: int, partition: int, acknowledged: list[Acknowledged], **fields: Any) -> None:
        def step(side: Side) -> Any:
            response = side.members[member].send_acknowledgements(*acknowledged, partition=partition, **fields)
            return side.plain(response, 2)

        response = self.both(f"m{member} acknowledges {partition} {acknowledged} {fields}", step)
        for topic in response["responses"]:
            for each in topic["partitions"]:
                self._done(member, partition, acknowledged, each["errorCode"])

    def end(self) -> None:
        able = [member for member in range(MEMBERS) if self.session[member]]
        if not able:
            return
        member = self.random.choice(able)

        def step(side: Side) -> Any:
            response = side.members[member].send_acknowledgements(topics=[], share_session_epoch=ENDS)
            side.members[member].session_epoch = OPENS
            return side.plain(response, 2)

        self.both(f"m{member} ends its session", step)
        self.session[member] = set()
        for partition in range(PARTITIONS):
            self.held.pop((member, partition), None)

    def produce(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        counts = [self.random.choice([1, 2, 7, 40]) for _ in range(self.random.randint(1, 4))]

        def step(side: Side) -> Any:
            return [produce(side.client, side.name, batch_of(each), partition=partition).base_offset for each in counts]

        self.both(f"produces {counts} to {partition}", step)
        self.ends[partition] += sum(counts)

    def transact(self) -> None:
        partition, count = self.random.randrange(PARTITIONS), self.random.choice([1, 3, 10])
        is_committed = self.random.random() < 0.5

        def step(side: Side) -> Any:
            codes = [side.producer.send(side.name, partition=partition) for _ in range(count)]
            codes.append(side.producer.end(commit=is_committed))
            until(lambda: not self._is_open(side, partition))
            return codes

        self.both(f"a transaction of {count} on {partition}, committed: {is_committed}", step)
        self.ends[partition] += count + 1

    def _is_open(self, side: Side, partition: int) -> bool:
        """Whether a marker is still to come, which Apache Kafka writes after its response."""
        stable = list_offset(side.client, side.name, LATEST, partition=partition, isolation_level=READ_COMMITTED)
        return bool(stable.offset != list_offset(side.client, side.name, LATEST, partition=partition).offset)

    def delete_records(self) -> None:
        partition = self.random.randrange(PARTITIONS)
        offset = self.random.randint(0, self.ends[partition])

        def step(side: Side) -> Any:
            named = deleting.DeleteRecordsPartition(partition_index=partition, offset=offset)
            topic = deleting.DeleteRecordsTopic(side.name, partitions=[named])
            (answered,) = side.client.call(deleting.DeleteRecordsRequest([topic], timeout_ms=30_000), 2).topics
            return [(each.error_code, each.low_watermark) for each in answered.partitions]

        self.moved.add(partition)
        self.both(f"deletes records of {partition} before {offset}", step)

    def configure(self) -> None:
        key, value = self.random.choice(
            [
                ("share.isolation.level", "read_committed"),
                ("share.isolation.level", "read_uncommitted"),
                ("share.delivery.count.limit", "2"),
                ("share.delivery.count.limit", "6"),
                ("share.partition.max.record.locks", "100"),
                ("share.partition.max.record.locks", "2000"),
                ("share.renew.acknowledge.enable", "false"),
            ]
        )

        def step(side: Side) -> Any:
            set_group_configs(side.client, side.name, **{key.replace(".", "_"): value})
            resource = DescribeConfigsResource(GROUP_RESOURCE, resource_name=side.name, configuration_keys=[key])
            request = DescribeConfigsRequest([resource])
            until(lambda: side.client.call(request, 4).results[0].configs[0].value == value)

        self.both(f"sets {key}={value}", step)

    def alter(self) -> None:
        """The group's only member leaves, offsets are altered or deleted, and it joins again."""
        partition, offset = self.random.randrange(PARTITIONS), self.random.randint(0, max(self.ends) + 3)
        deletes = self.random.random() < 0.3
        described = ShareGroupDescribeRequest([self.sides[0].name])

        def step(side: Side) -> Any:
            assert side.joined.heartbeat(member_epoch=LEAVES).error_code == ErrorCode.NONE
            until(lambda: side.client.call(described, 1).groups[0].group_state == "Empty")
            if deletes:
                topics = [forgetting.DeleteShareGroupOffsetsRequestTopic(side.name)]
                response = side.client.call(forgetting.DeleteShareGroupOffsetsRequest(side.name, topics=topics), 0)
            else:
                named = altering.AlterShareGroupOffsetsRequestPartition(partition_index=partition, start_offset=offset)
                topic = altering.AlterShareGroupOffsetsRequestTopic(side.name, partitions=[named])
                response = side.client.call(altering.AlterShareGroupOffsetsRequest(side.name, topics=[topic]), 0)
            side.joined.epoch = 0
            side.joined.join(side.name)
            return side.plain(response, 0)

        self.unloaded = {*range(PARTITIONS)}
        self.altered = {*range(PARTITIONS)}
        self.both("deletes all offsets" if deletes else f"alters {partition} to {offset}", step)


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Server]]:
    with both_brokers(tmp_path_factory, PROPERTIES) as running:
        yield running


@pytest.mark.parametrize("seed", range(SEEDS))
def test_responses_are_the_same(seed: int, servers: list[Server]) -> None:
    with ExitStack() as stack:
        Sequence(seed, [Side(server, f"sequence-{seed}", stack) for server in servers]).run()
