"""What a crash left in a log's directory: files that wait for deletion, segments that were about to be replaced.

The cleaner and the split of a segment replace segments by files that are called .cleaned until all of them are written,
.swap until the old ones are gone. So .swap files are the log's where no .cleaned one tells that a part is missing.
"""

import logging
from collections.abc import Iterable
from typing import Final

from kafkapy.config.log import LogConfig
from kafkapy.record.errors import RecordsError
from kafkapy.storage.file_names import (
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    LOG_SUFFIX,
    RAFT_SNAPSHOT_DELETED_SUFFIX,
    SWAP_SUFFIX,
    offset_of,
)
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.storage.segment.scan import scan_batches
from kafkapy.storage.segment.segment import Segment

logger = logging.getLogger("kafkapy.storage")

SUFFIXES: Final = (DELETED_SUFFIX, CLEANED_SUFFIX, SWAP_SUFFIX)


def finish_interrupted_work(files: OpenFiles, directory: str, config: LogConfig, *, now_ms: int) -> None:
    """Delete what waits for deletion, complete swaps that had everything in place, undo those that had not.

    Blocks. Raises OSError.
    """
    if any(name.endswith(SUFFIXES) for name in files.disk.list_directory(directory)):
        _InterruptedWork(files, directory, config, now_ms).finish()


class _InterruptedWork:
    def __init__(self, files: OpenFiles, directory: str, config: LogConfig, now_ms: int) -> None:
        self._files = files
        self._disk = files.disk
        self._directory = directory
        self._config = config
        self._now_ms = now_ms

    def finish(self) -> None:
        names = self._disk.list_directory(self._directory)
        cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
        swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
        min_cleaned_offset = min((offset_of(name) or 0 for name in cleaned), default=None)
        # a swap beside a .cleaned file at or below it belongs to a split that did not get all its parts ready
        incomplete = [
            name for name in swaps if min_cleaned_offset is not None and (offset_of(name) or 0) >= min_cleaned_offset
        ]
        for name in (*incomplete, *cleaned):  # in this order: what is .cleaned tells after another crash, too
            self._delete(name)
        for name in names:
            if name.endswith(DELETED_SUFFIX) and not name.endswith(RAFT_SNAPSHOT_DELETED_SUFFIX):
                self._delete(name)
        self._complete_swaps([name for name in swaps if name not in incomplete])

    def _delete(self, name: str) -> None:
        self._disk.delete(f"{self._directory}/{name}")

    def _complete_swaps(self, swaps: list[str]) -> None:
        """Take swapped segments over: the segments they replace go first, then the suffix does."""
        ranges = [self._offsets_of_swap(name) for name in swaps if name.endswith(LOG_SUFFIX + SWAP_SUFFIX)]
        if ranges:
            first, end = min(start for start, _ in ranges), max(end for _, end in ranges)
            first = self._start_of_replaced(first)
            for name in self._disk.list_directory(self._directory):
                offset = offset_of(name)
                if offset is not None and not name.endswith(SWAP_SUFFIX) and first <= offset < end:
                    logger.info("Deleting %s in %s, which was replaced", name, self._directory)
                    self._delete(name)
        for name in swaps:
            logger.info("Recovering file %s in %s by renaming", name, self._directory)
            path = f"{self._directory}/{name}"
            self._disk.rename(path, path[: -len(SWAP_SUFFIX)])

    def _offsets_of_swap(self, name: str) -> tuple[int, int]:
        """Return base offset and end offset of a .log.swap, by reading it.

        One in which nothing was left still replaces the segment at its base offset, whose indexes must not stay.
        """
        base_offset = offset_of(name) or 0
        ends = [end for _, end in self._batches_of(base_offset, SWAP_SUFFIX)]
        return base_offset, ends[-1] if ends else base_offset + 1

    def _start_of_replaced(self, first: int) -> int:
        """Return where the segments that a swap from `first` on replaces begin.

        A segment that is split may begin before its first batch, where the first part does. It is told from the one
        before it by holding no batch below that.
        """
        names = self._disk.list_directory(self._directory)
        below = [offset_of(name) or 0 for name in names if name.endswith(LOG_SUFFIX) and (offset_of(name) or 0) < first]
        if not below:
            return first
        try:
            start, _ = next(iter(self._batches_of(max(below), "")), (-1, -1))
        except RecordsError:
            return first
        return max(below) if start >= first else first

    def _batches_of(self, base_offset: int, suffix: str) -> Iterable[tuple[int, int]]:
        """Yield (base offset, end offset) of the batches in a segment's file."""
        segment = Segment(self._files, self._directory, base_offset, self._config, now_ms=self._now_ms, suffix=suffix)
        segment.size = segment.log.file.size()
        try:
            for scanned in scan_batches(segment, 0):
                yield scanned.header.base_offset, scanned.header.last_offset + 1
        finally:
            segment.log.close()
