"""Answers kept as bytes: those that are large, the same for all who ask, and asked for again and again.

Metadata of all topics is one: with 10,000 topics it takes 80 ms to make, on the event loop, and each client that lists
topics or subscribes by pattern asks for it, while it changes only with the metadata.
"""

from collections.abc import Callable, Hashable
from typing import Final

from kafkapy.metadata.image import ClusterImage, MetadataImage, TopicsImage
from kafkapy.protocol.primitives import Message, Writer

MAX_ANSWERS: Final = 8
"""Versions times listeners times brokers that are named as the controller; with more, the oldest goes."""


class EncodedAnswer:
    """A response that is bytes already, of the version for which it was made."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def write(self, out: Writer, version: int) -> None:
        out += self.body


class EncodedAnswers:
    """The answers that were made from the topics and brokers of one image; those of an older one are dropped."""

    def __init__(self) -> None:
        self._topics: TopicsImage | None = None
        self._cluster: ClusterImage | None = None
        self._answers: dict[Hashable, EncodedAnswer] = {}

    def get(self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Message]) -> EncodedAnswer:
        """Return the answer of `api_version` under `key`, made by `make` unless it is here."""
        if image.topics is not self._topics or image.cluster is not self._cluster:
            self._topics, self._cluster = image.topics, image.cluster
            self._answers.clear()
        found = self._answers.get((api_version, key))
        if found is None:
            found = EncodedAnswer(make().encode(api_version))
            self._answers[api_version, key] = found
            if len(self._answers) > MAX_ANSWERS:
                del self._answers[next(iter(self._answers))]
        return found
