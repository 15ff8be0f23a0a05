"""KIP-848 groups in virtual time: members come, go, hang, lose answers; coordinators fail over; topics change.

Checked after every step: no partition is owned by two members, neither in the log nor as the members see it themselves.
Checked once the faults are over: everyone is stable, every partition has an owner, nobody has two more than another.
"""

import os
import random
from collections.abc import Iterator

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from kafkapy.types import Uuid
from tests.support.consumer_groups import CLIENT, GroupWorld, image_with

FACTOR = int(os.environ.get("KAFKAPY_GROUP_SEEDS", "1"))
SEEDS = range(200 * FACTOR)
STEPS = 120
HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
REBALANCE_MS = 60_000
TOPICS = ("apples", "pears", "plums")
Partition = tuple[Uuid, int]


class SimulatedMember:
    """A consumer that revokes in its own time, and forgets what it owns when fenced or when its session is over."""

    def __init__(self, world: "World", name: str, instance_id: str | None, regex: str | None) -> None:
        self.world = world
        self.instance_id = instance_id
        self.regex = regex
        self.topics = world.pick_topics()
        self.restart(name)

    def restart(self, member_id: str) -> None:
        self.member_id = member_id
        self.epoch = 0
        self.owned: set[Partition] = set()
        self.wanted: set[Partition] = set()
        self.revoked_at_ms = 0
        self.next_beat_ms = self.world.shard.now_ms
        self.sent_ms = self.world.shard.now_ms
        self.must_tell_all = True
        self.told: set[Partition] | None = None
        self.is_running = True

    def visible(self) -> set[Partition]:
        """Return what the member believes to own: nothing once it must think that its session is over."""
        now_ms = self.world.shard.now_ms
        if now_ms >= self.sent_ms + SESSION_MS:
            return set()
        return self.owned & self.wanted if now_ms >= self.revoked_at_ms else self.owned

    def act(self) -> None:
        now_ms = self.world.shard.now_ms
        if self.is_running and now_ms >= self.sent_ms + SESSION_MS:
            self.forget()
        if self.owned - self.wanted and now_ms >= self.revoked_at_ms:
            self.owned &= self.wanted
        if not self.owned - self.wanted:
            self.owned = set(self.wanted)
        if self.is_running and now_ms >= self.next_beat_ms:
            self.beat()

    def forget(self) -> None:
        self.epoch, self.owned, self.wanted, self.must_tell_all = 0, set(), set(), True

    def beat(self) -> None:
        now_ms = self.world.shard.now_ms
        self.next_beat_ms = now_ms + HEARTBEAT_MS
        request = self.request()
        if self.world.loses_messages and self.world.chance(0.05):
            self.must_tell_all = True
            return
        try:
            response = self.world.send(request)
        except ApiError as error:
            self.refuse(error)
            return
        if self.world.loses_messages and self.world.chance(0.05):
            self.must_tell_all = True
            return
        self.accept(response)
        self.sent_ms = now_ms

    def request(self) -> ConsumerGroupHeartbeatRequest:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=self.epoch, instance_id=self.instance_id
        )
        if self.must_tell_all:
            request.rebalance_timeout_ms = REBALANCE_MS
            request.subscribed_topic_names = list(self.topics) if self.regex is None else None
            request.subscribed_topic_regex = self.regex
        if self.must_tell_all or self.told != self.owned:
            request.topic_partitions = list(_topic_partitions(self.owned))
            self.told = set(self.owned)
        self.must_tell_all = False
        return request

    def accept(self, response: ConsumerGroupHeartbeatResponse) -> None:
        self.epoch = response.member_epoch
        if response.assignment is None:
            return
        is_revoking = bool(self.owned - self.wanted)
        self.wanted = {
            (topic.topic_id, partition)
            for topic in response.assignment.topic_partitions
            for partition in topic.partitions
        }
        if self.owned - self.wanted and not is_revoking:
            # Had answers been lost since the last one, then the coordinator would be waiting since about then.
            until_ms = self.world.shard.now_ms + self.world.revocation_ms()
            self.revoked_at_ms = min(until_ms, self.sent_ms + REBALANCE_MS - 1)
        if not self.owned - self.wanted:
            self.owned = set(self.wanted)

    def refuse(self, error: ApiError) -> None:
        if error.code in (ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            self.forget()
            self.next_beat_ms = self.world.shard.now_ms
        elif error.code in (ErrorCode.UNRELEASED_INSTANCE_ID, ErrorCode.GROUP_ID_NOT_FOUND):
            self.must_tell_all = True
        else:
            raise error

    def leave(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id=self.member_id, member_epoch=epoch, instance_id=self.instance_id
        )
        self.owned, self.wanted, self.is_running = set(), set(), False
        try:
            self.world.send(request)
        except ApiError:
            self.epoch = 0  # it was not in the group any more

    def crash(self) -> None:
        self.owned, self.wanted, self.is_running = set(), set(), False


def _topic_partitions(owned: set[Partition]) -> Iterator[TopicPartitions]:
    for topic_id in {topic_id for topic_id, _ in owned}:
        yield TopicPartitions(topic_id, sorted(partition for owner, partition in owned if owner == topic_id))


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
