"""A Metadata response whose topics are encoded in pieces, so that no step holds the event loop for long.

A worker would be worse: it would keep the interpreter's lock for 5 ms each time that the loop wants it, which happens
several times per request of another client.
"""

from typing import Final

from kafkapy.protocol.messages.metadata_response import MetadataResponse, MetadataResponseTopic
from kafkapy.protocol.primitives import write_uvarint

PIECE_TOPICS: Final = 100
"""The maximum of topics in a piece: their count is then one byte of a compact array."""
FLEXIBLE_SINCE: Final = 9


class TopicPieces:
    """Encodes one response at one version: `add` its topics in order, then take its bytes by `joined`.

    A piece is encoded as the topics of a response that has nothing else; what surrounds them is cut off.
    """

    def __init__(self, response: MetadataResponse, api_version: int) -> None:
        """`response`: everything but the topics."""
        assert not response.topics
        self._version = api_version
        self._end_bytes = _end_bytes(api_version)
        self._count_bytes = 1 if api_version >= FLEXIBLE_SINCE else 4
        self._whole = response.encode(api_version)
        bare = MetadataResponse().encode(api_version)
        self._begin = self._topics_at(bare)
        self._pieces: list[bytes] = []
        self._count = 0

    def add(self, topics: list[MetadataResponseTopic]) -> None:
        assert len(topics) <= PIECE_TOPICS
        encoded = MetadataResponse(topics=topics).encode(self._version)
        self._pieces.append(encoded[self._begin : len(encoded) - self._end_bytes])
        self._count += len(topics)

    def joined(self) -> bytes:
        begin = self._whole[: self._topics_at(self._whole) - self._count_bytes]
        count = bytearray()
        if self._version >= FLEXIBLE_SINCE:
            write_uvarint(count, self._count + 1)
        else:
            count += self._count.to_bytes(4, "big")
        return b"".join((begin, count, *self._pieces, self._whole[len(self._whole) - self._end_bytes :]))

    def _topics_at(self, without_topics: bytes) -> int:
        """Return the position at which the topics of a response without topics would begin."""
        return len(without_topics) - self._end_bytes


def _end_bytes(api_version: int) -> int:
    """Return the size of what follows the topics: authorized operations (8-10), error code (13), tagged fields."""
    operations = 4 if 8 <= api_version <= 10 else 0
    error_code = 2 if api_version >= 13 else 0
    return operations + error_code + (1 if api_version >= FLEXIBLE_SINCE else 0)
