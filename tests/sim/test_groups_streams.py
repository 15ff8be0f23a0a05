"""Streams groups in virtual time: members come, go, hang, lose answers; coordinators fail over; topics change.

Some records cannot be appended, some members ask for what a group refuses, some groups warm tasks up, and some are
deleted once they are empty, to begin anew with another topology.

Checked after every step: no task is active in two members, neither in the log nor as they see it themselves; no process
has a task twice; epochs do not go back; what was committed is there. Checked once the faults are over: the group is
stable and stays so, every task has its owner, and as many standbys as there are processes for.

KAFKAPY_SOAK_SEEDS multiplies the number of seeds.
"""

import os
import random
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.streams import reconcile, state
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.tasks import EMPTY_TASKS
from kafkapy.metadata.image import ConfigsImage
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    TaskOffset,
    Topology,
)
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse
from kafkapy.protocol.messages.streams_group_metadata_key import StreamsGroupMetadataKey
from tests.simulator import warming_assignor
from tests.simulator.cluster_checker import ViolationError
from tests.simulator.committed import CommittedOffsets, decide_commit
from tests.simulator.streams_checker import StreamsChecker
from tests.simulator.streams_members import HEARTBEAT_MS, REBALANCE_MS, SESSION_MS, Roles, SimulatedStreamsMember
from tests.support.consumer_groups import GroupWorld, image_with
from tests.support.interpreter import needs_interpreter
from tests.support.streams_groups import StreamsShard, chain, request_of

SEED_COUNT = 16 * int(os.environ.get("KAFKAPY_SOAK_SEEDS", "1"))
SEEDS_PER_BLOCK = 8
STEPS = 120
SOURCES = ("apples", "pears")
MAX_MEMBERS, MAX_PROCESSES = 8, 4
OLD_TOPOLOGY_EPOCH = 0


class World:
    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.is_faulty = True
        self.stateful = self.random_subtopologies()
        self.partition_count = self._random.randint(1, 5)
        self.topics: dict[str, tuple[bytes, int]] = {}
        self._offset = 1
        self._standby_count = self._random.choice((0, 1, 1, 2))
        self.shard = StreamsShard(
            image_with({}, 1),
            seed=seed,
            group_streams_assignment_interval_ms=self._random.choice((0, 1_000)),
            group_streams_initial_rebalance_delay_ms=self._random.choice((0, 3_000)),
            group_streams_num_standby_replicas=self._standby_count,
            group_streams_assignors=[self._random.choice(("sticky", warming_assignor.NAME))],
        )
        self.shard.refuses_append = self.refuses_append
        self.topology_epoch = OLD_TOPOLOGY_EPOCH + 1
        self.checker = StreamsChecker()
        self.members: list[SimulatedStreamsMember] = []
        self.committed = CommittedOffsets("g")
        self._count = 0
        self.repair_topics()

    def happens(self, probability: float) -> bool:
        return self._random.random() < probability

    # -- what members ask of their world --------------------------------------------------------------------------

    def loses_message(self) -> bool:
        return self.is_faulty and self.happens(0.05)

    def topology_to_join_with(self) -> Topology:
        """Return the topology; some have an older one than the group, which is told them and does no harm."""
        is_old = "g" in self.shard.groups and self.happens(0.1)
        return chain(*self.stateful, sources=SOURCES, epoch=OLD_TOPOLOGY_EPOCH if is_old else self.topology_epoch)

    def task_offsets(self, running: Roles) -> list[TaskOffset] | None:
        """Return offsets of the state that a member has, which it tells from time to time."""
        if self.happens(0.7):
            return None
        tasks = sorted(running.active | running.standby | running.warmup)
        return [TaskOffset(each, partition=number, offset=self._random.randrange(100)) for each, number in tasks]

    def revocation_ms(self) -> int:
        return self._random.choice((0, 0, 1_000, 20_000, REBALANCE_MS - 3 * HEARTBEAT_MS))

    def refuses_append(self) -> bool:
        return self.is_faulty and self.happens(0.04)

    def send(self, request: StreamsGroupHeartbeatRequest) -> StreamsGroupHeartbeatResponse:
        result = self.shard.heartbeat(request)
        self.check_log()
        if result.topics_to_create and not (self.is_faulty and self.happens(0.5)):
            for name, topic in result.topics_to_create.items():
                self.topics[name] = self._random.randbytes(16), topic.number_of_partitions
            self._publish()
        return result.response

    # -- events ---------------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Let something happen, or nothing but time."""
        event = self._random.random()
        running = [member for member in self.members if member.is_running]
        if event < 0.14 and len(running) < MAX_MEMBERS:
            self.join()
        elif event < 0.18 and running:
            member = self._random.choice(running)
            member.leave(-2 if member.instance_id is not None and self.happens(0.5) else -1)
        elif event < 0.22 and running:
            self._random.choice(running).crash()
        elif event < 0.26:
            self.come_back()
        elif event < 0.32:
            self.shard.restart()
        elif event < 0.36:
            self.change_topics()
        elif event < 0.40:
            self.repair_topics()
        elif event < 0.43:
            self._standby_count = self._random.randint(0, 2)
            self.shard.group_configs["g"] = {"streams.num.standby.replicas": str(self._standby_count)}
            self._publish()
        elif event < 0.46:
            self.ask_for_what_is_refused()
        elif event < 0.465:
            self.begin_anew()
        self.pass_time(self._random.choice((0, 200, 1_000, 5_000)))

    def new_id(self) -> str:
        self._count += 1
        return f"member-{self._random.randrange(1 << 40):x}"

    def join(self) -> None:
        instance_id = f"instance-{self._count}" if self.happens(0.3) else None
        process_id = f"process-{self._random.randrange(MAX_PROCESSES)}"
        self.members.append(SimulatedStreamsMember(self, self.new_id(), process_id, instance_id))

    def come_back(self) -> None:
        """Start a static member that has stopped again, under a new member id."""
        stopped = [member for member in self.members if not member.is_running and member.instance_id is not None]
        if stopped:
            self._random.choice(stopped).restart(self.new_id())

    def ask_for_what_is_refused(self) -> None:
        """Join with another topology, or with a regular expression: the group stays as it is."""
        if "g" not in self.shard.groups:
            return
        other = chain(*self.stateful, self.happens(0.5), sources=SOURCES, epoch=self.topology_epoch)
        newer = chain(*self.stateful, sources=SOURCES, epoch=self.topology_epoch + 1)
        by_regex = chain(*self.stateful, sources=SOURCES, epoch=self.topology_epoch)
        by_regex.subtopologies[0].source_topic_regex = ["app.*"]
        before = list(self.shard.log)
        with pytest.raises(ApiError) as caught:
            self.send(request_of(self.new_id(), self._random.choice((other, newer, by_regex))))
        assert caught.value.code == ErrorCode.INVALID_REQUEST
        assert self.shard.log == before

    def begin_anew(self) -> None:
        """Stop all members and delete their group; the next ones have another topology."""
        for member in self.members:
            member.crash()
        self.members.clear()
        self.is_faulty = False
        for _ in range((SESSION_MS + REBALANCE_MS) // 5_000):
            self.pass_time(5_000)
        if "g" in self.shard.groups:
            self.shard.commit(self.shard.shard.delete_group("g"))
        assert "g" not in self.shard.groups
        self.is_faulty = True
        self.committed, self.checker = CommittedOffsets("g"), StreamsChecker()
        self.stateful = self.random_subtopologies()
        self.topology_epoch += 1

    def random_subtopologies(self) -> list[bool]:
        """Return for each subtopology whether it has state."""
        return [self.happens(0.7) for _ in range(self._random.randint(1, 3))]

    def change_topics(self) -> None:
        """Delete a topic, or add partitions to the sources: the internal topics do not fit any more then."""
        if self.topics and self.happens(0.4):
            name = self._random.choice(sorted(self.topics))
            topic_id, _ = self.topics.pop(name)
            # by the base class, which refuses no append: then the checker knows that the offsets are gone
            GroupWorld.commit(self.shard, self.shard.shard.forget_topic(name, topic_id))
            self.committed.forget_topic(name)
        else:
            self.partition_count += self._random.randint(1, 2)
            self._grow(SOURCES)
        self._publish()

    def repair_topics(self) -> None:
        """Make the sources that are missing, and let all internal topics have the partitions that they must have."""
        self._grow(SOURCES)
        self._grow(name for name in self.topics if name not in SOURCES)
        self._publish()

    def _grow(self, names: Iterable[str]) -> None:
        for name in list(names):
            topic_id, _ = self.topics.get(name, (self._random.randbytes(16), 0))
            self.topics[name] = topic_id, self.partition_count

    def _publish(self) -> None:
        self._offset += 1
        self.shard.image = replace(image_with(self.topics, self._offset), configs=ConfigsImage())

    def pass_time(self, duration_ms: int) -> None:
        with suppress(ApiError):  # what a timer decided cannot be appended: it is tried again
            self.shard.pass_time(duration_ms)
        self.check_log()
        order = list(self.members)
        self._random.shuffle(order)
        for member in order:
            member.act()
            self.checker.check_members(self.members)
        if order:
            self._commit(order[0])
        self.committed.check(self.shard.shard.offsets)

    def _commit(self, member: SimulatedStreamsMember) -> None:
        """Have a member that thinks it runs a task commit its source; if it does not any more, it may not."""
        tasks = sorted(task for task in member.running.active if task[0] == "0")
        name = self._random.choice(SOURCES)
        if not tasks or not member.is_running or name not in self.topics:
            return
        _, partition = self._random.choice(tasks)
        request = self.committed.request(
            name,
            self.topics[name][0],
            partition,
            member_id=member.member_id,
            generation_id_or_member_epoch=member.epoch,
        )
        try:
            self.shard.commit(decide_commit(self.shard.shard.offsets, request, self.shard.now_ms))
        except ApiError as error:
            if error.code not in (
                ErrorCode.UNKNOWN_MEMBER_ID,
                ErrorCode.STALE_MEMBER_EPOCH,
                ErrorCode.COORDINATOR_NOT_AVAILABLE,
            ):
                raise
            return
        known = self.shard.streams_group().log.members[member.member_id]
        owned_since = {**known.pending_revocation.active.get("0", {}), **known.assigned.active.get("0", {})}.get(
            partition
        )
        is_current = member.epoch == known.member_epoch
        assert is_current or (owned_since is not None and owned_since <= member.epoch < known.member_epoch)
        self.committed.acknowledge(request)

    # -- what is checked ------------------------------------------------------------------------------------------

    def check_log(self) -> None:
        if "g" in self.shard.groups:
            self.checker.check_log(self.shard.streams_group())
            self.checker.check_epochs(self.shard.streams_group())

    def finish(self) -> None:
        """End the faults and give everyone the time to settle."""
        self.is_faulty = False
        self.repair_topics()
        if not any(member.is_running for member in self.members):
            self.join()
        for _ in range(100):
            self.pass_time(2_500)

    def pass_quietly(self) -> None:
        """Let members heartbeat for two of their sessions."""
        for _ in range(2 * SESSION_MS // 2_500):
            self.pass_time(2_500)

    def check_settled(self) -> None:
        running = [member for member in self.members if member.is_running]
        counts = {str(number): self.partition_count for number in range(len(self.stateful))}
        stateful = [str(number) for number, has_state in enumerate(self.stateful) if has_state]
        self.checker.check_settled(self.shard.streams_group(), running, counts, stateful, self._standby_count)

    def live(self) -> None:
        for _ in range(STEPS):
            self.step()
        self.finish()
        self.check_settled()
        epoch = self.shard.streams_group().log.group_epoch
        self.pass_quietly()
        assert self.shard.streams_group().log.group_epoch == epoch, "nothing happened that is worth a rebalance"
        self.check_settled()


@pytest.fixture(autouse=True)
def _warming(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ASSIGNORS, warming_assignor.NAME, warming_assignor.assign_warming)


@pytest.mark.parametrize("first_seed", range(0, SEED_COUNT, SEEDS_PER_BLOCK))
def test_members_never_share_a_task_and_settle_after_the_last_fault(first_seed: int) -> None:
    for seed in range(first_seed, min(first_seed + SEEDS_PER_BLOCK, SEED_COUNT)):
        try:
            World(seed).live()
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error


def give_what_others_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile._Step, "_is_unreleased_active", lambda *_: False)


def take_tasks_for_released(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile._Step, "has_not_released", lambda *_: False)


def load_an_older_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a log is loaded: later on the group itself asserts that its epoch does not go back."""
    replay = state._REPLAY[StreamsGroupMetadataKey]

    def older(log: state.StreamsGroupLog, key: Any, value: Any) -> None:
        replay(log, key, value)
        if not log.is_loaded and log.metadata.epoch > 5:
            log.metadata.epoch -= 3

    monkeypatch.setattr(state, "_REPLAY", {**state._REPLAY, StreamsGroupMetadataKey: older})


def leave_a_member_without_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    assign = ASSIGNORS["sticky"]

    def lazy(spec: Any) -> Any:
        assigned = yield from assign(spec)
        return {**assigned, next(each for each in assigned if assigned[each].active): EMPTY_TASKS}

    monkeypatch.setitem(ASSIGNORS, "sticky", lazy)


@pytest.mark.parametrize(
    ("plant", "told"),
    [
        (give_what_others_run, "run "),
        (take_tasks_for_released, "both run "),
        (load_an_older_epoch, "epochs "),
        (leave_a_member_without_tasks, "run, not"),
    ],
)
@needs_interpreter("it replaces functions, which compiled code calls directly")
def test_a_planted_fault_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def live_some() -> None:
        for seed in range(20):
            World(seed).live()

    plant(monkeypatch)
    with pytest.raises(ViolationError, match=told):
        live_some()
