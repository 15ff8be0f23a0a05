"""Read the batches of a segment sequentially, a chunk at a time, for recovery. Blocks."""

from collections.abc import Iterator
from typing import Final

from kafkapy.named_tuple import NamedTuple
from kafkapy.record.batch import LOG_OVERHEAD_BYTES, BatchHeader
from kafkapy.record.batches import scan_headers
from kafkapy.storage.segment.segment import Segment

CHUNK_BYTES: Final = 1 << 20


class ScannedBatch(NamedTuple):
    """A batch found in a segment: its header, the chunk that holds its bytes, and its position in the segment."""

    header: BatchHeader
    chunk: bytes
    position: int


def scan_batches(segment: Segment, start: int, end: int | None = None) -> Iterator[ScannedBatch]:
    """Yield the whole batches from position `start` (a batch's start) to `end`, reading a chunk at a time. Blocks.

    Stops before an incomplete batch. Raises CorruptRecordError if a batch header is invalid.
    """
    end = segment.size if end is None else end
    length = CHUNK_BYTES
    while start < end:
        chunk = segment.log.file.pread(min(length, end - start), start)
        read_to = 0
        for header in scan_headers(chunk):
            read_to = header.position + header.size_bytes
            yield ScannedBatch(header, chunk, start + header.position)
        if read_to == 0:
            length = LOG_OVERHEAD_BYTES + int.from_bytes(chunk[8:12], "big", signed=True)
            if length <= len(chunk) or length > end - start:
                return  # cut short
            continue
        start += read_to
        length = CHUNK_BYTES
