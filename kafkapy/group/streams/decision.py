"""Results of a streams group's decisions, beside records: the response, topics to create, a due assignment."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.group.streams.configured_topology import ConfiguredInternalTopic
from kafkapy.group.streams.settings import RACK_TAGS, StreamsSettings
from kafkapy.protocol.messages.streams_group_heartbeat_response import StreamsGroupHeartbeatResponse

CLIENT_TAGS_SINCE: Final = 1
"""The first version whose clients know MISSING_CLIENT_TAGS."""


@dataclass(slots=True)
class HeartbeatResult:
    """The response, and the internal topics that the caller creates, with the rights of the member."""

    response: StreamsGroupHeartbeatResponse
    topics_to_create: Mapping[str, ConfiguredInternalTopic] = field(default_factory=dict)

    def tells_nothing(self, version: int, settings: StreamsSettings) -> bool:
        """Whether there is no status, task or topic, and would be none for a client of another version."""
        response = self.response
        tells_something = response.status or response.active_tasks is not None or self.topics_to_create
        return not tells_something and (version >= CLIENT_TAGS_SINCE or RACK_TAGS not in settings.assignment_configs)


@dataclass(frozen=True, slots=True)
class LargeTargetDue:
    """The first assignment is due, and takes long to compute: StreamsGroups.due_target decides it."""

    group_id: str
