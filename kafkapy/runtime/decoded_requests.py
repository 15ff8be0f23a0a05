"""Bounds the memory of decoded requests, beside their frames, over all connections of a node.

A frame of some KiB may hold thousands of elements (array entries and tagged fields), each of which becomes objects. An
element is counted as ELEMENT_BYTES from its decoding until its request is answered, and so are the bytes of the frame,
as strings and byte strings are copied: the frame itself is freed when its request has been decoded and waits, and does
not count as request memory (reactor/request_memory.py) then. Invariants:

* A request waits for room only as a frame. Requests in small and in large frames wait in lanes of their own; at most
  SMALL_DECODED_BYTES and LARGE_DECODED_BYTES are decoded there at a time. The clients that wait take turns. A client
  is a principal at an address.
* What a request with room waits for never waits for room itself: a JoinGroup for the other members, a write for the
  fetches of followers. These requests (`acquire_parked`) get room within PARKED_BYTES at once, or may not wait.
  A client gets no more of it once it holds more than would stay free, so however much it takes, others have room.
* Deviation: Apache Kafka bounds bytes only. Here a Fetch, Produce or DeleteRecords without room is answered without
  waiting, and a JoinGroup, SyncGroup or AddPartitionsToTxn closes its connection, because nobody is to wait for them.
* A Fetch or DeleteRecords that may not wait for others waits as a frame for room within PROMPT_BYTES: all that hold it
  are answered without waiting for others, so it comes soon. A Produce is decoded and carried out in one turn.
* Requests whose responses may take tens of MiB (`response_bytes`) have room one at a time, from their decoding until
  their response is encoded.
* Requests of up to FEW_ELEMENTS and FEW_BYTES are not counted: max_in_flight bounds how many a connection has.
* A Produce counts as a frame until it waits for replicas, and by its elements only: it then keeps the names of topics.
"""

from collections.abc import Hashable
from typing import Final

from kafkapy.runtime.pool import Lane

ELEMENT_BYTES: Final = 640
"""Memory of an element, up to 480 bytes, and of its part of the response."""

FEW_ELEMENTS: Final = 32
"""Up to this count a request takes less memory than what the loop and the connection keep for it."""

FEW_BYTES: Final = 1024
"""The same for the bytes of a frame, which strings and byte strings take."""

SMALL_DECODED_BYTES: Final = 64 << 20
"""For frames below LARGE_FRAME_BYTES, the largest of which takes 5 MiB decoded."""

LARGE_DECODED_BYTES: Final = 128 << 20
"""For larger frames: one of the largest, a few while their elements are not counted yet, or hundreds of usual ones."""

PARKED_BYTES: Final = 128 << 20
"""For requests that wait for other requests. Half of it: 100,000 partitions in fetches that wait for data."""

PROMPT_BYTES: Final = 32 << 20
"""For requests that may not wait for others, as PARKED_BYTES are in use: one of the largest, or many usual ones."""


class Room:
    """The room that a request holds of the account until it is released."""

    __slots__ = ("_lane", "byte_count")

    def __init__(self, lane: Lane, byte_count: int) -> None:
        self._lane = lane
        self.byte_count = byte_count

    def shrink(self, byte_count: int) -> None:
        """Hold at most `byte_count` from now on."""
        if byte_count < self.byte_count:
            self._lane.shrink(self.byte_count, byte_count)
            self.byte_count = byte_count

    def release(self) -> None:
        """Return all. Call once."""
        self._lane.leave(self.byte_count)


class _ParkedRoom(Room):
    """Counts as held by its client, too."""

    __slots__ = ("_client", "_held")

    def __init__(self, lane: Lane, byte_count: int, held: dict[Hashable, int], client: Hashable) -> None:
        super().__init__(lane, byte_count)
        self._held = held
        self._client = client
        held[client] = held.get(client, 0) + byte_count

    def release(self) -> None:
        super().release()
        left_bytes = self._held[self._client] - self.byte_count
        assert left_bytes >= 0
        if left_bytes:
            self._held[self._client] = left_bytes
        else:
            del self._held[self._client]


class _ResponseRoom(Room):
    """The only room for a large response: the next request has it after this one."""

    __slots__ = ("_responses",)

    def __init__(self, room: Room, responses: Lane) -> None:
        super().__init__(room._lane, room.byte_count)
        self._responses = responses

    def release(self) -> None:
        super().release()
        self._responses.leave(0)


class DecodedRequests:
    """The account of one node's requests."""

    def __init__(
        self,
        small_bytes: int = SMALL_DECODED_BYTES,
        large_bytes: int = LARGE_DECODED_BYTES,
        parked_bytes: int = PARKED_BYTES,
        prompt_bytes: int = PROMPT_BYTES,
    ) -> None:
        self._small = Lane(max_bytes=small_bytes)
        self._large = Lane(max_bytes=large_bytes)
        self._parked = Lane(max_bytes=parked_bytes)
        self._prompt = Lane(max_bytes=prompt_bytes)
        self._responses = Lane(max_bytes=0, max_at_once=1)
        self._held: dict[Hashable, int] = {}
        """The bytes in the parked lane, by client."""

    @property
    def bytes_in_use(self) -> int:
        return sum(lane.bytes_in_use for lane in (self._small, self._large, self._parked, self._prompt))

    def acquire(self, elements: int, frame_bytes: int) -> Room | None:
        """Return room for a request of a small frame; None if it has to wait, with its decoded form dropped."""
        byte_count = min(elements * ELEMENT_BYTES + frame_bytes, self._small.max_bytes)
        return Room(self._small, byte_count) if self._small.try_enter(byte_count) else None

    async def wait(self, elements: int, frame_bytes: int, client: Hashable = None) -> Room:
        """Return room for a request of a small frame once there is some."""
        return await _enter(self._small, elements * ELEMENT_BYTES + frame_bytes, client)

    async def wait_large(
        self, max_elements: int, frame_bytes: int, client: Hashable = None, response_bytes: int = 0
    ) -> Room:
        """Return room for a request of a large frame, once there is some, for the most that it may have.

        response_bytes: what its response may take beyond its elements' part. Such requests have room one at a time.
        """
        byte_count = min(max_elements, frame_bytes) * ELEMENT_BYTES + frame_bytes + response_bytes
        if not response_bytes:
            return await _enter(self._large, byte_count, client)
        await self._responses.enter(0, client)
        try:
            return _ResponseRoom(await _enter(self._large, byte_count, client), self._responses)
        except BaseException:
            self._responses.leave(0)
            raise

    async def wait_prompt(self, elements: int, frame_bytes: int, client: Hashable = None) -> Room:
        """Return room for a request that could wait for others, but will be answered without waiting."""
        return await _enter(self._prompt, elements * ELEMENT_BYTES + frame_bytes, client)

    def acquire_parked(self, elements: int, frame_bytes: int, share: float, client: Hashable = None) -> Room | None:
        """Return room for a decoded request that may wait for other requests; None if it must not wait.

        share: of PARKED_BYTES, what may be in use with this request.
        """
        byte_count = elements * ELEMENT_BYTES + frame_bytes
        free_bytes = share * self._parked.max_bytes - self._parked.bytes_in_use - byte_count
        if free_bytes < self._held.get(client, 0):
            return None
        is_in = self._parked.try_enter(byte_count)
        assert is_in, "nothing waits for this lane"
        return _ParkedRoom(self._parked, byte_count, self._held, client)

    def no_room(self) -> Room:
        """Return the room of a request that is not counted."""
        is_in = self._parked.try_enter(0)
        assert is_in, "nothing waits for this lane"
        return Room(self._parked, 0)


async def _enter(lane: Lane, byte_count: int, client: Hashable) -> Room:
    """Wait for room. What needs more than the whole lane has it alone."""
    held_bytes = min(byte_count, lane.max_bytes)
    await lane.enter(held_bytes, client)
    return Room(lane, held_bytes)
