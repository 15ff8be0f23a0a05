"""Headers of the batches in a region of a file, read in windows, as share partitions need them.

Only the first record of a control batch is decoded, to see whether it is an abort marker.
"""

from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import (
    BATCH_HEADER,
    CONTROL_FLAG,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_MESSAGE_BYTES,
    TRANSACTIONAL_FLAG,
)
from kafkapy.record.control import ControlType
from kafkapy.record.varint import read_varint
from kafkapy.seams import FileRegion
from kafkapy.share.fetched import FetchedBatch
from kafkapy.storage.errors import NeedsWarming

WINDOW_BYTES: Final = 16 * 1024
"""The size of a window: some hundred small batches, or the header of a large one."""
_MARKER_BYTES: Final = HEADER_BYTES + 17
"""The length of a control batch up to the end of its marker's key."""


class LocatedBatch(NamedTuple):
    """A batch, and its position in the region."""

    batch: FetchedBatch
    position: int
    size_bytes: int


class HeaderScan:
    """Reads the headers of a region up to an offset; after NeedsWarming it continues where it stopped."""

    __slots__ = ("_end_offset", "_position", "_region", "_window", "_window_position", "batches")

    def __init__(self, region: FileRegion, end_offset: int) -> None:
        """The scan ends with the batch that has end_offset - 1, or with the region."""
        self._region = region
        self._end_offset = end_offset
        self._position = 0
        self._window = b""
        self._window_position = 0
        self.batches: list[LocatedBatch] = []

    def run(self, max_batches: int) -> bool:
        """Read the headers of at most so many more batches; return whether these were the last.

        Raises NeedsWarming if it would block: run again after warming.
        """
        length, stop_at = self._region.length, len(self.batches) + max_batches
        while length - self._position >= LOG_OVERHEAD_BYTES + MIN_MESSAGE_BYTES:
            if len(self.batches) == stop_at:
                return False
            at = self._position - self._window_position
            if len(self._window) - at < min(_MARKER_BYTES, length - self._position):
                self._read_window(length)
                at = 0
            size_bytes = int.from_bytes(self._window[at + 8 : at + 12], "big", signed=True) + LOG_OVERHEAD_BYTES
            if not LOG_OVERHEAD_BYTES + MIN_MESSAGE_BYTES <= size_bytes <= length - self._position:
                return True  # the file was truncated meanwhile
            found = LocatedBatch(_parse(self._window, at), self._position, size_bytes)
            self.batches.append(found)
            self._position += size_bytes
            if found.batch.last_offset >= self._end_offset - 1:
                return True
        return True

    def _read_window(self, length: int) -> None:
        region = self._region
        size = min(WINDOW_BYTES, length - self._position)
        data = region.file.pread_nowait(size, region.position + self._position)
        if data is None:
            raise NeedsWarming(region.file, region.position + self._position, size)
        self._window, self._window_position = data, self._position


def _parse(window: bytes, at: int) -> FetchedBatch:
    if window[at + MAGIC_POSITION] != 2:  # magic 0 or 1: the offset is that of the last compressed message
        offset = int.from_bytes(window[at : at + 8], "big", signed=True)
        return FetchedBatch(offset, offset)
    header = BATCH_HEADER.unpack_from(window, at)
    base_offset, _, _, _, _, attributes, last_delta, _, _, producer_id, _, _, record_count = header
    has_marker = bool(attributes & CONTROL_FLAG) and record_count > 0  # the cleaner may have left only the header
    return FetchedBatch(
        base_offset,
        base_offset + last_delta,
        producer_id,
        is_transactional=bool(attributes & TRANSACTIONAL_FLAG),
        is_abort_marker=has_marker and _is_abort(window, at + HEADER_BYTES),
    )


def _is_abort(window: bytes, at: int) -> bool:
    """Return whether the record at `at`, the first of a control batch, is the marker of an aborted transaction."""
    try:
        _, at = read_varint(window, at)  # the record's length
        at += 1  # attributes
        for _ in range(3):  # timestamp delta, offset delta, length of the key
            _, at = read_varint(window, at)
    except IndexError:
        return False
    key = window[at : at + 4]
    return len(key) == 4 and int.from_bytes(key[2:], "big", signed=True) == ControlType.ABORT
