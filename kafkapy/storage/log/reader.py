"""Read a log: map an offset to a region of whole batches, usually without access to an index or file.

A log caches the positions of a few offsets: the ends of recent appends and recent reads. A consumer that continues, a
follower at the tail and a high watermark that follows the appends all need exactly these, so a hot read is a dictionary
lookup. Other reads cost an index lookup and a scan of about index.interval.bytes of headers.
"""

from enum import Enum
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.storage.segment.open_files import PinnedRegion
from kafkapy.storage.segment.segment import Segment
from kafkapy.storage.segment.segments import Segments
from kafkapy.storage.segment.txn_index import AbortedTransaction

MAX_KNOWN_POSITIONS: Final = 256
"""Enough for a high watermark that lags by a few round trips, and for dozens of consumers at different offsets."""


MAX_ABORTED_IN_READ: Final = 4096
"""A read ends after the marker of this many aborted transactions; they cost 20 ms, including their encoding.

Transactions that begin in the read and are aborted after it are also returned. Deviation: Apache Kafka reads up to
max_bytes regardless. Here the read ends before, because each aborted transaction is an entry of the response."""


class FetchIsolation(Enum):
    """The offset up to which a read may go."""

    LOG_END = "log end"
    HIGH_WATERMARK = "high watermark"
    TXN_COMMITTED = "last stable offset"


@dataclass(slots=True)
class LogRead:
    """The result of a read. `region` is None if there is nothing to read; its holder must release it.

    first_offset: base offset of the first batch, possibly below the requested offset. next_offset: the offset at which
    to continue, -1 if unknown. aborted_transactions: those of the range, None unless the isolation is TXN_COMMITTED.
    is_cut: the first batch is larger than max_bytes, and min_one_batch was not set.
    """

    region: PinnedRegion | None
    first_offset: int
    next_offset: int
    size_bytes: int
    aborted_transactions: list[AbortedTransaction] | None
    high_watermark: int
    log_start_offset: int
    last_stable_offset: int
    is_cut: bool


class KnownPositions:
    """Caches the segment and position of offsets where a batch starts or will start; evicts the oldest entry first."""

    __slots__ = ("_positions",)

    def __init__(self) -> None:
        self._positions: dict[int, tuple[Segment, int]] = {}

    def remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        positions[offset] = (segment, position)
        if len(positions) > MAX_KNOWN_POSITIONS:
            del positions[next(iter(positions))]

    def get(self, offset: int) -> tuple[Segment, int] | None:
        return self._positions.get(offset)

    def clear(self) -> None:
        """Clear the cache after segments were truncated, deleted or replaced."""
        self._positions.clear()


class LogReader:
    """Finds batches in the segments of one log. Methods raise NeedsWarming if they would block, unless `wait`."""

    __slots__ = ("known", "segments")

    def __init__(self, segments: Segments) -> None:
        self.segments = segments
        self.known = KnownPositions()

    def locate(self, offset: int, *, wait: bool = False) -> tuple[Segment, int, int] | None:
        """Return segment, position and base offset of the first batch whose last offset is at or after `offset`.

        None if there is none. The log end offset is found only if it is cached.
        """
        found = self.known.get(offset)
        if found is not None:
            return found[0], found[1], offset
        segment = self.segments.floor(offset)
        while segment is not None:
            batch = segment.find_batch(offset, wait=wait)
            if batch is not None:
                if batch.base_offset == offset:
                    self.known.remember(offset, segment, batch.position)
                return segment, batch.position, batch.base_offset
            segment = self.segments.after(segment)
        return None

    def fill(
        self, read: LogRead, *, limit: int, log_end_offset: int, max_bytes: int, min_one_batch: bool, wait: bool = False
    ) -> None:
        """Fill in `read` with the batches from its first_offset up to `limit`, an exclusive offset."""
        offset = read.first_offset
        found = self.locate(offset, wait=wait)
        if found is None:
            return
        segment, position, read.first_offset = found
        available, end_offset = self._available(segment, position, limit, log_end_offset, wait=wait)
        end_position = position + available
        if available > max_bytes:
            end_position, end_offset = segment.batches_within(position, position + max_bytes, wait=wait)
            if end_position == position:  # a consumer would never get beyond this batch, so the first one is sent whole
                if not min_one_batch:
                    read.is_cut = True
                    return
                end_position, end_offset = self._first_batch(segment, position, wait=wait)
        if end_position <= position:
            return
        if read.aborted_transactions is not None:
            upper = end_offset if end_offset >= 0 else self.segments.end_offset_of(segment, log_end_offset)
            aborted = self.aborted_transactions(offset, upper, segment, wait=wait, max_count=MAX_ABORTED_IN_READ)
            # a consumer takes for committed what no listed transaction covers: so send fewer records, never list fewer
            if len(aborted) == MAX_ABORTED_IN_READ:
                cut_position = self._position_behind(aborted[-1], segment, wait=wait)
                if position < cut_position < end_position:
                    end_position, end_offset = cut_position, aborted[-1].last_offset + 1
                    upper = end_offset
                aborted = self.aborted_transactions(offset, upper, segment, wait=wait)
            read.aborted_transactions = aborted
        if end_offset >= 0:
            self._record_end(segment, end_position, end_offset)
        assert end_position <= segment.size, f"a read up to byte {end_position} of {segment}"
        read.next_offset = end_offset
        read.size_bytes = end_position - position
        read.region = PinnedRegion(segment.log, position, end_position - position)

    def _position_behind(self, aborted: AbortedTransaction, segment: Segment, *, wait: bool) -> int:
        """Return the position of the batch after an abort marker, or -1 if it is not in this segment."""
        found = self.locate(aborted.last_offset + 1, wait=wait)
        return found[1] if found is not None and found[0] is segment else -1

    def _available(
        self, segment: Segment, position: int, limit: int, log_end_offset: int, *, wait: bool
    ) -> tuple[int, int]:
        """Return the number of bytes of `segment` from `position` to the limit, and the offset at which they end."""
        if limit == log_end_offset:
            if segment is self.segments.active:
                return segment.size - position, limit
        else:
            end = self.locate(limit, wait=wait)
            if end is not None and end[0] is segment:
                return end[1] - position, limit
        following = self.segments.after(segment)
        return segment.size - position, following.base_offset if following is not None else limit

    def _first_batch(self, segment: Segment, position: int, *, wait: bool) -> tuple[int, int]:
        batch = next(segment.scan(position, wait=wait))
        return batch.end_position, batch.last_offset + 1

    def _record_end(self, segment: Segment, end_position: int, end_offset: int) -> None:
        """Cache where the next read begins: at end_position, or at the start of the next segment.

        A next segment that the cleaner has emptied is not cached: the records to read lie after it.
        """
        if end_position == segment.size:
            following = self.segments.after(segment)
            if following is not None:
                if following.base_offset == end_offset and (following.size or following is self.segments.active):
                    self.known.remember(end_offset, following, 0)
                return
        self.known.remember(end_offset, segment, end_position)

    def aborted_transactions(
        self, start_offset: int, end_offset: int, segment: Segment, *, wait: bool, max_count: int | None = None
    ) -> list[AbortedTransaction]:
        """Return the aborted transactions that overlap [start_offset, end_offset), in the order of their markers.

        The search begins at `segment`. max_count: return at most the first this many.
        """
        aborted: list[AbortedTransaction] = []
        following: Segment | None = segment
        while following is not None:
            count = None if max_count is None else max_count - len(aborted)
            found, is_complete = following.txn_index.overlapping(start_offset, end_offset, wait=wait, max_count=count)
            aborted += found
            if is_complete or len(aborted) == max_count:
                break
            following = self.segments.after(following)
        return aborted
