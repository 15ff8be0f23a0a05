"""StreamsGroupDescribe 0-1: streams groups with their topology, epochs, members, and the members' tasks. KIP-1071.

v1: the assignor's name; IncludeTopologyDescription is answered NOT_STORED, because no plug-in keeps any (KIP-1331).
The steps are those of all kinds: described_groups.py.
"""

from typing import Final

from kafkapy.group.streams.describe import topics_of
from kafkapy.handlers.context import RequestContext, Services
from kafkapy.handlers.described_groups import DescribedKind, described_groups
from kafkapy.handlers.streams.gate import is_protocol_enabled
from kafkapy.protocol.messages.streams_group_describe_request import StreamsGroupDescribeRequest
from kafkapy.protocol.messages.streams_group_describe_response import DescribedGroup, StreamsGroupDescribeResponse
from kafkapy.runtime.turns import Walk

NOT_STORED: Final = 1
"""What Apache Kafka answers to those who ask for a description that no plug-in keeps."""


async def handle(
    services: Services, context: RequestContext, request: StreamsGroupDescribeRequest
) -> StreamsGroupDescribeResponse:
    groups = await described_groups(services, context, request, STREAMS_GROUPS)
    if request.include_topology_description:
        for group in groups:
            if not group.error_code:
                group.topology_description_status = NOT_STORED
    return StreamsGroupDescribeResponse(groups=groups)


async def _topics(group: DescribedGroup, _way: Walk) -> set[str]:
    return topics_of(group)


STREAMS_GROUPS: Final = DescribedKind(
    is_enabled=is_protocol_enabled,
    new=DescribedGroup,
    describe=lambda shard, group_id, start, count: shard.streams.describe(group_id, start=start, count=count),
    topics_of=_topics,
    hidden_topic_message="The described group uses topics that the client is not authorized to describe.",
)
