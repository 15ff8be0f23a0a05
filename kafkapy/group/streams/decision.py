"""Results of a streams group's decisions, beside records: the response, topics to create, a due assignment."""

from collections.abc import Mapping
from dataclasses import field

from kafkapy.dataclass import dataclass
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse


@dataclass(slots=True)
class HeartbeatResult:
    """The response, and the internal topics that the caller creates, with the rights of the member."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LargeTargetDue:
    """The first assignment is due, and takes long to compute: StreamsGroups.due_target decides it."""

    group_id: str
