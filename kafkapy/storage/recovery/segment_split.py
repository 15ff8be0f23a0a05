"""Split a segment whose offsets overflow its indexes: more than 2**31 - 1 above its base offset.

Only brokers before 1.1 wrote such segments, by cleaning a log with wide gaps (KAFKA-6264). Loading splits them; a crash
is safe at any step:

    .cleaned    each part is written and synced                 after a crash: all .cleaned files are deleted
    .swap       the parts are renamed, the last one first       .swap files above a .cleaned one are deleted, too
    .deleted    the files of the old segment are renamed        all parts are complete: loading finishes the split
    (none)      the parts are renamed                           as above

The renames need no sync: after a crash the names are in one of these states, and the next flush syncs them. Parts begin
at the same offsets as in Apache Kafka's LocalLog.splitOverflowedSegment. They have no indexes, so loading reads them.
Deviation: Apache Kafka writes their offset and time indexes at once, but no transaction index. Here loading makes all
of them, because it has to read the parts anyway.
"""

import logging
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.record.batches import batch_at, has_valid_crc
from kafkapy.record.errors import RecordsError
from kafkapy.seams import Disk
from kafkapy.storage.file_names import CLEANED_SUFFIX, DELETED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, segment_file
from kafkapy.storage.segment.scan import ScannedBatch, scan_batches
from kafkapy.storage.segment.segment import Segment
from kafkapy.types import INT32_MAX

logger = logging.getLogger("kafkapy.storage")

CHUNK_BYTES: Final = 4 << 20


@dataclass(slots=True)
class Part:
    """Batches of a segment that fit one new segment: the bytes from `position` to `end_position`."""

    base_offset: int
    position: int
    end_position: int
    last_offset: int
    batch_count: int = 0


def overflows(segment: Segment) -> bool:
    """Return whether the last offset of a segment overflows its indexes. Blocks."""
    try:
        return segment.read_next_offset() - 1 - segment.base_offset > INT32_MAX
    except RecordsError:
        return False


def find_parts(segment: Segment, next_base_offset: int | None) -> list[Part]:
    """Return the parts of a segment, up to its first invalid batch; fewer than two if it cannot be split.

    next_base_offset: of the following segment. No checksum covers a batch's base offset, so a large jump is accepted
    only if the following offsets are above it, too. Blocks. Raises OSError.
    """
    parts: list[Part] = []
    try:
        for scanned in scan_batches(segment, 0):
            header = scanned.header
            if not 0 <= header.base_offset <= header.last_offset:
                break
            if not has_valid_crc(scanned.chunk, header.position, header.size_bytes):
                break
            if parts and header.base_offset <= parts[-1].last_offset:
                # Which of the two base offsets is damaged cannot be told if the part before is a single batch.
                if parts[-1].batch_count == 1:
                    parts.pop()
                break
            _add_part(scanned, parts)
    except RecordsError as error:
        logger.warning("%s: %s", segment.log.path, error)
    if parts and next_base_offset is not None and parts[-1].last_offset >= next_base_offset:
        parts.pop()
    return parts


def _add_part(scanned: ScannedBatch, parts: list[Part]) -> None:
    """Add a batch to the last part, or to a new one if it does not fit."""
    header = scanned.header
    if not parts or header.last_offset - parts[-1].base_offset > INT32_MAX:
        base_offset = batch_at(scanned.chunk, header.position).base_offset  # of an old wrapper: its first message's
        parts.append(Part(base_offset, scanned.position, scanned.position, header.last_offset))
    parts[-1].end_position += header.size_bytes
    parts[-1].last_offset = header.last_offset
    parts[-1].batch_count += 1


def split(disk: Disk, directory: str, segment: Segment, parts: list[Part]) -> None:
    """Replace a segment by its parts; its own files are renamed to .deleted.

    Invalid data after the last part is copied with that part. Blocks. Raises OSError.
    """
    assert parts[0].base_offset == segment.base_offset or parts[0].position == 0, f"{segment} keeps its first batch"
    assert parts[-1].end_position <= segment.size, f"parts of {segment} end at byte {parts[-1].end_position}"
    logger.info("Splitting overflowed segment %s", segment.log.path)
    parts[-1].end_position = segment.size
    paths = [segment_file(directory, part.base_offset, LOG_SUFFIX) for part in parts]
    try:
        for part, path in zip(parts, paths, strict=True):
            _copy(disk, segment, part, path + CLEANED_SUFFIX)
    except OSError:
        for path in paths:
            disk.delete(path + CLEANED_SUFFIX)
        raise
    logger.info("Replacing overflowed segment %s with split segments %s", segment.log.path, ", ".join(paths))
    for path in reversed(paths):
        disk.rename(path + CLEANED_SUFFIX, path + SWAP_SUFFIX)
    segment.rename_suffix("", DELETED_SUFFIX)
    for path in paths:
        disk.rename(path + SWAP_SUFFIX, path)


def _copy(disk: Disk, segment: Segment, part: Part, path: str) -> None:
    """Write a part to its own file and sync it, with the segment's modification time."""
    file = disk.open(path, create=True)
    try:
        for position in range(part.position, part.end_position, CHUNK_BYTES):
            data = segment.log.file.pread(min(CHUNK_BYTES, part.end_position - position), position)
            file.pwrite((data,), position - part.position)
        file.sync()
    finally:
        file.close()
    disk.set_modified_ms(path, disk.modified_ms(segment.log.path))
