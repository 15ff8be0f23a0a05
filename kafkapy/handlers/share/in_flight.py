"""The share partitions that this broker leads, for DescribeGroups with the tag of kafkapy.share.explain.

The requester may describe the group, which the caller has checked; topics that it may not describe are left out.
"""

import json

from kafkapy.handlers.context import RequestContext, Services, walk
from kafkapy.handlers.data_plane import TopicAccess
from kafkapy.security.authorizer import AclOperation
from kafkapy.share.explain import PARTITIONS_SHOWN, Now, explain_partition


async def in_flight(services: Services, context: RequestContext, group_id: str) -> bytes:
    """Return the JSON of kafkapy.share.explain."""
    shares, clock = services.share_partitions(), services.clock
    found = shares.of_group(group_id)
    access = TopicAccess(
        services,
        context,
        AclOperation.DESCRIBE,
        [each.hosted.topic_partition.topic for each in found],
        log_if_denied=False,
    )
    reads_committed, members = shares.settings(group_id).reads_committed, shares.sessions.members_of(group_id)
    explained = []
    async for in_use in walk(services, context).over(found[:PARTITIONS_SHOWN]):
        topic, number = in_use.hosted.topic_partition
        log, machine = in_use.hosted.log, in_use.partition
        # other requests get turns meanwhile: a partition may have been deleted, or may have another leader now
        if log is None or not in_use.is_current or not access.allows(topic):
            continue
        explained.append(
            {
                "topic": topic,
                "partition": number,
                **explain_partition(machine, Now(clock.monotonic_ms(), clock.wall_ms())),
                "log_start_offset": log.log_start_offset,
                "high_watermark": log.high_watermark,
                "last_stable_offset": log.last_stable_offset,
                "reads_committed": reads_committed,
                "members": members.get(machine.key.topic_partition, []),
            }
        )
    return json.dumps(explained, separators=(",", ":")).encode()
