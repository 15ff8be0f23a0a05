"""KIP-848 groups in virtual time: members come, go, hang, lose answers; coordinators fail over; topics change.

Checked after every step: no partition is owned by two members, neither in the log nor as the members see it themselves.
Checked once the faults are over: everyone is stable, every partition has an owner, nobody has two more than another.
"""

import os
import random

import pytest

from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.sim.modern_members import HEARTBEAT_MS, REBALANCE_MS, Partition, SimulatedMember
from tests.support.consumer_groups import CLIENT, GroupWorld, image_with

FACTOR = int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
SEEDS = range(200 * FACTOR)
STEPS = 120
TOPICS = ("apples", "pears", "plums")


class World:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.loses_messages = True
        self.is_homogeneous = self.chance(0.5)
        self.topics = {name: (self._random.randbytes(16), self._random.randint(1, 9)) for name in TOPICS[:2]}
        self._offset = 1
        self.shard = GroupWorld(
            image_with(self.topics, 1),
            seed=seed,
            group_consumer_assignment_interval_ms=self._random.choice((0, 1_000)),
            group_consumer_assignors=("uniform", "range") if self.chance(0.8) else ("range",),
        )
        self.members: list[SimulatedMember] = []
        self._count = 0

    def chance(self, probability: float) -> bool:
        return self._random.random() < probability

    def pick_topics(self) -> tuple[str, ...]:
        return TOPICS if self.is_homogeneous else tuple(name for name in TOPICS if self.chance(0.6))

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
            member.leave(-2 if member.instance_id is not None and self.chance(0.5) else -1)
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
            member.topics, member.must_tell_all = self.pick_topics(), True
        self.pass_time(self._random.choice((0, 200, 1_000, 5_000)))

    def join(self) -> None:
        regex = ".*p.*" if self.chance(0.1) and not self.is_homogeneous else None
        instance_id = f"instance-{self._count}" if self.chance(0.3) else None
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
        elif self.chance(0.4):
            del self.topics[name]
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

    def check_log(self) -> None:
        for group in self.shard.groups.values():
            owners: dict[Partition, str] = {}
            for member in group.members.values():
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

    def check_settled(self) -> None:
        group = self.shard.group()
        running = [member for member in self.members if member.is_running]
        assert group.state_name == "Stable"
        assert set(group.members) == {member.member_id for member in running}
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


@pytest.mark.parametrize("first_seed", SEEDS[::50])
def test_members_never_share_a_partition_and_settle_after_the_last_fault(first_seed: int) -> None:
    for seed in range(first_seed, first_seed + 50):
        world = World(seed)
        try:
            for _ in range(STEPS):
                world.step()
            world.finish()
            world.check_settled()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def test_client_of_the_simulation_is_the_one_that_groups_see() -> None:
    world = World(1)
    world.join()
    world.pass_time(0)

    assert world.shard.group().members["member-1"].client_host == CLIENT.client_host
