"""A bound on producers whose id the cluster never granted, over all partitions of a broker.

Ids are granted in blocks that the metadata records, so an id at or above the next block was made up by its client, or
its block is not in this broker's metadata yet. A producer takes 430 bytes in each partition for
producer.id.expiration.ms, a day, and a client without InitProducerId can name a new one in each batch.

A new producer of this kind is refused when there is no room; none is evicted, because evicting one whose metadata is
merely late would let its next retry be appended twice. UNKNOWN_PRODUCER_ID without a log start offset makes a client
send the same batch again, and by then the metadata is here. Granted ids, and ids of before this broker knew any
metadata, are not counted.

Deviation: Apache Kafka keeps any number of them. Here 65,536 at a time, because one client could fill the memory.
"""

from collections.abc import Iterable
from typing import Final

from kafkapy.errors import ApiError
from kafkapy.storage.errors import UNKNOWN_PRODUCER_ID
from kafkapy.types import INT64_MAX

MAX_UNGRANTED: Final = 65_536
"""28 MB. A restart counts those on disk only at the first recount, so up to twice as many may be kept for minutes."""


class UngrantedProducers:
    """The number of entries for ids that were never granted. It may be too high until the next recount, never too low.

    A recount adds up the partitions, one after another, while producers come and go.
    """

    __slots__ = ("_added_while_recounting", "_recounted", "count", "max_count", "next_producer_id")

    def __init__(self, max_count: int = MAX_UNGRANTED) -> None:
        self.max_count = max_count
        self.next_producer_id = INT64_MAX
        """The first id of the next block, as far as this broker knows."""
        self.count = 0
        self._recounted = 0
        self._added_while_recounting = 0

    @property
    def is_full(self) -> bool:
        return self.count >= self.max_count

    def learn_next_producer_id(self, next_producer_id: int) -> None:
        """Update the bound between granted ids and others from the metadata; -1 if none was granted yet."""
        self.next_producer_id = max(next_producer_id, 0)

    def check(self, producer_id: int) -> None:
        """Raise ApiError UNKNOWN_PRODUCER_ID if there is no room for a new producer with this id."""
        if producer_id >= self.next_producer_id and self.is_full:
            raise ApiError(UNKNOWN_PRODUCER_ID, f"Producer id {producer_id} was not granted by this cluster")

    def add(self, producer_id: int) -> None:
        """Count a new producer of a partition."""
        if producer_id >= self.next_producer_id:
            self.count += 1
            self._added_while_recounting += 1

    def start_recount(self) -> None:
        self._recounted = self._added_while_recounting = 0

    def recount(self, producer_ids: Iterable[int]) -> None:
        """Add the producers of one partition to the recount."""
        next_producer_id = self.next_producer_id
        self._recounted += sum([producer_id >= next_producer_id for producer_id in producer_ids])

    def finish_recount(self) -> None:
        """Replace the count. Producers added since the start may be in it twice."""
        self.count = self._recounted + self._added_while_recounting
