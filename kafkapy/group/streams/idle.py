"""Which members have and report nothing new: their heartbeats are answered without a decision, as nearly all are.

A heartbeat that reports nothing, and whose decision wrote and told nothing, has the same outcome again until what the
decision read has changed: the group's records, the cluster's topics, the configuration, or the soft state that the
caller compares (StreamsGroups.heartbeat). A decision takes 74 calls, this 11.
"""

from kafkapy.group.decision import Client
from kafkapy.group.streams.checks import reports_nothing
from kafkapy.group.streams.member import StreamsMember
from kafkapy.group.streams.settings import StreamsSettings
from kafkapy.group.streams.state import StreamsGroupLog
from kafkapy.metadata.image import TopicsImage
from kafkapy.protocol.messages.streams_group_heartbeat_request import StreamsGroupHeartbeatRequest


class IdleMembers:
    """The idle members of one group, for one version of its state."""

    def __init__(self, log: StreamsGroupLog) -> None:
        self._log = log
        self._log_version = -1
        self._topics: TopicsImage | None = None
        self._settings: StreamsSettings | None = None
        self._members: dict[str, StreamsMember] = {}

    def find(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: Client,
        topics: TopicsImage,
        settings: StreamsSettings,
    ) -> StreamsMember | None:
        """Return the member whose heartbeat changes nothing; None if the heartbeat has to be decided."""
        member = self._members.get(request.member_id)
        if (
            member is not None
            and self._log_version == self._log.version
            and self._topics is topics
            and self._settings is settings
            and reports_nothing(request, client, member)
        ):
            return member
        return None

    def add(
        self,
        request: StreamsGroupHeartbeatRequest,
        client: Client,
        topics: TopicsImage,
        settings: StreamsSettings,
    ) -> None:
        """Note that the decision of this heartbeat wrote and told nothing, if the heartbeat reported nothing."""
        member = self._log.members.get(request.member_id)
        if member is None or not reports_nothing(request, client, member):
            return
        if self._log_version != self._log.version or self._topics is not topics or self._settings is not settings:
            self._members = {}
            self._log_version, self._topics, self._settings = self._log.version, topics, settings
        self._members[request.member_id] = member
