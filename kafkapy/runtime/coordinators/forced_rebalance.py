"""Starts a rebalance when a test of a user asks for one, by the same code as a rebalance that a member causes."""

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

from kafkapy.errors import ApiError
from kafkapy.group.classic.group import ClassicGroup
from kafkapy.group.consumer.group import ConsumerGroup
from kafkapy.group.decision import Client, GroupDecision
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest

if TYPE_CHECKING:
    from kafkapy.group.shard import GroupShard

HEARTBEAT_VERSION: Final = 1
MEMBER_ID: Final = "kafkapy-rebalance"
CLIENT: Final = Client("kafkapy-rebalance", "/127.0.0.1")
JOINS: Final = 0
LEAVES: Final = -1
REBALANCE_TIMEOUT_MS: Final = 300_000
"""Kafka's default of max.poll.interval.ms."""


async def force_rebalance(call: "Callable[..., Awaitable[Any]]", group_id: str) -> None:
    """Rebalance a group with members; `call` is GroupCoordinator.call. Raises ApiError.

    A classic group: all members have to join again. A group of the consumer protocol: a member with the subscription of
    another one joins and leaves, so that partitions move to it and back.
    """
    topics: list[str] = []

    def prepare(shard: "GroupShard", _token: int, now_ms: int) -> GroupDecision:
        group = shard.groups[group_id]
        decision = GroupDecision(response=True)
        if isinstance(group, ClassicGroup):
            group.rebalance.rebalance_or_complete("a test asked for a rebalance", decision, now_ms)
        elif isinstance(group, ConsumerGroup):
            # no response tells a member of KIP-848 to join again: only another membership leads to another target
            topics.extend(name for member in group.log.members.values() for name in member.subscribed_topic_names)
        else:
            raise ApiError(ErrorCode.UNSUPPORTED_VERSION, f"a {group.group_type} group is not rebalanced by request")
        return decision

    def heartbeat(epoch: int) -> "Callable[[GroupShard, int, int], GroupDecision]":
        request = ConsumerGroupHeartbeatRequest(
            group_id=group_id,
            member_id=MEMBER_ID,
            member_epoch=epoch,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if epoch == JOINS else -1,
            subscribed_topic_names=sorted(set(topics)) if epoch == JOINS else None,
            topic_partitions=[] if epoch == JOINS else None,
        )
        return lambda shard, _token, now_ms: shard.consumer.heartbeat(request, HEARTBEAT_VERSION, CLIENT, now_ms)

    await call(group_id, prepare)
    if topics:
        await call(group_id, heartbeat(JOINS))
        await call(group_id, heartbeat(LEAVES))
