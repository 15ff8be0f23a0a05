"""Describes groups with a group epoch: consumer groups (KIP-848), share groups (KIP-932), streams groups (KIP-1071).

Each group has its own error code. A group with a topic that the client may not describe gets an error, as in Kafka.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from kafkapy.dataclass import dataclass
from kafkapy.errors import ApiError
from kafkapy.group.shard import GroupShard
from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.turns import Walk
from kafkapy.security.authorizer import AclOperation, ResourceType, authorized_operations

MEMBERS_AT_ONCE: Final = 100
"""Members with 100 partitions each are 3 to 5 ms of work. A larger group is described in parts."""


class DescribeRequest(Protocol):
    group_ids: list[str]
    include_authorized_operations: bool


class DescribedGroup(Protocol):
    error_code: int
    group_epoch: int
    members: list[Any]
    authorized_operations: int


GroupT = TypeVar("GroupT", bound=DescribedGroup)


@dataclass(frozen=True, slots=True)
class DescribedKind(Generic[GroupT]):
    """The differences between the kinds of groups.

    is_enabled: whether this broker serves such groups. new: makes a described group, of its error code, error message
    and group id. describe: called with shard, group id, and of the members the first and how many, None for all.
    """

    is_enabled: Callable[[Services], bool]
    new: Callable[..., GroupT]
    describe: Callable[[GroupShard, str, int, int | None], GroupT]
    topics_of: Callable[[GroupT, Walk], Awaitable[set[str]]]
    hidden_topic_message: str

    def refused(self, group_id: str, code: ErrorCode, message: str | None = None) -> GroupT:
        return self.new(error_code=int(code), error_message=message, group_id=group_id)


async def described_groups(
    services: Services, context: RequestContext, request: DescribeRequest, kind: DescribedKind[GroupT]
) -> list[GroupT]:
    """Return the groups that a request names."""
    groups = []
    access = TopicAccess(services, context, AclOperation.DESCRIBE)
    # Deviation: Apache Kafka describes a group as often as it is named. Here once, because it may have thousands of
    # members.
    way = walk(services, context)
    async for group_id in way.over(dict.fromkeys(request.group_ids)):
        described = await _describe(services, context, group_id, kind, way)
        if request.include_authorized_operations and not described.error_code:
            described.authorized_operations = authorized_operations(
                services.authorizer, context, ResourceType.GROUP, group_id
            )
        if access.denied(await kind.topics_of(described, way)):
            described = kind.refused(group_id, ErrorCode.TOPIC_AUTHORIZATION_FAILED, kind.hidden_topic_message)
        groups.append(described)
    return groups


async def _describe(
    services: Services, context: RequestContext, group_id: str, kind: DescribedKind[GroupT], way: Walk
) -> GroupT:
    if not kind.is_enabled(services):
        return kind.refused(group_id, ErrorCode.UNSUPPORTED_VERSION)
    if not services.authorizer.authorize(context, AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return kind.refused(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if not group_id:
        return kind.refused(group_id, ErrorCode.INVALID_GROUP_ID)

    def part(start: int, count: int | None = MEMBERS_AT_ONCE) -> Callable[[GroupShard], GroupT]:
        return lambda shard: kind.describe(shard, group_id, start, count)

    try:
        described = further = await services.groups.read(group_id, part(0))
        while len(further.members) == MEMBERS_AT_ONCE:
            await way.give_way()
            further = await services.groups.read(group_id, part(len(described.members)))
            if further.group_epoch != described.group_epoch:  # members joined or left: the parts do not belong together
                return await services.groups.read(group_id, part(0, None))
            described.members += further.members
    except ApiError as error:
        return kind.refused(group_id, ErrorCode(error.code), error.message)
    return described
