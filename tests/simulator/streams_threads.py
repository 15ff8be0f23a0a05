"""Threads of a Kafka Streams application in a simulated cluster: members of a streams group, over the network.

A thread joins, sends heartbeats, runs and revokes what it is assigned, commits offsets, and ends: it leaves, leaves for
a while if it is static, or falls silent. Then it begins again, as another member of another process or, if static, as
the same instance. The checker is told the assignment and the commit of each response.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, ClassVar, Final

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.streams_group_heartbeat_request import TaskOffset, Topology
from tests.simulator.cluster_checker import ClusterChecker
from tests.simulator.cluster_clients import Client, LostError, find_coordinator
from tests.simulator.cluster_world import ClusterWorld
from tests.simulator.streams_checker import ToldTasks
from tests.simulator.streams_members import BEGIN_AGAIN, WAIT, Roles, SimulatedStreamsMember
from tests.support.streams_groups import chain

SESSION_MS, HEARTBEAT_MS, REBALANCE_MS = 1_200, 100, 900
LEAVES, LEAVES_FOR_A_WHILE = -1, -2
STATIC_SHARE: Final = 0.35
ENDING_SHARE: Final = 0.02
"""How many steps are the last of a member."""
PROCESSES: Final = 3
OLD_EPOCH, CURRENT_EPOCH = 0, 1
"""Of the topology: some members have the older one."""


class Application:
    """What all threads have in common, and what is known of their group. `generation` counts its groups."""

    def __init__(self, source: str, stateful: Sequence[bool]) -> None:
        self.source = source
        self.generation = 0
        self.may_start = False
        """Whether the source is as it is to be when members join."""
        self.seen: Counter[str] = Counter()
        """What members did and the responses they got, for a test that all of it happens."""
        self.begin_anew(stateful)

    def begin_anew(self, stateful: Sequence[bool]) -> None:
        """Have all threads leave their group, and join another one with another topology."""
        self.generation += 1
        self.stateful = tuple(stateful)
        self.told = ToldTasks()

    @property
    def group_id(self) -> str:
        return f"application-{self.generation}"

    @property
    def former_groups(self) -> list[str]:
        return [f"application-{each}" for each in range(1, self.generation)]

    def topology(self, *, epoch: int = CURRENT_EPOCH) -> Topology:
        return chain(*self.stateful, sources=(self.source,), epoch=epoch)


class ThreadMember(SimulatedStreamsMember):
    """One life of a thread as a member: what it runs, and what it asks for."""

    session_ms = SESSION_MS
    rebalance_ms = REBALANCE_MS

    def __init__(self, thread: "StreamsThread", name: str, process_id: str, instance_id: str | None) -> None:
        self.thread = thread
        self.group_id = thread.application.group_id
        super().__init__(thread, name, process_id, instance_id)

    @property
    def now_ms(self) -> int:
        return self.thread.world.loop.now_ms()

    @property
    def identity(self) -> str:
        """Return who owns its tasks: the instance, which comes back with other member ids."""
        return self.instance_id or self.member_id


class StreamsThread(Client):
    """`member` is None between two lives."""

    enough_progress: ClassVar[int] = 4

    def __init__(
        self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, application: Application
    ) -> None:
        super().__init__(world, checker, name, number)
        self.application = application
        self.member: ThreadMember | None = None
        self.is_steady = False
        """Whether it stays in the group."""
        self._coordinator_id = -1
        self._life_count = 0
        self._instance_id: str | None = None
        self._process_id = ""
        """An instance keeps its process: in another one it could run tasks beside their standbys, in Kafka, too."""

    # -- what its member asks ---------------------------------------------------------------------------------------

    def topology_to_join_with(self) -> Topology:
        """Return the topology; some have an older one than the group, which is told them and does no harm."""
        is_old = self.application.told.newest_epoch > 0 and self.world.loop.rng.random() < 0.1
        return self.application.topology(epoch=OLD_EPOCH if is_old else CURRENT_EPOCH)

    def task_offsets(self, running: Roles) -> list[TaskOffset] | None:
        rng = self.world.loop.rng
        if rng.random() < 0.7:
            return None
        tasks = sorted(running.active | running.standby | running.warmup)
        return [TaskOffset(each, partition=number, offset=rng.randrange(100)) for each, number in tasks]

    def revocation_ms(self) -> int:
        return self.world.loop.rng.choice((0, 0, 200, 500))

    # -- its lives ----------------------------------------------------------------------------------------------------

    async def step(self) -> None:
        rng = self.world.loop.rng
        await asyncio.sleep(rng.uniform(0.3, 1) * HEARTBEAT_MS / 1000)
        if not self.application.may_start:
            return
        member = self._living()
        try:
            if self._coordinator_id < 0:
                self._coordinator_id = await find_coordinator(self.connections, member.group_id)
            if not self.is_steady and rng.random() < ENDING_SHARE:
                await self._end(member)
                return
            if rng.random() < 0.4:
                await self._commit(member)
            await self._beat(member)
        except LostError:
            self._coordinator_id = -1
            raise

    def _living(self) -> ThreadMember:
        """Return the member, a new one if there is none or the group is another one by now."""
        member = self.member
        if member is not None and member.group_id == self.application.group_id:
            member.forget_if_silent()
            return member
        rng = self.world.loop.rng
        self._life_count += 1
        if self._instance_id is None:
            self._process_id = f"process-{rng.randrange(PROCESSES)}"
            self._instance_id = f"instance {self._life_count} of {self.name}" if rng.random() < STATIC_SHARE else None
        member = ThreadMember(self, f"{self.name}-{self._life_count}", self._process_id, self._instance_id)
        self.member = member
        return member

    async def _end(self, member: ThreadMember) -> None:
        """End a life: leave, fall silent, or hang for longer than a session lasts and go on."""
        rng = self.world.loop.rng
        kind = rng.choice(("leave", "leave", "crash", "hang"))
        if kind == "hang":
            await asyncio.sleep(rng.uniform(0.5, 2) * SESSION_MS / 1000)
            await self._commit(member)  # of what others may run by now
            return
        self.member = None
        member.crash()
        self.application.seen[kind] += 1
        if kind == "leave":
            is_back_soon = member.instance_id is not None and rng.random() < 0.6
            await self._call(member.request_at(LEAVES_FOR_A_WHILE if is_back_soon else LEAVES), 1)
        if rng.random() < 0.5:
            self._instance_id = None  # another process takes its place

    async def _beat(self, member: ThreadMember) -> None:
        member.adopt()
        request = member.request()
        sent_ms = member.now_ms
        try:
            response = await self._call(request, 1)
        except LostError:
            member.reported = None
            raise
        code = response.error_code
        if code == ErrorCode.NONE:
            member.accept(response)
            member.sent_ms = sent_ms
            self._tell(member, request, response)
            self.progress += 1
            self.application.seen["static member" if member.instance_id else "dynamic member"] += 1
            self.application.seen.update(f"status {status.status_code}" for status in response.status or ())
            self.application.seen["warm-up"] += bool(member.wanted.warmup)
            self.application.seen["standby"] += bool(member.wanted.standby)
        elif code in (*BEGIN_AGAIN, *WAIT):
            self.application.seen[ErrorCode(code).name] += 1
            member.refuse(ApiError(code))
        else:
            member.reported = None
            raise LostError(code)

    def _tell(self, member: ThreadMember, request: Any, response: Any) -> None:
        if member.group_id == self.application.group_id:
            told = self.application.told
            told.note_epoch(member.member_id, request.member_epoch, response.member_epoch)
            told.note_tasks(member.identity, response.member_epoch, member.wanted.active)

    async def _commit(self, member: ThreadMember) -> None:
        """Commit the source of a task that it believes to run, whoever runs it in truth."""
        tasks = [task for task in sorted(member.running.active) if task[0] == "0"]
        if not tasks or member.epoch <= 0:
            return
        task = self.world.loop.rng.choice(tasks)
        place = await self.place(self.application.source, task[1])
        if member.group_id != self.application.group_id:
            return  # what is told from now on is of another group
        part = OffsetCommitRequestPartition(task[1], committed_offset=1, committed_metadata="")
        request = OffsetCommitRequest(
            member.group_id,
            generation_id_or_member_epoch=member.epoch,
            member_id=member.member_id,
            topics=[OffsetCommitRequestTopic(self.application.source, topic_id=place.topic_id, partitions=[part])],
        )
        told = self.application.told
        owner = told.newest_owner(task)
        response = await self._call(request)
        is_done = response.topics[0].partitions[0].error_code == ErrorCode.NONE
        if is_done:
            told.note_commit(member.identity, task, owner)
        self.application.seen["commit" if is_done else "refused commit"] += 1

    async def _call(self, request: Any, version: int | None = None) -> Any:
        return await self.connections.call(self._coordinator_id, request, version)


def running(threads: Iterable[StreamsThread]) -> list[ThreadMember]:
    return [thread.member for thread in threads if thread.member is not None]
