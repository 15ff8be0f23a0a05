"""Classic groups in virtual time: consumers come, go, crash, hang, lose answers; coordinators fail over; topics grow.

The consumers are eager or cooperative, some are static. Checked after every step: a generation has one assignment in
the log, no partition is in it twice, and what members were told is what it says. Checked once the faults are over: all
are in one generation, every partition has an owner, and no request waits.
"""

import os
import random

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic_state import assigned_partitions
from kafkapy.group.classic_states import ClassicState
from kafkapy.group.records import decode_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment
from kafkapy.protocol.messages.consumer_protocol_assignment import TopicPartition as AssignedTopic
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.consumer_protocol_subscription import TopicPartition as OwnedTopic
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.types import TopicPartition
from tests.support.classic_groups import ClassicWorld

FACTOR = int(os.environ.get("KAFKAPY_GROUP_SEEDS", "1"))
BLOCKS = range(20 * FACTOR)
SEEDS_PER_BLOCK = 100
STEPS = 40
SETTLE_MS = 150_000
SESSION_MS, REBALANCE_MS, HEARTBEAT_MS, REQUEST_MS = 10_000, 20_000, 3_000, 30_000
TOPIC = "t"
VERSION = 3
Owned = set[TopicPartition]


class Consumer:
    """A consumer as clients are: joins, syncs, heartbeats, and joins again whenever it is told to."""

    def __init__(self, world: "World", instance_id: str | None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.start()

    def start(self) -> None:
        """Begin without memory, as a process that was restarted."""
        self.member_id = ""
        self.generation = -1
        self.owned: Owned = set()
        self.is_running = True
        self.is_member = self.is_leader = False
        self.token: int | None = None
        self.request = ""
        self.sent_ms = 0
        self.next_ms = self.world.now_ms
        self.known_count = 0

    def crash(self) -> None:
        self.is_running = self.is_member = False
        self.token = None
        self.owned = set()

    def act(self) -> None:
        if not self.is_running:
            return
        if self.token is not None:
            self._look_for_answer()
        elif self.world.now_ms >= self.next_ms:
            self._heartbeat() if self.is_member else self._join()

    # -- requests -------------------------------------------------------------------------------------------------

    def _send(self, request: str, token: int) -> None:
        self.request, self.token, self.sent_ms = request, token, self.world.now_ms
        self._look_for_answer()

    def _join(self) -> None:
        self.is_member = False
        if not self.world.is_cooperative:
            self.owned = set()
        name = "cooperative" if self.world.is_cooperative else "range"
        token = self.world.shard.join(
            self.member_id,
            group_instance_id=self.instance_id,
            protocols={name: self._subscription()},
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
        )
        self._send("join", token)

    def _subscription(self) -> bytes:
        owned = [OwnedTopic(TOPIC, sorted(partition.partition for partition in self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription([TOPIC], None, owned, self.generation)
        return VERSION.to_bytes(2, "big") + subscription.encode(VERSION)

    def _heartbeat(self) -> None:
        self.next_ms = self.world.now_ms + HEARTBEAT_MS
        if self.world.loses():
            return
        code = self.world.shard.heartbeat(self.member_id, self.generation, self.instance_id)
        if code != ErrorCode.NONE:
            self._refused(code)
        elif self.is_leader and self.known_count != self.world.partition_count:
            self._join()

    def _look_for_answer(self) -> None:
        assert self.token is not None
        if self.world.shard.is_waiting(self.token):
            if self.world.now_ms - self.sent_ms > REQUEST_MS:
                self._retry()
            return
        answer = self.world.shard.take(self.token)
        if self.world.loses():
            self._retry()
            return
        self.token = None
        code = answer.code if isinstance(answer, ApiError) else answer.error_code
        if code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
        elif code != ErrorCode.NONE:
            self._refused(code)
        elif self.request == "join":
            self._joined(answer)
        else:
            self._synced(answer.assignment)

    def _retry(self) -> None:
        """Ask again a little later: the connection was lost."""
        self.token = None
        self.next_ms = self.world.now_ms + 500

    def _refused(self, code: int) -> None:
        self.is_member = False
        self.next_ms = self.world.now_ms + self.world.slowness()
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.owned, self.generation = set(), -1
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self.member_id = ""
        elif code == ErrorCode.FENCED_INSTANCE_ID:
            # As with Apache Kafka: a static id of a generation that was not written yet is lost with its coordinator.
            assert self.world.has_failed_over, "nobody else has this instance id"
            self.start()
        else:
            assert code in (
                ErrorCode.ILLEGAL_GENERATION,
                ErrorCode.REBALANCE_IN_PROGRESS,
                ErrorCode.NOT_COORDINATOR,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ), ErrorCode(code)

    def _joined(self, answer: JoinGroupResponse) -> None:
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.is_leader = answer.leader == answer.member_id
        self.known_count = self.world.partition_count
        assignments = {}
        if answer.skip_assignment:
            self.known_count = -1  # what has changed while it was away nobody has noticed (KIP-814): it looks again
        elif self.is_leader:
            assignments = self.world.assign(answer)
        token = self.world.shard.sync(
            self.member_id,
            self.generation,
            assignments,
            group_instance_id=self.instance_id,
            protocol_type="consumer",
            protocol_name=answer.protocol_name,
        )
        self._send("sync", token)

    def _synced(self, assignment: bytes) -> None:
        assert assignment, "a live member's assignment has bytes"
        self.world.told(self, assignment)
        assigned = assigned_partitions(assignment)
        has_revoked = bool(self.owned - assigned)
        self.owned = assigned
        self.is_member = True
        self.next_ms = self.world.now_ms + HEARTBEAT_MS
        if has_revoked and self.world.is_cooperative:
            self._join()  # so that others get what it has given up


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_cooperative = self.random.random() < 0.5
        self.shard = ClassicWorld(seed=seed, group_initial_rebalance_delay_ms=self.random.choice((0, 3_000)))
        self.partition_count = self.random.randint(1, 8)
        self.is_faulty = True
        self.has_failed_over = False
        self.checked_count = 0
        self.assignments: dict[int, dict[str, bytes]] = {}
        """What the log says, by generation and by who: the instance id where there is one."""
        self.consumers = [
            Consumer(self, f"i{index}" if self.random.random() < 0.3 else None)
            for index in range(self.random.randint(1, 5))
        ]

    @property
    def now_ms(self) -> int:
        return self.shard.now_ms

    def loses(self) -> bool:
        return self.is_faulty and self.random.random() < 0.05

    def slowness(self) -> int:
        """Return how long a consumer takes before it joins again: rarely longer than the rebalance may take."""
        if self.is_faulty and self.random.random() < 0.1:
            return self.random.randrange(REBALANCE_MS * 2)
        return self.random.randrange(500)

    def assign(self, answer: JoinGroupResponse) -> dict[str, bytes]:
        """Return the leader's assignment; cooperatively, what somebody else still has is left out."""
        everything = [TopicPartition(TOPIC, partition) for partition in range(self.partition_count)]
        members = sorted(member.member_id for member in answer.members)
        wanted = {member_id: set(everything[index :: len(members)]) for index, member_id in enumerate(members)}
        if self.is_cooperative:
            owners = self._owners(answer)
            wanted = {
                member_id: {partition for partition in partitions if owners.get(partition, member_id) == member_id}
                for member_id, partitions in wanted.items()
            }
        return {member_id: encode_assignment(partitions) for member_id, partitions in wanted.items()}

    def _owners(self, answer: JoinGroupResponse) -> dict[TopicPartition, str]:
        """Return who has what, by the latest generation that claims it."""
        latest: dict[TopicPartition, tuple[int, str]] = {}
        for member in answer.members:
            subscription, _ = ConsumerProtocolSubscription.read(member.metadata, 2, VERSION)
            for topic in subscription.owned_partitions:
                for partition in topic.partitions:
                    key = TopicPartition(topic.topic, partition)
                    claim = (subscription.generation_id, member.member_id)
                    latest[key] = max(claim, latest.get(key, claim))
        return {partition: member_id for partition, (_, member_id) in latest.items()}

    # -- a run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self._fault()
            self._advance(self.random.randrange(1, 3_000))
        self.is_faulty = False
        self.shard.log_error = None
        for consumer in self.consumers:
            if not consumer.is_running:
                consumer.start()
        end_ms = self.now_ms + SETTLE_MS
        while self.now_ms < end_ms:
            self._advance(2_500)
        self.check_settled()

    def _advance(self, elapsed_ms: int) -> None:
        self.shard.advance(elapsed_ms)
        for consumer in self.consumers:
            consumer.act()
        self.check_log()

    def _fault(self) -> None:
        dice = self.random.random()
        consumer = self.random.choice(self.consumers)
        if dice < 0.06:
            consumer.crash()
        elif dice < 0.12:
            consumer.start() if not consumer.is_running else self._leave(consumer)
        elif dice < 0.16:
            self.has_failed_over = True
            self.shard.restart()
        elif dice < 0.20:
            self.partition_count += 1
        elif dice < 0.24 and len(self.consumers) < 8:
            self.consumers.append(Consumer(self, None))
        elif dice < 0.27:
            self.shard.log_error = None if self.shard.log_error else ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif dice < 0.30:
            self.shard.log_error = None

    def _leave(self, consumer: Consumer) -> None:
        if consumer.is_member and self.shard.log_error is None:
            self.shard.leave((consumer.member_id, consumer.instance_id))
        consumer.crash()

    # -- checks ---------------------------------------------------------------------------------------------------

    def check_log(self) -> None:
        for key, value in self.shard.log[self.checked_count :]:
            record = decode_record(key, value)
            assert record is not None
            if isinstance(record.value, GroupMetadataValue) and record.value.members:
                self._check_record(record.value)
        self.checked_count = len(self.shard.log)

    def _check_record(self, value: GroupMetadataValue) -> None:
        shares = {member.group_instance_id or member.member_id: member.assignment for member in value.members}
        owned = [partition for assignment in shares.values() for partition in assigned_partitions(assignment)]
        assert len(owned) == len(set(owned)), f"generation {value.generation} has a partition twice"
        assert self.assignments.setdefault(value.generation, shares) == shares, "a generation has one assignment"

    def told(self, consumer: Consumer, assignment: bytes) -> None:
        self.check_log()
        name = consumer.instance_id or consumer.member_id
        assert self.assignments[consumer.generation][name] == assignment

    def check_settled(self) -> None:
        group = self.shard.group
        assert group.state is ClassicState.STABLE
        assert all(consumer.is_member for consumer in self.consumers)
        assert {consumer.generation for consumer in self.consumers} == {group.generation}
        owned = sorted(partition for consumer in self.consumers for partition in consumer.owned)
        assert owned == [TopicPartition(TOPIC, partition) for partition in range(self.partition_count)]
        assert not self.shard.waiting, "nobody waits for ever"
        assert len(group.members) == len(self.consumers)


def encode_assignment(partitions: Owned) -> bytes:
    topics = [AssignedTopic(TOPIC, sorted(partition.partition for partition in partitions))] if partitions else []
    return b"\0\0" + ConsumerProtocolAssignment(topics).encode(0)


@pytest.mark.parametrize("block", BLOCKS)
def test_groups_survive_what_happens_to_them(block: int) -> None:
    for seed in range(block * SEEDS_PER_BLOCK, (block + 1) * SEEDS_PER_BLOCK):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
