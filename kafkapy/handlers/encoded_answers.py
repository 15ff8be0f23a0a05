"""Answers kept as bytes: those that are large, the same for all who ask, and asked for again and again.

Metadata of all topics is one: with 10,000 topics it takes 80 ms to make, and each client that lists
topics or subscribes by pattern asks for it, while it changes only with the metadata. Larger ones are made in turns, and
encoded by a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
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
        self._making: dict[Hashable, asyncio.Future[EncodedAnswer | None]] = {}
        """Answers that are being made; the result is None where that failed."""

    def get(self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Message]) -> EncodedAnswer:
        """Return the answer of `api_version` under `key`, made by `make` unless it is here."""
        found = self.find(image, api_version, key)
        if found is None:
            found = EncodedAnswer(make().encode(api_version))
            self._keep((api_version, key), found)
        return found

    async def get_slowly(
        self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Awaitable[bytes]]
    ) -> EncodedAnswer:
        """Do as `get` for an answer that takes long; whoever asks for it meanwhile waits for the one that is made."""
        name = (api_version, key)
        found = self.find(image, api_version, key)
        if found is not None:
            return found
        if name in self._making:
            made = await asyncio.shield(self._making[name])
            return made or EncodedAnswer(await make())
        making = self._making[name] = asyncio.get_running_loop().create_future()
        try:
            found = EncodedAnswer(await make())
        finally:
            making.set_result(found)
            if self._making.get(name) is making:  # the metadata is still what it was made of
                del self._making[name]
                if found is not None:
                    self._keep(name, found)
        return found

    def find(self, image: MetadataImage, api_version: int, key: Hashable) -> EncodedAnswer | None:
        """Return the answer of `api_version` under `key`, None unless it is here."""
        if image.topics is not self._topics or image.cluster is not self._cluster:
            self._topics, self._cluster = image.topics, image.cluster
            self._answers.clear()
            self._making.clear()
        return self._answers.get((api_version, key))

    def _keep(self, name: Hashable, answer: EncodedAnswer) -> None:
        self._answers[name] = answer
        if len(self._answers) > MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
