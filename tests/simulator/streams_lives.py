"""A whole cluster under faults that coordinates a streams group, with its members; a seed decides everything.

The faults are those of cluster_lives.py. Beside them the coordinator is moved to another broker, killed, or cut from
power at a change of its disk; the standbys' number and the source's partitions change; the members join another group
with another topology. Members join, leave, fall silent, hang, come back as the same instance, and lose responses.

Checked all the time, in each broker that coordinates the group or thinks so: no task is active in two members, nor in
any role in two members of a process; epochs do not go back. By the responses that members got: nobody else was told to
run the same task at the same epoch, a member that has lost a task to another one cannot commit its offsets, a new
coordinator knows all that members were told. Once all is healed: the group is stable, each task has an owner and its
standbys.
"""

import asyncio
import contextvars
import random
from collections import Counter
from contextlib import suppress
from typing import Any, Final

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.streams.assignors import ASSIGNORS
from kafkapy.group.streams.group import StreamsGroup
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kafkapy.protocol.messages.create_partitions_request import CreatePartitionsRequest, CreatePartitionsTopic
from kafkapy.protocol.messages.delete_groups_request import DeleteGroupsRequest
from kafkapy.protocol.messages.elect_leaders_request import ElectLeadersRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.server.broker import BrokerServer
from tests.simulator import warming_assignor
from tests.simulator.cluster_checker import ClusterChecker, ViolationError
from tests.simulator.cluster_clients import IdempotentProducer, LostError, find_coordinator
from tests.simulator.cluster_groups import GROUPS_PARTITION
from tests.simulator.cluster_lives import HEAL_S, LOOK_S, TOPIC, ClusterLives, live_and_count
from tests.simulator.cluster_plan import FAMILIES, MORE_NODES, NETWORK, NODES, PROCESSES, Plan, some
from tests.simulator.cluster_world import Computer
from tests.simulator.disk import CHANGES, Keep, SimCrash
from tests.simulator.process_lives import LIFE, ProcessLoop
from tests.simulator.streams_checker import StreamsChecker
from tests.simulator.streams_threads import HEARTBEAT_MS, SESSION_MS, Application, StreamsThread, running

THREADS: Final = (3, 4, 5)
PARTITIONS: Final = (2, 5)
"""Of the source, at least and at most, when members join."""
COORDINATOR: Final = ("move_coordinator", "die_at_change", "die_at_change")
GROUP: Final = ("change_standbys", "grow", "begin_anew")
DISKS: Final = ("fill", "fail_disk")
OFFSETS_TOPIC: Final = GROUPS_PARTITION.topic
GROUP_RESOURCE: Final = 32
MAX_CHANGES: Final = 40
"""Of the coordinator's disk, before it dies at one: a rebalance of so few members makes fewer."""
DIES_WITHIN_S: Final = 2.0
LONGEST_START_S: Final = 2.0
PROPERTIES: Final = {
    "group_streams_min_session_timeout_ms": str(SESSION_MS),
    "group_streams_session_timeout_ms": str(SESSION_MS),
    "group_streams_min_heartbeat_interval_ms": str(HEARTBEAT_MS),
    "group_streams_heartbeat_interval_ms": str(HEARTBEAT_MS),
    "group_streams_min_task_offset_interval_ms": "500",
    "group_streams_task_offset_interval_ms": "500",
}


def plan_of(seed: int) -> Plan:
    """Draw what a run is made of: each third seed has other nodes than three that are brokers and controllers."""
    chance = random.Random(f"streams {seed}")
    faults = (
        some(chance, NETWORK, (0, 1, 1)),
        some(chance, DISKS, (0, 0, 1)),
        some(chance, PROCESSES, (0, 0, 1)),
        some(chance, COORDINATOR, (0, 1, 2)),
        some(chance, GROUP, (0, 1, 2)),
    )
    return Plan(
        roles=chance.choice(MORE_NODES) if seed % FAMILIES == 2 else NODES,
        has_transactions=False,
        clients=(),
        transactor_count=0,
        faults=tuple(line for line in faults if line),
        faults_s=chance.uniform(3, 8),
        pause_s=chance.choice((0.5, 1.0, 2.0)),
        has_calm_clients=chance.random() < 0.5,
    )


class StreamsLives(ClusterLives):
    """One run of a seed."""

    def __init__(self, loop: ProcessLoop, seed: int, plan: Plan | None = None, **properties: str) -> None:
        chance = random.Random(f"group {seed}")
        self._standby_count = chance.choice((0, 1, 1, 2))
        of_group = {
            "group_streams_num_standby_replicas": str(self._standby_count),
            "group_streams_assignment_interval_ms": chance.choice(("0", "0", "400")),
            "group_streams_initial_rebalance_delay_ms": chance.choice(("0", "500")),
        }
        self.application = Application(TOPIC, random_subtopologies(chance))
        self.threads: list[StreamsThread] = []
        self._thread_count = chance.choice(THREADS)
        self._source_count = chance.randint(*PARTITIONS)
        self._checkers: dict[tuple[int, int, int, str], StreamsChecker] = {}
        self._newest_leader_epoch = -1
        super().__init__(loop, seed, plan or plan_of(seed), **PROPERTIES, **of_group, **properties)

    def _new_checker(self) -> ClusterChecker:
        return ClusterChecker(self.world, (*self._moved, OFFSETS_TOPIC))

    def _add_clients(self) -> None:
        self.threads = [
            StreamsThread(self.world, self.checker, f"thread-{number}", 30 + number, self.application)
            for number in range(self._thread_count)
        ]
        self.clients += [IdempotentProducer(self.world, self.checker, "idempotent-0", 1, TOPIC, 0), *self.threads]

    # -- what is checked ------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        while True:
            self.checker.look()
            self.look_at_groups()
            await asyncio.sleep(LOOK_S)

    def look_at_groups(self) -> None:
        """Check the group in each broker that coordinates it, or thinks so."""
        registration = self.world.registrations().get(GROUPS_PARTITION)
        if registration is not None:
            self._newest_leader_epoch = max(self._newest_leader_epoch, registration.leader_epoch)
        for computer in self.world.brokers:
            found = self._coordinated(computer)
            if found is None:
                continue
            leader_epoch, group = found
            life = (computer.node_id, computer.life_count, leader_epoch, group.group_id)
            checker = self._checkers.setdefault(life, StreamsChecker())
            checker.check_log(group)
            checker.check_epochs(group)
            if leader_epoch >= self._newest_leader_epoch:
                self.application.told.check_coordinator(group.log.group_epoch)

    def _coordinated(self, computer: Computer) -> tuple[int, StreamsGroup] | None:
        """Return the group, and the leader epoch in which a broker coordinates it, if it does."""
        if not computer.is_serving or not isinstance(computer.server, BrokerServer):
            return None
        with suppress(ApiError):
            host = computer.server._coordinators.groups.host_of(self.application.group_id)
            group = host.shard.groups.get(self.application.group_id)
            if host.is_active and isinstance(group, StreamsGroup):
                return host.leader_epoch, group
        return None

    def _check_settled(self) -> bool:
        """Return whether anybody coordinates the group, which is settled then. Raises ViolationError."""
        coordinator = self.world.computers.get(self._coordinator_id())
        found = None if coordinator is None else self._coordinated(coordinator)
        if found is None:
            return False
        numbers = range(len(self.application.stateful))
        counts = {str(number): self._partition_count(TOPIC) for number in numbers}
        stateful = [str(number) for number in numbers if self.application.stateful[number]]
        StreamsChecker().check_settled(found[1], running(self.threads), counts, stateful, self._standby_count)
        return True

    # -- the end ----------------------------------------------------------------------------------------------------

    async def _heal(self, tasks: Any) -> None:
        for thread in self.threads:
            thread.is_steady = True
        await super()._heal(tasks)
        self.world.note("settle")
        for thread in self.threads:
            thread.is_calm = False
        await self._until_done(self._alter_standbys)
        await self._until_done(self._repair_topics)
        await self._settle(tasks)
        await self._until_done(self._delete_former_groups)

    async def _settle(self, tasks: Any) -> None:
        unsettled: ViolationError | None = None

        def is_settled() -> bool:
            nonlocal unsettled
            self._raise_of(*tasks)
            try:
                return self._check_settled()
            except ViolationError as error:
                unsettled = error
                return False

        try:
            await self.world.until(is_settled, HEAL_S, "the group settles")
        except AssertionError as error:
            raise AssertionError(f"{error}: {unsettled}") from error

    async def _until_done(self, change: Any) -> None:
        """Make a change until its response has no error."""
        end = self._loop.now + HEAL_S
        while not await change():
            self.world.check()
            assert self._loop.now < end, f"not done: {change.__name__}"
            await asyncio.sleep(0.1)

    async def _break(self) -> None:
        """Let the group run for a while, so that the first fault meets one."""
        await self._until_done(self._enlarge_source)
        self.application.may_start = True
        await asyncio.sleep(self._chance.uniform(0, LONGEST_START_S))
        await super()._break()

    # -- changes of the group -----------------------------------------------------------------------------------------

    async def _change_standbys(self) -> None:
        self._standby_count = self._chance.randrange(3)
        await self._alter_standbys()

    async def _alter_standbys(self) -> bool:
        config = AlterableConfig("streams.num.standby.replicas", value=str(self._standby_count))
        resource = AlterConfigsResource(GROUP_RESOURCE, resource_name=self.application.group_id, configs=[config])
        with suppress(LostError):
            response = await self._admin.send_to_any(IncrementalAlterConfigsRequest([resource]))
            return bool(response.responses[0].error_code == ErrorCode.NONE)
        return False

    async def _enlarge_source(self) -> bool:
        await self._enlarge(TOPIC, self._source_count)
        return self._partition_count(TOPIC) >= self._source_count

    async def _grow(self) -> None:
        """Give the source another partition: the internal topics do not fit any more, until they are repaired."""
        await self._enlarge(TOPIC, self._partition_count(TOPIC) + 1)
        if self._chance.random() < 0.6:
            await self._for(0, 0.5)
            await self._repair_topics()

    async def _repair_topics(self) -> bool:
        """Give internal topics as many partitions as the source has; return whether all have."""
        image, count = self.world.image(), self._partition_count(TOPIC)
        names = [] if image is None else [name for name in image.topics.by_name if name.startswith("app-")]
        small = [name for name in sorted(names) if self._partition_count(name) < count]
        for name in small:
            await self._enlarge(name, count)
        return count > 0 and not small

    def _partition_count(self, name: str) -> int:
        image = self.world.image()
        topic = image.topics.by_name.get(name) if image is not None else None
        return len(topic.partitions) if topic is not None else 0

    async def _enlarge(self, name: str, count: int) -> None:
        request = CreatePartitionsRequest([CreatePartitionsTopic(name, count=count, assignments=None)], timeout_ms=2000)
        with suppress(LostError):
            await self._admin.send_to_any(request)

    async def _begin_anew(self) -> None:
        """Let the members join another group with another topology, now and then: others have to last for a while."""
        if self._chance.random() < 0.7:
            return
        self.application.begin_anew(random_subtopologies(self._chance))
        self.world.note(f"{self.application.group_id} with {self.application.stateful}")
        await self._alter_standbys()

    async def _delete_former_groups(self) -> bool:
        """Delete the groups that the members have left, once their sessions are over; return whether all are gone."""
        former = self.application.former_groups
        with suppress(LostError):
            for group_id in former:
                coordinator_id = await find_coordinator(self._admin, group_id)
                response = await self._admin.call(coordinator_id, DeleteGroupsRequest([group_id]), 2)
                if response.results[0].error_code not in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                    return False
            return True
        return False

    # -- faults of the coordinator ----------------------------------------------------------------------------------

    async def _move_coordinator(self) -> None:
        """Let another broker coordinate the groups."""
        replicas = self._chance.sample(self._brokers, 3)
        placed = ReassignableTopic(OFFSETS_TOPIC, partitions=[ReassignablePartition(0, replicas=replicas)])
        with suppress(LostError):
            await self._admin.send_to_any(AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[placed]))
            await self._for(0, 1)
            await self._admin.send_to_any(ElectLeadersRequest(topic_partitions=None, timeout_ms=2000))
            self.world.note(f"the coordinator is to be {replicas[0]}")

    async def _die_at_change(self) -> None:
        """Kill the coordinator, or cut its power, at one of the changes of its disk."""
        computer = self.world.computers.get(self._coordinator_id())
        if computer is None or computer.life is None or computer.disk.hook is not None:
            return
        death = Death(self, computer, self._chance.randrange(MAX_CHANGES))
        computer.disk.hook = death
        await self._soon(lambda: death.has_come, DIES_WITHIN_S)
        computer.disk.hook = None
        if death.is_of_power:
            await self._for(0, 3)
            computer.is_held = False
            self._watches.append(self._loop.create_task(self._watch(computer)))

    def may_die(self, computer: Computer) -> bool:
        return self._may_end(computer)

    def keep_of_power(self) -> Keep | None:
        """Return what a loss of power leaves, None if there is to be or may be none."""
        if not self._may_forget() or self._chance.random() < 0.5:
            return None
        self._is_risky = True
        keep: Keep = self._chance.choice(("none", "torn", "reordered"))
        return keep


class Death:
    """A disk's hook: ends the process at a change that a process makes now, after so many others."""

    def __init__(self, lives: StreamsLives, computer: Computer, left: int) -> None:
        self._lives = lives
        self._computer = computer
        self._left = left
        self._life = computer.life
        self.has_come = False
        self.is_of_power = False

    def __call__(self, operation: str, path: str) -> None:
        if LIFE.get() is not self._life or operation not in CHANGES:
            return
        if not self.has_come:
            self._left -= 1
            if self._left >= 0 or not self._lives.may_die(self._computer):
                return
            contextvars.Context().run(self._end, operation, path)
        raise SimCrash(f"{operation} {path}")  # whatever the process still tries, while its calls return

    def _end(self, operation: str, path: str) -> None:
        """End the process, as what is outside it does: in no process' context."""
        self.has_come = True
        keep = self._lives.keep_of_power()
        self._lives.world.note(f"node {self._computer.node_id} dies at {operation} of {path} ({keep or 'killed'})")
        if keep is None:
            self._computer.kill()
            return
        self.is_of_power = self._computer.is_held = True
        self._computer.cut_power(keep)


def random_subtopologies(chance: random.Random) -> list[bool]:
    """Return for each subtopology whether it has state."""
    return [chance.random() < 0.7 for _ in range(chance.randint(1, 3))]


def live(seed: int, kind: Any = StreamsLives) -> tuple[list[str], Counter[str]]:
    """Run one seed; return what happened, and how often faults of disks took effect. Each second one warms tasks up."""
    with pytest.MonkeyPatch.context() as patch:
        if seed % 2:
            patch.setitem(ASSIGNORS, "sticky", warming_assignor.assign_warming)
        return live_and_count(seed, kind)


if __name__ == "__main__":
    import sys

    print("\n".join(live(int(sys.argv[1]))[0]))
