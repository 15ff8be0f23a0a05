"""Two bounds on the producers that the partitions of a broker keep: of ids that were never granted, and of all others.

Ids are granted in blocks that the metadata records, so an id at or above the next block was made up by its client, or
its block is not in this broker's metadata yet. Below it no broker knows which ids of others' blocks somebody was given,
and a client can ask for any number. A producer takes 430 bytes in each partition for producer.id.expiration.ms, a day.

A new producer for which there is no room is refused; none is evicted for it, because a retry of the evicted one would
be appended twice. UNKNOWN_PRODUCER_ID without a log start offset makes a client send the same batch again, and by then
the metadata, or room, is here. Before this broker knows any metadata every id is taken for a granted one.

Beyond half of either bound a client, which is a principal at an address, may bring a sixteenth of it between two
recounts. So no single one takes all the room that others' producers need.

Deviation: Apache Kafka keeps any number of ids that it never granted. Here 65,536 at a time, because one client could
fill the memory.

Deviation: Apache Kafka keeps any number of producers. Here kafkapy.producers.max, and beyond half of it only those of
the last ten minutes and of each client a sixteenth, because one client could fill the memory.
"""

from collections.abc import Hashable, Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.storage.errors import UNKNOWN_PRODUCER_ID
from kafkapy.types import INT64_MAX

MAX_UNGRANTED: Final = 65_536
"""28 MB. A restart counts those on disk only at the first recount, so up to twice as many may be kept for minutes."""
MAX_GRANTED: Final = 1 << 20
"""450 MB: the default of kafkapy.producers.max."""
CROWDED_EXPIRATION_MS: Final = 600_000
"""Five times delivery.timeout.ms: no client of the default settings still retries a batch of a producer so old."""
CLIENT_SHARE: Final = 16
"""A client may bring one in so many while producers are crowded: eight clients together fill the second half."""


class ProducerCounts:
    """The numbers of entries. They may be too high until the next recount, never too low.

    A recount adds up the partitions, one after another, while producers come and go.
    """

    __slots__ = (
        "_added_while_recounting", "_brought", "_recounted", "granted_count", "is_crowded", "max_granted",
        "max_ungranted", "next_producer_id", "ungranted_count",
    )  # fmt: skip

    def __init__(self, max_ungranted: int = MAX_UNGRANTED) -> None:
        self.max_ungranted = max_ungranted
        self.max_granted = MAX_GRANTED
        self.next_producer_id = INT64_MAX
        """The first id of the next block, as far as this broker knows."""
        self.granted_count = self.ungranted_count = 0
        self._recounted = [0, 0]
        """Granted and ungranted ones."""
        self._added_while_recounting = [0, 0]
        self.is_crowded = False
        """Whether more than half of either bound is taken: then call check_client before an append."""
        self._brought: dict[tuple[Hashable, bool], int] = {}
        """By client and whether their ids are ungranted: the new producers since the last recount."""

    def learn_next_producer_id(self, next_producer_id: int) -> None:
        """Update the bound between granted ids and others from the metadata; -1 if none was granted yet."""
        self.next_producer_id = max(next_producer_id, 0)

    def check(self, producer_id: int) -> None:
        """Raise ApiError UNKNOWN_PRODUCER_ID if there is no room for a new producer with this id."""
        if producer_id < self.next_producer_id:
            if self.granted_count >= self.max_granted:
                raise ApiError(UNKNOWN_PRODUCER_ID, f"No room for producer id {producer_id}: kafkapy.producers.max")
        elif self.ungranted_count >= self.max_ungranted:
            raise ApiError(UNKNOWN_PRODUCER_ID, f"Producer id {producer_id} was not granted by this cluster")

    def check_client(self, client: Hashable, producer_id: int) -> None:
        """While producers are crowded: raise ApiError UNKNOWN_PRODUCER_ID if this client has brought its share of them.

        Else count the producer, which has to be a new one of its partition.
        """
        is_ungranted = producer_id >= self.next_producer_id
        count, most = self._bounded(is_ungranted)
        if count <= most // 2:
            return
        brought = self._brought.get((client, is_ungranted), 0)
        if brought >= max(1, most // CLIENT_SHARE):
            raise ApiError(
                UNKNOWN_PRODUCER_ID, f"No room for producer id {producer_id}: its client has brought {brought}"
            )
        self._brought[client, is_ungranted] = brought + 1

    def uncount_client(self, client: Hashable, producer_id: int) -> None:
        """Take back what check_client has counted: the batch was refused for another reason, and may be sent again."""
        key = (client, producer_id >= self.next_producer_id)
        if self._brought.get(key):  # there was no recount meanwhile
            self._brought[key] -= 1

    def _bounded(self, is_ungranted: bool) -> tuple[int, int]:
        """Return the number of entries and its bound."""
        if is_ungranted:
            return self.ungranted_count, self.max_ungranted
        return self.granted_count, self.max_granted

    def _update_crowded(self) -> None:
        self.is_crowded = self.granted_count > self.max_granted // 2 or self.ungranted_count > self.max_ungranted // 2

    def add(self, producer_id: int) -> None:
        """Count a new producer of a partition."""
        is_ungranted = producer_id >= self.next_producer_id
        self._added_while_recounting[is_ungranted] += 1
        if is_ungranted:
            self.ungranted_count += 1
        else:
            self.granted_count += 1
        self._update_crowded()

    def expiration_ms(self, configured_ms: int) -> int:
        """Return how long producers are kept at this number of them."""
        is_crowded = self.granted_count > self.max_granted // 2
        return min(configured_ms, CROWDED_EXPIRATION_MS) if is_crowded else configured_ms

    def start_recount(self) -> None:
        self._recounted = [0, 0]
        self._added_while_recounting = [0, 0]
        self._brought.clear()

    def recount(self, producer_ids: Iterable[int]) -> None:
        """Add the producers of one partition to the recount."""
        next_producer_id = self.next_producer_id
        for producer_id in producer_ids:
            self._recounted[producer_id >= next_producer_id] += 1

    def finish_recount(self) -> None:
        """Replace the counts. Producers added since the start may be in them twice."""
        counts = zip(self._recounted, self._added_while_recounting, strict=True)
        self.granted_count, self.ungranted_count = map(sum, counts)
        self._update_crowded()
