"""ConsumerGroupDescribe 0-1: KIP-848 groups with their epochs, members, and the members' assignments and targets.

v1: the type of each member, classic or consumer (KIP-1099).
The steps are those of all kinds: described_groups.py.
"""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.described_groups import DescribedKind, described_groups
from kafkapy.handlers.groups.consumer_group_heartbeat import is_protocol_enabled
from kafkapy.protocol.messages.consumer_group_describe_request import ConsumerGroupDescribeRequest
from kafkapy.protocol.messages.consumer_group_describe_response import ConsumerGroupDescribeResponse, DescribedGroup
from kafkapy.runtime.turns import Walk


async def handle(
    services: Services, context: RequestContext, request: ConsumerGroupDescribeRequest
) -> ConsumerGroupDescribeResponse:
    groups = await described_groups(services, context, request, CONSUMER_GROUPS)
    return ConsumerGroupDescribeResponse(groups=groups)


async def _topics(group: DescribedGroup, way: Walk) -> set[str]:
    return {
        topic.topic_name
        async for member in way.over(group.members)
        for assignment in (member.assignment, member.target_assignment)
        for topic in assignment.topic_partitions
    }


CONSUMER_GROUPS: Final = DescribedKind(
    is_enabled=is_protocol_enabled,
    new=DescribedGroup,
    describe=lambda shard, group_id, start, count: shard.consumer.describe(group_id, start=start, count=count),
    topics_of=_topics,
    hidden_topic_message="The group has described topic(s) that the client is not authorized to describe.",
)
