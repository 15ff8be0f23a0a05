"""Classic groups in virtual time: consumers come, go, crash, hang, lose answers; coordinators fail over; topics grow.

The consumers are eager or cooperative, some are static, and they commit. Checked after every step: a generation has one
assignment in the log, no partition is in it twice, what members were told is what it says, a stable group has the
members of its last record, what was committed is there, and only members of the generation have committed. Checked once
the faults are over: all are in one generation and stay in it, every partition has an owner, and no request waits.

KAFKAPY_SOAK_SEEDS multiplies the number of seeds.
"""

import os
import random
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.decision import ParkedResponse
from kafkapy.group.records import decode_record
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.group_metadata_value import GroupMetadataValue
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.types import TopicPartition
from tests.simulator.classic_members import REBALANCE_MS, TOPIC, Consumer, assign
from tests.simulator.committed import CommittedOffsets, decide_commit
from tests.support.classic_groups import GROUP, ClassicWorld

SEED_COUNT = 800 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
SEEDS_PER_BLOCK = 100
STEPS = 40
SETTLE_MS, STEADY_MS = 150_000, 60_000


class ForgetfulConsumer(Consumer):
    has_forgotten = False

    def forgets_to_sync(self) -> bool:
        self.has_forgotten = bool(self.world.is_faulty) and self.world.random.random() < 0.03
        return self.has_forgotten


class Shard(ClassicWorld):
    """Knows who has been told of which generation, and what members have last said of themselves."""

    def __init__(self, **options: Any) -> None:
        self.reported: dict[int, set[str]] = {}
        super().__init__(**options)

    def restart(self) -> None:
        self.printed: dict[str, bytes] = {}
        super().restart()

    def join(self, member_id: str = "", **fields: Any) -> int:
        if member_id:
            (self.printed[member_id],) = fields["protocols"].values()
        return super().join(member_id, **fields)

    def _hand_out(self, parked_responses: list[ParkedResponse]) -> None:
        responses = [parked.response for parked in parked_responses if isinstance(parked.response, JoinGroupResponse)]
        joined = [response for response in responses if response.error_code == ErrorCode.NONE]
        for response in joined:
            self.reported.setdefault(response.generation_id, set()).add(response.member_id)
        for response in joined:
            assert response.leader in self.reported[response.generation_id], "who leads is there"
            for member in response.members:
                assert self.printed.get(member.member_id, member.metadata) == member.metadata
        super()._hand_out(parked_responses)


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.is_cooperative = self.random.random() < 0.5
        self.shard = Shard(seed=seed, group_initial_rebalance_delay_ms=self.random.choice((0, 3_000)))
        self.partition_count = self.random.randint(1, 8)
        self.is_faulty = True
        self.has_failed_over = False
        self.checked_count = 0
        self.last_written: dict[str, bytes] = {}
        self.assignments: dict[int, dict[str, bytes]] = {}
        """What the log says, by generation and by who: the instance id where there is one."""
        self.committed = CommittedOffsets(GROUP)
        self.replaced: list[tuple[str, str]] = []
        """Member and instance ids of static members before they were started again."""
        self.consumers = [
            ForgetfulConsumer(self, f"i{index}" if self.random.random() < 0.3 else None)
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

    def assign(self, response: JoinGroupResponse) -> dict[str, bytes]:
        dynamic = {member.member_id for member in response.members if member.group_instance_id is None}
        assert dynamic <= self.shard.reported[response.generation_id], "who does not join is not in the generation"
        return assign(response, self.partition_count, is_cooperative=self.is_cooperative)

    # -- a run ----------------------------------------------------------------------------------------------------

    def run(self) -> None:
        for _ in range(STEPS):
            self._fault()
            self._advance(self.random.randrange(1, 3_000))
        self.is_faulty = False
        self.shard.log_error = None
        for consumer in self.consumers:
            if not consumer.is_running:
                self._start(consumer)
        end_ms = self.now_ms + SETTLE_MS
        while self.now_ms < end_ms:
            self._advance(2_500)
        self.check_settled()
        generation = self.shard.group.log.generation
        for _ in range(STEADY_MS // 2_500):
            self._advance(2_500)
        assert self.shard.group.log.generation == generation, "nothing happened that is worth a rebalance"
        self.check_settled()

    def _advance(self, elapsed_ms: int) -> None:
        self.shard.advance(elapsed_ms)
        for consumer in self.consumers:
            consumer.act()
            self.check_log()
        self._commit(self.random.choice(self.consumers))
        self.check_log()
        self.check_replaced()
        self.committed.check(self.shard.shard.offsets)

    def _commit(self, consumer: Consumer) -> None:
        """Have a consumer that thinks it owns something commit; only the generation's own may, while it is settled."""
        if not consumer.is_running or not consumer.owned:
            return
        topic, partition = self.random.choice(sorted(consumer.owned))
        request = self.committed.request(
            topic,
            bytes(16),
            partition,
            member_id=consumer.member_id,
            generation_id_or_member_epoch=consumer.generation,
            group_instance_id=consumer.instance_id,
        )
        shard = self.shard.shard
        token = self.shard.call(lambda token: decide_commit(shard.offsets, request, self.now_ms))
        if isinstance(self.shard.take(token), ApiError):
            return
        group = self.shard.group
        assert consumer.member_id in group.log.members
        assert consumer.generation == group.log.generation
        assert group.log.state is not ClassicState.COMPLETING_REBALANCE
        self.committed.acknowledge(request)

    def _fault(self) -> None:
        dice = self.random.random()
        consumer = self.random.choice(self.consumers)
        if dice < 0.06:
            consumer.crash()
        elif dice < 0.12:
            self._leave(consumer) if consumer.is_running else self._start(consumer)
        elif dice < 0.16:
            self._fail_over()
        elif dice < 0.20:
            self.partition_count += 1
        elif dice < 0.24 and len(self.consumers) < 8:
            self.consumers.append(ForgetfulConsumer(self, None))
        elif dice < 0.27:
            self.shard.log_error = None if self.shard.log_error else ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif dice < 0.30:
            self.shard.log_error = None

    def _fail_over(self) -> None:
        """Have another coordinator load the log: as in Kafka, it does not know who has not asked for an assignment."""
        self.has_failed_over = True
        self.shard.restart()
        for consumer in self.consumers:
            if consumer.has_forgotten and consumer.is_running:
                self._start(consumer)

    def _start(self, consumer: Consumer) -> None:
        if consumer.instance_id is not None and consumer.member_id:
            self.replaced.append((consumer.member_id, consumer.instance_id))
        consumer.start()

    def _leave(self, consumer: Consumer) -> None:
        if consumer.member_id and self.shard.log_error is None:
            self.shard.leave((consumer.member_id, consumer.instance_id))
        consumer.crash()

    # -- checks ---------------------------------------------------------------------------------------------------

    def check_log(self) -> None:
        for key, value in self.shard.log[self.checked_count :]:
            record = decode_record(key, value)
            assert record is not None
            if isinstance(record.value, GroupMetadataValue):
                self.last_written = {member.member_id: member.assignment for member in record.value.members}
                if record.value.members:
                    self._check_record(record.value)
        self.checked_count = len(self.shard.log)
        group = self.shard.shard.groups.get(GROUP)
        if group is not None and group.log.state is ClassicState.STABLE:
            assert {member.member_id: member.assignment for member in group.log.members} == self.last_written

    def check_replaced(self) -> None:
        """Have the processes that went before the static members of now send a heartbeat."""
        group = self.shard.shard.groups.get(GROUP)
        for member_id, instance_id in self.replaced:
            owner_id = group.log.members.static_id(instance_id) if group is not None else None
            if owner_id != member_id:
                code = self.shard.heartbeat(member_id, 1, instance_id)
                is_gone = owner_id is None
                assert code == (ErrorCode.UNKNOWN_MEMBER_ID if is_gone else ErrorCode.FENCED_INSTANCE_ID)

    def _check_record(self, value: GroupMetadataValue) -> None:
        shares = {member.group_instance_id or member.member_id: member.assignment for member in value.members}
        owned = [partition for assignment in shares.values() for partition in assigned_partitions(assignment)]
        assert len(owned) == len(set(owned)), f"generation {value.generation} has a partition twice"
        assert self.assignments.setdefault(value.generation, shares) == shares, "a generation has one assignment"

    def reported(self, consumer: Consumer, assignment: bytes) -> None:
        self.check_log()
        name = consumer.instance_id or consumer.member_id
        assert self.assignments[consumer.generation][name] == assignment

    def check_settled(self) -> None:
        group = self.shard.group
        assert group.log.state is ClassicState.STABLE
        assert all(consumer.is_member for consumer in self.consumers)
        assert {consumer.generation for consumer in self.consumers} == {group.log.generation}
        owned = sorted(partition for consumer in self.consumers for partition in consumer.owned)
        assert owned == [TopicPartition(TOPIC, partition) for partition in range(self.partition_count)]
        assert not self.shard.waiting, "nobody waits for ever"
        assert len(group.log.members) == len(self.consumers)


@pytest.mark.parametrize("first_seed", range(0, SEED_COUNT, SEEDS_PER_BLOCK))
def test_groups_survive_what_happens_to_them(first_seed: int) -> None:
    for seed in range(first_seed, min(first_seed + SEEDS_PER_BLOCK, SEED_COUNT)):
        try:
            World(seed).run()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
