"""Members of a classic group in a simulated cluster: the checker is told who was assigned what, and what was committed.

Each partition has one owner in a generation: a member that got its assignment may rely on it, whatever becomes of the
coordinator, as its response was sent once the assignment was committed. So a generation that was synced never comes
again with other owners, and offsets of an earlier one are refused.
"""

import asyncio
from typing import Any, ClassVar, Final

from kafkapy.group.classic.state import assigned_partitions
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.leave_group_request import LeaveGroupRequest, MemberIdentity
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.types import TopicPartition
from tests.simulator.cluster_checker import ClusterChecker
from tests.simulator.cluster_clients import Client, LostError, find_coordinator
from tests.simulator.cluster_world import ClusterWorld
from tests.support.membership import assignment, subscription

GROUP: Final = "members"
GROUPS_PARTITION: Final = TopicPartition("__consumer_offsets", 0)
"""There is one: its leader coordinates all groups."""
PARTITIONS: Final = (0, 1)
SESSION_MS, REBALANCE_MS = 700, 400
PROPERTIES: Final = {"group_min_session_timeout_ms": "600", "group_initial_rebalance_delay_ms": "0"}
STEPS_PER_S: Final = 8
LEAVING_SHARE: Final = 0.04
"""How many steps are the last of a member, which leaves or falls silent; another one joins instead."""


class GroupMember(Client):
    """Joins, syncs, and then sends heartbeats and commits offsets of what it owns."""

    enough_progress: ClassVar[int] = 2

    def __init__(self, world: ClusterWorld, checker: ClusterChecker, name: str, number: int, topic: str) -> None:
        super().__init__(world, checker, name, number)
        self._topic = topic
        self._coordinator_id = -1
        self._member_id = ""
        self._generation = -1
        self._owned: list[int] = []
        self._committed = 0
        self.is_to_go = False
        """Whether its next step in the group is to be its last one."""

    async def step(self) -> None:
        rng = self.world.loop.rng
        try:
            if self._coordinator_id < 0:
                self._coordinator_id = await find_coordinator(self.connections, GROUP)
            if self._generation < 0:
                await self._join()
            elif rng.random() < LEAVING_SHARE or self.is_to_go:
                await self._go()
            elif rng.random() < 0.5 and self._owned:
                await self._commit(rng.choice(self._owned))
            else:
                await self._beat()
        except LostError:
            self._coordinator_id = -1
            raise
        await asyncio.sleep(rng.expovariate(STEPS_PER_S))

    async def _join(self) -> None:
        request = JoinGroupRequest(
            GROUP,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self._member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol("range", metadata=subscription(self._topic))],
        )
        joined = await self.connections.call(self._coordinator_id, request)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
        elif not self._is_refused(joined.error_code):
            self._member_id = joined.member_id
            await self._sync(joined)

    async def _sync(self, joined: Any) -> None:
        request = SyncGroupRequest(
            GROUP,
            generation_id=joined.generation_id,
            member_id=self._member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=self._assign(joined) if joined.leader == self._member_id else [],
        )
        synced = await self.connections.call(self._coordinator_id, request)
        if self._is_refused(synced.error_code):
            return
        owned = assigned_partitions(synced.assignment)
        self.checker.own(GROUP, joined.generation_id, self._member_id, owned)
        self._generation = joined.generation_id
        self._owned = sorted(each.partition for each in owned)
        self.progress += 1

    def _assign(self, joined: Any) -> list[SyncGroupRequestAssignment]:
        """Deal the partitions in an order of this generation's own, so that each has other owners than before."""
        members = self.world.loop.rng.sample([each.member_id for each in joined.members], len(joined.members))
        shares: dict[str, list[int]] = {member_id: [] for member_id in members}
        for partition in PARTITIONS:
            shares[members[partition % len(members)]].append(partition)
        return [
            SyncGroupRequestAssignment(each, assignment=assignment(self._topic, *share))
            for each, share in shares.items()
        ]

    async def _beat(self) -> None:
        request = HeartbeatRequest(GROUP, generation_id=self._generation, member_id=self._member_id)
        if not self._is_refused((await self.connections.call(self._coordinator_id, request)).error_code):
            self.progress += 1

    async def _commit(self, partition: int) -> None:
        place = await self.place(self._topic, partition)
        self._committed += 1
        part = OffsetCommitRequestPartition(partition, committed_offset=self._committed, committed_metadata="")
        request = OffsetCommitRequest(
            GROUP,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[OffsetCommitRequestTopic(self._topic, topic_id=place.topic_id, partitions=[part])],
        )
        newest = self.checker.newest_generation(GROUP)
        response = await self.connections.call(self._coordinator_id, request)
        if not self._is_refused(response.topics[0].partitions[0].error_code):
            self.checker.commit_of(GROUP, self._generation, newest)
            self.progress += 1

    async def _go(self) -> None:
        """Leave the group, or fall silent without a word."""
        member_id, self._member_id, self._generation = self._member_id, "", -1
        self.is_to_go = False
        if self.world.loop.rng.random() < 0.5:
            await self.connections.call(
                self._coordinator_id, LeaveGroupRequest(GROUP, members=[MemberIdentity(member_id)])
            )

    def _is_refused(self, code: int) -> bool:
        """Draw the conclusions of an error; return whether there is one. Raises LostError."""
        if code == ErrorCode.NONE:
            return False
        if code == ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id, self._generation = "", -1
        elif code in (ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS):
            self._generation = -1
        else:
            raise LostError(code)
        return True
