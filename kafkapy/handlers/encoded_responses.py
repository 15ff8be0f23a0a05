"""A cache of encoded responses that are large, the same for many clients, and requested often.

Such a response is Metadata of all topics that a client may describe. With 10,000 topics it takes 80 ms to make, and
each client that lists topics or subscribes by pattern requests it, but it changes only with the metadata. Large ones
are made in several turns of the loop.
"""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Mapping
from typing import Final

from kafkapy.metadata.image import ClusterImage, MetadataImage, TopicsImage
from kafkapy.protocol.primitives import SPLICE_BYTES, Message, Writer
from kafkapy.runtime.pool import Lane

MAX_RESPONSES: Final = 128
MAX_BYTES: Final = 32 << 20
"""The cache size. There is a response for each version, listener, broker named as controller and, with an authorizer,
principal with its host. If the cache is full, the oldest is dropped; one response is kept whatever its size."""


class EncodedResponse:
    """A response that is already encoded, at the version for which it was made. All who get a large one share it."""

    __slots__ = ("body",)

    def __init__(self, body: bytes) -> None:
        self.body = body

    def write(self, out: Writer, version: int) -> None:
        if len(self.body) < SPLICE_BYTES:
            out += self.body
        else:
            out.splices.append((len(out), self.body))


class EncodedResponses:
    """Responses made from the topics and brokers of one metadata image. Those of an older image are dropped."""

    def __init__(self) -> None:
        self.lane = Lane(max_bytes=0, max_at_once=1)
        """Clients take turns to have a large response made, one at a time: until it is encoded it takes some MiB."""
        self._topics: TopicsImage | None = None
        self._cluster: ClusterImage | None = None
        self._acls: Mapping[bytes, object] | None = None
        self._responses: dict[Hashable, EncodedResponse] = {}
        self._size = 0
        """The bytes of all cached responses."""
        self._making: dict[Hashable, asyncio.Future[EncodedResponse | None]] = {}
        """Responses that are being made; the result is None if that failed."""

    def keep(self, image: MetadataImage, api_version: int, key: Hashable, body: bytes) -> EncodedResponse:
        """Return a response that was made from `image`; it is cached, unless the metadata has changed meanwhile."""
        encoded = EncodedResponse(body)
        if self._is_current(image):
            self._keep((api_version, key), encoded)
        return encoded

    async def get_or_make_in_turns(
        self, image: MetadataImage, api_version: int, key: Hashable, make: Callable[[], Awaitable[bytes]]
    ) -> EncodedResponse:
        """Return the response of `api_version` under `key`; make it with `make` if it is not cached.

        Concurrent callers wait for the one being made.
        """
        name = (api_version, key)
        found = self.find(image, api_version, key)
        if found is not None:
            return found
        if name in self._making:
            made = await asyncio.shield(self._making[name])
            return made or EncodedResponse(await make())
        making = self._making[name] = asyncio.get_running_loop().create_future()
        try:
            found = EncodedResponse(await make())
        finally:
            making.set_result(found)
            if self._making.get(name) is making:  # the metadata has not changed meanwhile
                del self._making[name]
                if found is not None:
                    self._keep(name, found)
        return found

    def find(self, image: MetadataImage, api_version: int, key: Hashable) -> EncodedResponse | None:
        """Return the cached response of `api_version` under `key`, or None."""
        if not self._is_current(image):
            self._topics, self._cluster, self._acls = image.topics, image.cluster, image.acls
            self._responses.clear()
            self._size = 0
            self._making.clear()
        return self._responses.get((api_version, key))

    def _is_current(self, image: MetadataImage) -> bool:
        return image.topics is self._topics and image.cluster is self._cluster and image.acls is self._acls

    def _keep(self, name: Hashable, response: EncodedResponse) -> None:
        self._drop(name)
        self._responses[name] = response
        self._size += len(response.body)
        while len(self._responses) > MAX_RESPONSES or (self._size > MAX_BYTES and len(self._responses) > 1):
            self._drop(next(iter(self._responses)))

    def _drop(self, name: Hashable) -> None:
        dropped = self._responses.pop(name, None)
        if dropped is not None:
            self._size -= len(dropped.body)


class VersionResponses:
    """The encoded ApiVersions responses of a node, by version, while what they show is the same."""

    def __init__(self) -> None:
        self._shown: object = None
        self._responses: dict[int, EncodedResponse] = {}

    def find(self, shown: object, version: int) -> EncodedResponse | None:
        """Return the response at `version`; drop all responses if they were made of something else than `shown`."""
        if self._shown != shown:
            self._shown = shown
            self._responses.clear()
        return self._responses.get(version)

    def keep(self, version: int, response: Message) -> EncodedResponse:
        """Encode a response made for the last request."""
        out = Writer()
        response.write(out, version)
        encoded = self._responses[version] = EncodedResponse(bytes(out))
        return encoded
