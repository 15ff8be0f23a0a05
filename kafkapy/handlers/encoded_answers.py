"""A cache of encoded responses that are large, the same for many clients, and requested often.

Such a response is Metadata of all topics. With 10,000 topics it takes 80 ms to make, and each client that lists topics
or subscribes by pattern requests it, but it changes only with the metadata. Large ones are made in several turns of the
loop and encoded by a worker.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable
from typing import Final

from kafkapy.metadata.image import ClusterImage, MetadataImage, TopicsImage
from kafkapy.protocol.primitives import Message, Writer

MAX_ANSWERS: Final = 8
"""The cache size: versions times listeners times brokers named as controller. If it is full, the oldest is dropped."""


class EncodedAnswer:
    """A response that is already encoded, at the version for which it was made."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def write(self, out: Writer, version: int) -> None:
        out += self.body


class EncodedAnswers:
    """Responses made from the topics and brokers of one metadata image. Those of an older image are dropped."""

    def __init__(self) -> None:
        self._topics: TopicsImage | None = None
        self._cluster: ClusterImage | None = None
        self._answers: dict[Hashable, EncodedAnswer] = {}
        self._making: dict[Hashable, asyncio.Future[EncodedAnswer | None]] = {}
        """Responses that are being made; the result is None if that failed."""

    def get(self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Message]) -> EncodedAnswer:
        """Return the response of `api_version` under `key`; if it is not cached, make it with `make`."""
        found = self.find(image, api_version, key)
        if found is None:
            found = EncodedAnswer(make().encode(api_version))
            self._keep((api_version, key), found)
        return found

    async def get_slowly(
        self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Awaitable[bytes]]
    ) -> EncodedAnswer:
        """Like `get`, for a response that takes long to make. Concurrent callers wait for the one being made."""
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
            if self._making.get(name) is making:  # the metadata has not changed meanwhile
                del self._making[name]
                if found is not None:
                    self._keep(name, found)
        return found

    def find(self, image: MetadataImage, api_version: int, key: Hashable) -> EncodedAnswer | None:
        """Return the cached response of `api_version` under `key`, or None."""
        if image.topics is not self._topics or image.cluster is not self._cluster:
            self._topics, self._cluster = image.topics, image.cluster
            self._answers.clear()
            self._making.clear()
        return self._answers.get((api_version, key))

    def _keep(self, name: Hashable, answer: EncodedAnswer) -> None:
        self._answers[name] = answer
        if len(self._answers) > MAX_ANSWERS:
            del self._answers[next(iter(self._answers))]
