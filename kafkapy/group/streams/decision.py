"""What decisions of a streams group lead to, beside their records: the response, and what is left to be done."""

from collections.abc import Mapping
from dataclasses import field

from kafkapy.dataclass import dataclass
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse


@dataclass(slots=True)
class HeartbeatResult:
    """The caller has the missing internal topics created, with the member's right to do so, and adds what fails."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LargeTargetDue:
    """The delay of the first assignment is over, and the assignment takes long: StreamsGroups.due_target decides it."""

    group_id: str
