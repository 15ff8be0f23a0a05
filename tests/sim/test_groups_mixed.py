"""Groups of members of both protocols in virtual time, and their way from one protocol to the other and back.

Consumers of the classic protocol (eager or cooperative) and of the consumer protocol come, go, crash, hang, lose
messages and change their protocol; coordinators fail over, logs fail, the topic grows.

Checked after every step: no partition has two owners in the log. Checked at every failover: the new coordinator knows
what the old one did. Checked while a group stays what it is: no two consumers believe to own a partition. Checked once
the faults are over: all are in the group, it is of the kind that its members make it, and every partition has an owner.
"""

import os
import random

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.state import assigned_partitions
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.protocol.messages.join_group_response import JoinGroupResponse
from kafkapy.types import TopicPartition
from tests.simulator.classic_members import SESSION_MS as CLASSIC_SESSION_MS
from tests.simulator.classic_members import TOPIC, Consumer, assign
from tests.simulator.modern_members import REBALANCE_MS, SimulatedMember
from tests.support.consumer_groups import image_of, topic_id
from tests.support.mixed_groups import BETWEEN_GENERATIONS, MixedWorld, logged

SEED_COUNT = 200 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
SEEDS_PER_BLOCK = 50
STEPS = 150
SETTLE_MS = 200_000
AFTERMATH_MS = 30_000
"""How long after a conversion consumers may believe what no longer is: all have joined anew by then, or are out."""


class ClassicConsumer(Consumer):
    def visible(self) -> set[TopicPartition]:
        """Return what the consumer believes to own, unless it is about to join or its session may be over."""
        is_alive = self.heard_ms > 0 and self.world.now_ms < self.heard_ms + CLASSIC_SESSION_MS
        return self.owned if self.is_member and is_alive else set()

    def _refused(self, code: int) -> None:
        if code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL:
            assert self.world.policy == "disabled"
            self.is_member = False
            self.next_ms = self.world.now_ms + 5_000
            return
        super()._refused(code)


class ModernConsumer(SimulatedMember):
    def refuse(self, error: ApiError) -> None:
        if error.code == ErrorCode.GROUP_ID_NOT_FOUND:
            self.forget()  # the end of a stock client; somebody starts it again
        elif error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            self.must_send_all = True
        else:
            super().refuse(error)

    def visible(self) -> set[TopicPartition]:
        return {TopicPartition(TOPIC, partition) for _, partition in super().visible()}


class World:
    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.policy = "bidirectional" if self.happens(0.8) else self.random.choice(("upgrade", "downgrade", "disabled"))
        self.is_cooperative = self.happens(0.5)
        self.partition_count = self.random.randint(1, 8)
        self.shard = MixedWorld(
            image_of(t=self.partition_count),
            seed=seed,
            group_initial_rebalance_delay_ms=self.random.choice((0, 3_000)),
            group_consumer_assignment_interval_ms=self.random.choice((0, 1_000)),
            group_consumer_migration_policy=self.policy,
        )
        self.is_faulty = True
        self.has_failed_over = True
        self.loses_messages = True
        self.converted_ms = -AFTERMATH_MS
        self.kind: type | None = None
        self.moves_to_modern = self.happens(0.5)
        """Which way the operator migrates now: who comes mostly speaks that protocol, who leaves the other."""
        self._count = 0
        self.consumers: list[ClassicConsumer | ModernConsumer] = []
        for _ in range(self.random.randint(1, 4)):
            self.add()

    # -- what consumers ask of their world ------------------------------------------------------------------------

    @property
    def now_ms(self) -> int:
        return self.shard.now_ms

    def happens(self, probability: float) -> bool:
        return self.random.random() < probability

    def loses(self) -> bool:
        return self.is_faulty and self.happens(0.05)

    def slowness(self) -> int:
        return self.random.randrange(40_000) if self.is_faulty and self.happens(0.1) else self.random.randrange(500)

    def revocation_ms(self) -> int:
        return self.random.choice((0, 0, 1_000, 20_000, REBALANCE_MS - 15_000))

    def pick_topics(self) -> tuple[str, ...]:
        return (TOPIC,)

    def assign(self, response: JoinGroupResponse) -> dict[str, bytes]:
        return assign(response, self.partition_count, is_cooperative=self.is_cooperative)

    def reported(self, consumer: Consumer, assignment: bytes) -> None:
        partitions = [partition.partition for partition in assigned_partitions(assignment)]
        assert all(partition < self.partition_count for partition in partitions)

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        return self.shard.send(request)

    # -- a run ----------------------------------------------------------------------------------------------------

    def add(self, instance_id: str | None = None) -> None:
        self._count += 1
        if instance_id is None and self.happens(0.3):
            instance_id = f"i{self._count}"
        if self.happens(0.85) == self.moves_to_modern:
            self.consumers.append(ModernConsumer(self, f"modern-{self._count}", instance_id, None))
        else:
            self.consumers.append(ClassicConsumer(self, instance_id))

    def run(self) -> None:
        for _ in range(STEPS):
            self._fault()
            self._advance(self.random.randrange(1, 3_000))
        self.is_faulty = self.loses_messages = False
        self.shard.log_error = None
        self.consumers = [consumer for consumer in self.consumers if consumer.is_running]
        if not self.consumers:
            self.add()
        end_ms = self.now_ms + SETTLE_MS
        while self.now_ms < end_ms:
            self._advance(2_500)
        if self.policy == "bidirectional":
            self.check_settled()

    def _advance(self, elapsed_ms: int) -> None:
        self.shard.advance(elapsed_ms)
        order = list(self.consumers)
        self.random.shuffle(order)
        for consumer in order:
            consumer.act()
            self._note_kind()
            self.check_owners()
        self.check_log()

    def _fault(self) -> None:
        dice = self.random.random()
        if self.happens(0.06):
            self.moves_to_modern = not self.moves_to_modern
        consumer = self._pick()
        if dice < 0.05:
            consumer.crash()
        elif dice < 0.15:
            self._leave(consumer)
        elif dice < 0.21:
            self._come_back()
        elif dice < 0.25:
            self.fail_over()
        elif dice < 0.28:
            self.partition_count += 1
            self.shard.image = image_of(self.partition_count, t=self.partition_count)
        elif dice < 0.38 and len(self.consumers) < 7:
            self.add()
        elif dice < 0.41:
            self.shard.log_error = None if self.shard.log_error else ErrorCode.COORDINATOR_NOT_AVAILABLE
        elif dice < 0.46:
            self.shard.log_error = None

    def _pick(self) -> "ClassicConsumer | ModernConsumer":
        """Return a consumer, rather one of the protocol that is to go."""
        old = [consumer for consumer in self.consumers if self.moves_to_modern == isinstance(consumer, ClassicConsumer)]
        return self.random.choice(old if old and self.happens(0.8) else self.consumers)

    def _leave(self, consumer: ClassicConsumer | ModernConsumer) -> None:
        if isinstance(consumer, ModernConsumer):
            consumer.leave(-2 if consumer.instance_id is not None and self.happens(0.5) else -1)
            return
        if consumer.is_member and self.shard.log_error is None:
            self.shard.leave((consumer.member_id, consumer.instance_id))
        consumer.crash()

    def _come_back(self) -> None:
        """Start a consumer that has stopped again, in the same protocol or in the other."""
        stopped = [consumer for consumer in self.consumers if not consumer.is_running]
        if stopped:
            consumer = self.random.choice(stopped)
            self.consumers.remove(consumer)
            self.add(consumer.instance_id)

    def fail_over(self) -> None:
        before = logged(self.shard.shard)
        # A classic group goes on as an empty one, even where that could not be written: nobody is left to be told. One
        # that was a KIP-848 group until then rebalances once more.
        group = self.shard.shard.groups.get("g")
        has_differed = self.shard.has_unwritten and isinstance(group, ClassicGroup) and group.is_empty
        self.shard.restart()
        after = logged(self.shard.shard)
        assert before.keys() == after.keys()
        for group_id, knowledge in before.items():
            is_between = BETWEEN_GENERATIONS in (knowledge, after[group_id])
            assert is_between or has_differed or knowledge == after[group_id]

    # -- checks ---------------------------------------------------------------------------------------------------

    def _note_kind(self) -> None:
        kind = type(self.shard.shard.groups.get("g"))
        if kind is not self.kind:
            self.kind, self.converted_ms = kind, self.now_ms

    def check_log(self) -> None:
        group = self.shard.shard.groups.get("g")
        owned: list[object] = []
        if isinstance(group, ConsumerGroup):
            for member in group.log.members.values():
                owned += [
                    *member.assigned.get(topic_id(TOPIC), ()),
                    *member.pending_revocation.get(topic_id(TOPIC), ()),
                ]
        elif isinstance(group, ClassicGroup) and group.log.state is ClassicState.STABLE:
            owned += [partition for member in group.log.members for partition in assigned_partitions(member.assignment)]
        assert len(owned) == len(set(owned)), "a partition has two owners"

    def check_owners(self) -> None:
        if self.now_ms < self.converted_ms + AFTERMATH_MS:
            return
        owners: dict[TopicPartition, object] = {}
        for consumer in self.consumers:
            for partition in consumer.visible():
                assert owners.setdefault(partition, consumer) is consumer, f"two consumers own {partition}"

    def check_settled(self) -> None:
        group = self.shard.shard.groups["g"]
        has_modern = any(isinstance(consumer, ModernConsumer) for consumer in self.consumers)
        assert isinstance(group, ConsumerGroup if has_modern else ClassicGroup)
        assert group.state_name == "Stable"
        members = [member.member_id for member in (group.log.members.values() if has_modern else group.log.members)]
        assert sorted(members) == sorted(consumer.member_id for consumer in self.consumers)
        owned = sorted(partition for consumer in self.consumers for partition in consumer.visible())
        assert owned == [TopicPartition(TOPIC, partition) for partition in range(self.partition_count)]
        assert not self.shard.waiting, "nobody waits for ever"


@pytest.mark.parametrize("first_seed", range(0, SEED_COUNT, SEEDS_PER_BLOCK))
def test_groups_of_both_protocols_survive_what_happens_to_them(first_seed: int) -> None:
    for seed in range(first_seed, min(first_seed + SEEDS_PER_BLOCK, SEED_COUNT)):
        try:
            World(seed).run()
        except (AssertionError, ApiError) as error:
            raise AssertionError(f"seed {seed}: {error}") from error
