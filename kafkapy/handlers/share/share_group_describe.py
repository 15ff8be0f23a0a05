"""ShareGroupDescribe 1: share groups with their epochs, members, and the members' assignments. KIP-932.

The steps are those of all kinds: described_groups.py.
"""

from typing import Final

from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.described_groups import DescribedKind, described_groups
from kafkapy.handlers.share.gate import has_share_groups
from kafkapy.protocol.messages.share_group_describe_request import ShareGroupDescribeRequest
from kafkapy.protocol.messages.share_group_describe_response import DescribedGroup, ShareGroupDescribeResponse
from kafkapy.runtime.turns import Walk


async def handle(
    services: Services, context: RequestContext, request: ShareGroupDescribeRequest
) -> ShareGroupDescribeResponse:
    groups = await described_groups(services, context, request, SHARE_GROUPS)
    return ShareGroupDescribeResponse(groups=groups)


async def _topics(group: DescribedGroup, way: Walk) -> set[str]:
    return {
        topic.topic_name async for member in way.over(group.members) for topic in member.assignment.topic_partitions
    }


SHARE_GROUPS: Final = DescribedKind(
    is_enabled=has_share_groups,
    new=DescribedGroup,
    describe=lambda shard, group_id, start, count: shard.share.describe(group_id, start=start, count=count),
    topics_of=_topics,
    hidden_topic_message="The group has described topic(s) that the client is not authorized to describe.",
)
