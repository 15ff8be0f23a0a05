"""A shard whose groups have members of both protocols: requests of either, and what the log makes of it all."""

from collections.abc import Set
from typing import Any

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.classic.states import ClassicState
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.decision import GroupDecision
from kafkapy.group.records import CoordinatorRecord
from kafkapy.group.shard import GroupShard
from kafkapy.metadata.image import EMPTY_IMAGE, MetadataImage
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.consumer_group_heartbeat_response import ConsumerGroupHeartbeatResponse
from tests.support.classic_groups import CLIENT, GROUP, WALL_START_MS, ClassicWorld
from tests.support.consumer_groups import resolve

BETWEEN_GENERATIONS = "between two generations"


class MixedWorld(ClassicWorld):
    """As ClassicWorld, with topics and members of the consumer protocol (FakeConsumer)."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE, *, seed: int = 0, **config: Any) -> None:
        self.image = image
        self.written: list[CoordinatorRecord] = []
        self.has_unwritten = False
        """Whether the log has refused records of this coordinator."""
        super().__init__(seed=seed, **{"group_consumer_assignment_interval_ms": 0, **config})

    def carry_out(self, decision: GroupDecision) -> None:
        self.written = decision.records
        self.has_unwritten |= bool(decision.records) and self.log_error is not None
        super().carry_out(decision)

    def restart(self) -> None:
        super().restart()
        self.has_unwritten = False

    def send(self, request: ConsumerGroupHeartbeatRequest, version: int = 1) -> ConsumerGroupHeartbeatResponse:
        """Send a ConsumerGroupHeartbeat. Raises ApiError."""
        due: Set[str] = frozenset()

        def decide(_token: int) -> GroupDecision:
            nonlocal due
            decision = self.shard.consumer.heartbeat(request, version, CLIENT, self.now_ms)
            due = decision.due_regexes
            return decision

        response = self.take(self.call(decide))
        if due and not isinstance(response, ApiError):
            before = self.written
            matches = resolve(due, self.image, WALL_START_MS + self.now_ms)
            self.carry_out(self.shard.consumer.resolve_regexes(request.group_id, matches))
            self.written = [*before, *self.written]
        if isinstance(response, ApiError):
            raise response
        assert isinstance(response, ConsumerGroupHeartbeatResponse)
        return response

    @property
    def consumer_group(self) -> ConsumerGroup:
        group = self.shard.groups[GROUP]
        assert isinstance(group, ConsumerGroup)
        return group

    @property
    def is_classic(self) -> bool:
        return isinstance(self.shard.groups[GROUP], ClassicGroup)


def logged(shard: GroupShard) -> dict[str, Any]:
    """Return what the log must say of each group: a coordinator that loads it knows the same."""
    return {group_id: _logged(group) for group_id, group in shard.groups.items()}


def _logged(group: ClassicGroup | ConsumerGroup) -> Any:
    if isinstance(group, ConsumerGroup):
        log = group.log
        return (
            (log.group_epoch, log.metadata_hash, log.assignment_epoch, log.assignment_timestamp_ms),
            log.members,
            log.static_members,
            log.targets,
            log.subscriptions,
            log._owners,
        )
    if group.log.state not in (ClassicState.STABLE, ClassicState.EMPTY):
        return BETWEEN_GENERATIONS  # what it was before them is not known any more
    return (
        (group.log.generation, group.protocol_type, group.log.protocol_name, group.log.members.leader_id),
        {
            member.member_id: (member.instance_id, member.metadata(group.log.protocol_name), member.assignment)
            for member in group.log.members
        },
    )
