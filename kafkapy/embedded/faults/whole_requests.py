"""Completes requests that name only a part of their topics, so that faults and records can be chosen by topic."""

from copy import copy
from typing import TYPE_CHECKING, Any, Final

from kafkapy.embedded.faults.shapes import Selected, parts_of
from kafkapy.protocol.api import APIS
from kafkapy.protocol.headers import RequestHeader

if TYPE_CHECKING:
    from kafkapy.handlers.context import Services

FETCH: Final = 1
METADATA: Final = 3
INITIAL_EPOCHS: Final = (0, -1)
"""Session epochs of a Fetch that names all of its partitions."""


class WholeRequests:
    """Completes the requests of one broker's clients."""

    def __init__(self, services: "Services") -> None:
        self._services = services

    def request(self, request: Any) -> Any:
        """Return the request with every topic that it concerns: with the partitions of its session, or with all topics.

        Of a Fetch or Metadata request a copy, whose parts may be taken; any other request itself.
        """
        if type(request).API_KEY == METADATA:
            return self._whole_metadata(request)
        if type(request).API_KEY == FETCH:
            return self._whole_fetch(request)
        return request

    def parts(self, header: RequestHeader, request: Any) -> list[Selected]:
        """Return the selectable fields of each part of a request: of each partition, topic and so on."""
        api = APIS[header.api_key].name
        return list(parts_of(api, header.api_version, self.request(request), self.topic_of))

    def _whole_metadata(self, request: Any) -> Any:
        from kafkapy.protocol.messages.metadata_request import MetadataRequestTopic

        topics = self._services.metadata.image.topics.by_name
        named = [MetadataRequestTopic(name=name) for name in topics] if request.topics is None else request.topics
        return type(request)(topics=[self._identified(topic) for topic in named])

    def _whole_fetch(self, request: Any) -> Any:
        """Return a copy with the partitions of the session."""
        found = type(request)(topics=[copy(topic) for topic in request.topics])
        if request.session_epoch not in INITIAL_EPOCHS:
            from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchTopic

            for topic, topic_id, partition in self._services.fetch_sessions.partitions_of(request.session_id):
                partitions = [FetchPartition(partition=partition)]
                found.topics.append(FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions))
        return found

    def _identified(self, topic: Any) -> Any:
        """Return a topic of a Metadata request with its name and its id, as the response has it."""
        topics = self._services.metadata.image.topics
        known = topics.by_id.get(topic.topic_id) if topic.name is None else topics.by_name.get(topic.name)
        return copy(topic) if known is None else type(topic)(topic_id=known.topic_id, name=known.name)

    def topic_of(self, topic_id: bytes) -> str | None:
        """Return the name of the topic with this id; None if there is none."""
        topic = self._services.metadata.image.topics.by_id.get(topic_id)
        return None if topic is None else topic.name


def is_readable(header: RequestHeader) -> bool:
    """Return whether the codec reads the request: not if it is of a version that Kafka 4 has removed."""
    api = APIS[header.api_key]
    return api.min_version <= header.api_version <= api.max_version
