"""Members of groups for transactional clients of a simulated broker: of classic groups, and of KIP-848 groups.

Each commits its transaction's offset as a member; the group moves on without those that pause, die with the broker's
life, or lose answers, and what they commit then is refused.
"""

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulator.transaction_clients import LOST_SHARE, NOT_YET, TOPICS, Lost, Membership, Stage
from tests.support.membership import assignment, subscription

SESSION_MS, REBALANCE_MS, HEARTBEAT_MS = 600, 300, 100
PROPERTIES = {
    "group_initial_rebalance_delay_ms": "0",
    "group_min_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_session_timeout_ms": str(SESSION_MS),
    "group_consumer_session_timeout_ms": str(SESSION_MS),
    "group_consumer_min_heartbeat_interval_ms": str(HEARTBEAT_MS),
    "group_consumer_heartbeat_interval_ms": str(HEARTBEAT_MS),
}
FENCED = (
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.STALE_MEMBER_EPOCH,
    ErrorCode.GROUP_ID_NOT_FOUND,
)
NOT_IN_GROUP = -1


class Member:
    """What both kinds have in common. `epoch`: the generation, or the member's epoch in a KIP-848 group."""

    def __init__(self, stage: Stage, group_id: str, name: str, random: Random) -> None:
        self.member_id = ""
        self.epoch = NOT_IN_GROUP
        self._stage = stage
        self._group_id = group_id
        self._name = name
        self._random = random
        self._connection = stage.new_connection(random, lost_share=LOST_SHARE)

    async def is_in(self) -> bool:
        """Join, or send a heartbeat; return whether the group has this member now. At times a new one joins instead."""
        if self._random.random() < 0.05:
            self._leave_behind(ErrorCode.UNKNOWN_MEMBER_ID)
        with suppress(Lost):
            await (self._heartbeat() if self.epoch != NOT_IN_GROUP else self._join())
        return self.epoch != NOT_IN_GROUP

    def is_behind(self, epoch: int) -> bool:
        """Whether the group surely refuses offsets of such an epoch."""
        return False

    def refused(self, code: int) -> None:
        """An offset was refused, if that is what the code says."""
        if code in (ErrorCode.ILLEGAL_GENERATION, *FENCED):
            self._leave_behind(code)

    def _leave_behind(self, code: int) -> None:
        self.epoch = NOT_IN_GROUP
        if code in FENCED:
            self.member_id = ""

    async def _join(self) -> None:
        raise NotImplementedError

    async def _heartbeat(self) -> None:
        raise NotImplementedError


class ClassicMember(Member):
    """JoinGroup, SyncGroup, Heartbeat."""

    protocol_type = "copier"
    metadata = b""
    share = b"its share"

    async def _join(self) -> None:
        request = JoinGroupRequest(
            self._group_id,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            member_id=self.member_id,
            protocol_type=self.protocol_type,
            protocols=[JoinGroupRequestProtocol("any", metadata=self.metadata)],
        )
        joined = await self._connection.send_request(request, 9)
        if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = joined.member_id
        elif joined.error_code == ErrorCode.NONE:
            self.member_id = joined.member_id
            self._note_generation(joined.generation_id)
            await self._sync(joined)
        else:
            # INCONSISTENT_GROUP_PROTOCOL: the group still has members of the other kind, which clients of before were
            self._expect(joined, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    def is_behind(self, epoch: int) -> bool:
        machine, generation = self._stage.generations.get(self._group_id, (None, NOT_IN_GROUP))
        return machine is self._stage.machine and epoch < generation

    def _note_generation(self, generation_id: int) -> None:
        self._stage.generations[self._group_id] = (self._stage.machine, generation_id)

    async def _sync(self, joined: Any) -> None:
        members = joined.members if joined.leader == self.member_id else ()
        assignments = [SyncGroupRequestAssignment(each.member_id, assignment=self.share) for each in members]
        request = SyncGroupRequest(
            self._group_id,
            generation_id=joined.generation_id,
            member_id=self.member_id,
            protocol_type=self.protocol_type,
            protocol_name="any",
            assignments=assignments,
        )
        synced = await self._connection.send_request(request, 5)
        if synced.error_code == ErrorCode.NONE:
            self.epoch = joined.generation_id
        else:
            self._expect(synced, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)

    async def _heartbeat(self) -> None:
        response = await self._connection.send_request(
            HeartbeatRequest(self._group_id, generation_id=self.epoch, member_id=self.member_id), 4
        )
        if response.error_code != ErrorCode.NONE:
            self._expect(response, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION)

    def _expect(self, response: Any, *codes: int) -> None:
        assert response.error_code in (*codes, *FENCED, *NOT_YET), response
        self._leave_behind(response.error_code)


class ModernMember(Member):
    """ConsumerGroupHeartbeat. A member that was fenced comes back under another id."""

    _lives = 0
    _owned: "list[TopicPartitions] | None" = None

    async def _join(self) -> None:
        if not self.member_id:
            self._lives += 1
            self.member_id = f"{self._name}-{self._lives}"
        self._owned = []
        await self._beat(0)

    async def _heartbeat(self) -> None:
        await self._beat(self.epoch)

    async def _beat(self, epoch: int) -> None:
        request = ConsumerGroupHeartbeatRequest(
            self._group_id,
            member_id=self.member_id,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=list(TOPICS),
            topic_partitions=self._owned,
        )
        response = await self._connection.send_request(request, 1)
        if response.error_code == ErrorCode.NONE:
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self._owned = [
                    TopicPartitions(each.topic_id, partitions=each.partitions)
                    for each in response.assignment.topic_partitions
                ]
        else:
            assert response.error_code in (*FENCED, *NOT_YET), response
            if response.error_code in FENCED:
                self._leave_behind(response.error_code)


class ConsumerMember(ClassicMember):
    """A classic member that consumers of KIP-848 may share a group with."""

    protocol_type = "consumer"
    metadata = subscription(*TOPICS)
    share = assignment(TOPICS[0], 0, 1)

    def is_behind(self, epoch: int) -> bool:
        return False  # in a group of KIP-848 each member has an epoch of its own

    def _note_generation(self, generation_id: int) -> None:
        return


class SwitchingMember:
    """Joins as a consumer of the one kind or of the other, so that its group is converted again and again.

    What it was before may still be in the group, until its session has expired.
    """

    def __init__(self, stage: Stage, group_id: str, name: str, random: Random) -> None:
        self._members = (
            ConsumerMember(stage, group_id, name, random),
            ModernMember(stage, group_id, name, random),
        )
        self._random = random
        self._current: Member = random.choice(self._members)

    @property
    def member_id(self) -> str:
        return self._current.member_id

    @property
    def epoch(self) -> int:
        return self._current.epoch

    async def is_in(self) -> bool:
        if self.epoch == NOT_IN_GROUP and self._random.random() < 0.3:
            self._current.refused(ErrorCode.UNKNOWN_MEMBER_ID)
            self._current = self._random.choice(self._members)
        return await self._current.is_in()

    def is_behind(self, epoch: int) -> bool:
        return False

    def refused(self, code: int) -> None:
        self._current.refused(code)


KINDS: "tuple[Callable[..., Membership] | None, ...]" = (ClassicMember, ModernMember, None, SwitchingMember)
"""None: offsets are committed for a group without members."""
