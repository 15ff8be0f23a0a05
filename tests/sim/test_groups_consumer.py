"""KIP-848 groups in virtual time: members come, go, hang, lose answers; coordinators fail over; topics change.

Checked after every step: no partition is owned by two members, neither in the log nor as the members see it themselves;
what was committed is there, and nobody has committed what somebody else owns. Checked once the faults are over: all are
stable and stay so, every partition has an owner, nobody has two more than another.

KAFKAPY_SOAK_SEEDS multiplies the number of seeds.
"""

import os
import random
from collections import Counter

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.consumer import heartbeat
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.consumer.member import ConsumerMember
from kafkapy.group.decision import GroupRequestContext
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.simulator.committed import CommittedOffsets, decide_commit
from tests.simulator.modern_members import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Partition, SimulatedMember
from tests.support.consumer_groups import CLIENT, GroupWorld, image_with
from tests.support.interpreter import needs_interpreter

SEED_COUNT = 150 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
SEEDS_PER_BLOCK = 50
STEPS = 120
TOPICS = ("apples", "pears", "plums")


@pytest.fixture
def short_count(monkeypatch: pytest.MonkeyPatch) -> Counter[bool]:
    """Heartbeats, by whether they change nothing; each of these is decided the long way, too, with the same outcome."""
    counts: Counter[bool] = Counter()
    changes_nothing = heartbeat._changes_nothing

    def checked(
        group: ConsumerGroup,
        member: ConsumerMember,
        request: ConsumerGroupHeartbeatRequest,
        context: GroupRequestContext,
    ) -> bool:
        is_short = changes_nothing(group, member, request, context)
        counts[is_short] += 1
        if is_short:
            decision = heartbeat.decide_change(group, request, member.member_id, context)
            _, interval_ms = group.times_ms(context.image.configs)
            assert decision.response == ConsumerGroupHeartbeatResponse(
                member_id=member.member_id, member_epoch=member.member_epoch, heartbeat_interval_ms=interval_ms
            )
            assert not any((decision.records, decision.parked_responses, decision.effects, decision.due_regexes))
        return is_short

    monkeypatch.setattr(heartbeat, "_changes_nothing", checked)
    return counts


class World:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.loses_messages = True
        self.is_homogeneous = self.happens(0.5)
        self.topics = {name: (self._random.randbytes(16), self._random.randint(1, 9)) for name in TOPICS[:2]}
        self._offset = 1
        self.shard = GroupWorld(
            image_with(self.topics, 1),
            seed=seed,
            group_consumer_assignment_interval_ms=self._random.choice((0, 1_000)),
            group_consumer_assignors=("uniform", "range") if self.happens(0.8) else ("range",),
        )
        self.members: list[SimulatedMember] = []
        self.committed = CommittedOffsets("g")
        self._count = 0

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick_topics(self) -> tuple[str, ...]:
        return TOPICS if self.is_homogeneous else tuple(name for name in TOPICS if self.happens(0.6))

    def revocation_ms(self) -> int:
        return self._random.choice((0, 0, 1_000, 20_000, REBALANCE_MS - 3 * HEARTBEAT_MS))

    def new_id(self) -> str:
        self._count += 1
        return f"member-{self._count}"

    def send(self, request: ConsumerGroupHeartbeatRequest) -> ConsumerGroupHeartbeatResponse:
        response = self.shard.send(request)
        self.check_log()
        return response

    def step(self) -> None:
        """Let something happen, or nothing but time."""
        event = self._random.random()
        running = [member for member in self.members if member.is_running]
        if event < 0.12 and len(running) < 8:
            self.join()
        elif event < 0.16 and running:
            member = self._random.choice(running)
            member.leave(-2 if member.instance_id is not None and self.happens(0.5) else -1)
        elif event < 0.20 and running:
            self._random.choice(running).crash()
        elif event < 0.24:
            self.come_back()
        elif event < 0.30:
            self.shard.restart()
        elif event < 0.36:
            self.change_topics()
        elif event < 0.40 and running and not self.is_homogeneous:
            member = self._random.choice(running)
            member.topics, member.must_send_all = self.pick_topics(), True
        self.pass_time(self._random.choice((0, 200, 1_000, 5_000)))

    def join(self) -> None:
        regex = ".*p.*" if self.happens(0.1) and not self.is_homogeneous else None
        instance_id = f"instance-{self._count}" if self.happens(0.3) else None
        self.members.append(SimulatedMember(self, self.new_id(), instance_id, regex))

    def come_back(self) -> None:
        """Start a static member that has stopped again, under a new member id."""
        stopped = [member for member in self.members if not member.is_running and member.instance_id is not None]
        if stopped:
            self._random.choice(stopped).restart(self.new_id())

    def change_topics(self) -> None:
        name = self._random.choice(TOPICS)
        if name not in self.topics:
            self.topics[name] = self._random.randbytes(16), self._random.randint(1, 9)
        elif self.happens(0.4):
            topic_id, _ = self.topics.pop(name)
            self.shard.commit(self.shard.shard.forget_topic(name, topic_id))
            self.committed.forget_topic(name)
        else:
            topic_id, count = self.topics[name]
            self.topics[name] = topic_id, count + self._random.randint(1, 4)
        self._offset += 1
        self.shard.image = image_with(self.topics, self._offset)

    def pass_time(self, duration_ms: int) -> None:
        self.shard.pass_time(duration_ms)
        self.check_log()
        order = list(self.members)
        self._random.shuffle(order)
        for member in order:
            member.act()
            self.check_members()
        if order:
            self._commit(order[0])
        self.committed.check(self.shard.shard.offsets)

    def _commit(self, member: SimulatedMember) -> None:
        """Have a member that thinks it owns something commit; where somebody else has it by now, it may not."""
        names = {topic_id: name for name, (topic_id, _) in self.topics.items()}
        owned = sorted(partition for partition in member.owned if partition[0] in names)
        if not owned or not member.is_running:
            return
        topic_id, partition = self._random.choice(owned)
        request = self.committed.request(
            names[topic_id],
            topic_id,
            partition,
            member_id=member.member_id,
            generation_id_or_member_epoch=member.epoch,
        )
        try:
            self.shard.commit(decide_commit(self.shard.shard.offsets, request, self.shard.now_ms))
        except ApiError as error:
            if error.code not in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH):
                raise
            return
        known = self.shard.group().log.members[member.member_id]
        owned_since = {**known.pending_revocation.get(topic_id, {}), **known.assigned.get(topic_id, {})}.get(partition)
        is_current = member.epoch == known.member_epoch
        assert is_current or (owned_since is not None and owned_since <= member.epoch < known.member_epoch)
        self.committed.acknowledge(request)

    def check_log(self) -> None:
        for group in self.shard.groups.values():
            owners: dict[Partition, str] = {}
            for member in group.log.members.values():
                for owned in (member.assigned, member.pending_revocation):
                    for topic_id, partitions in owned.items():
                        for partition in partitions:
                            owner = owners.setdefault((topic_id, partition), member.member_id)
                            assert owner == member.member_id, f"{owner} and {member.member_id} have {partition}"

    def check_members(self) -> None:
        owners: dict[Partition, str] = {}
        for member in self.members:
            for partition in member.visible():
                owner = owners.setdefault(partition, member.member_id)
                assert owner == member.member_id, f"{owner} and {member.member_id} own {partition}"

    def finish(self) -> None:
        """End the faults and give everyone the time to settle."""
        self.loses_messages = False
        if not any(member.is_running for member in self.members):
            self.join()
        for _ in range(100):
            self.pass_time(2_500)

    def pass_quietly(self) -> None:
        """Let members heartbeat for two of their sessions."""
        for _ in range(2 * SESSION_MS // 2_500):
            self.pass_time(2_500)

    def check_settled(self) -> None:
        group = self.shard.group()
        running = [member for member in self.members if member.is_running]
        assert group.state_name == "Stable"
        assert set(group.log.members) == {member.member_id for member in running}
        wanted = {
            (topic_id, partition)
            for member in running
            for name, (topic_id, count) in self.topics.items()
            if self.is_subscribed(member, name)
            for partition in range(count)
        }
        assert {partition for member in running for partition in member.owned} == wanted
        sizes = [len(member.owned) for member in running]
        if self.is_homogeneous and self.shard.config.group_consumer_assignors[0] == "uniform":
            assert max(sizes) - min(sizes) <= 1

    def is_subscribed(self, member: SimulatedMember, topic: str) -> bool:
        return topic in member.topics if member.regex is None else "p" in topic


@pytest.mark.parametrize("first_seed", range(0, SEED_COUNT, SEEDS_PER_BLOCK))
@needs_interpreter("it replaces a function, which compiled code calls directly")
def test_members_never_share_a_partition_and_settle_after_the_last_fault(
    first_seed: int, short_count: Counter[bool]
) -> None:
    for seed in range(first_seed, min(first_seed + SEEDS_PER_BLOCK, SEED_COUNT)):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.finish()
            world.check_settled()
            epoch = world.shard.group().log.group_epoch
            world.pass_quietly()
            assert world.shard.group().log.group_epoch == epoch, "nothing happened that is worth a rebalance"
            world.check_settled()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
    assert short_count[True] > 100


def test_client_of_the_simulation_is_the_one_that_groups_see() -> None:
    world = World(1)
    world.join()
    world.pass_time(0)

    assert world.shard.group().log.members["member-1"].client_host == CLIENT.client_host
