"""Crash cleanup in a log's directory: files pending deletion, and interrupted replacements of segments.

The cleaner and the split of a segment write new files as .cleaned, rename them to .swap when all are complete, and
remove .swap after the old files are gone. So .swap files are valid unless a .cleaned file shows that a part is missing.
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


def clean_up_after_crash(files: OpenFiles, directory: str, names: list[str], config: LogConfig, *, now_ms: int) -> bool:
    """Delete files pending deletion, complete swaps whose files are all ready, undo the others.

    names: of the files in the directory. Returns whether anything was changed. Blocks. Raises OSError.
    """
    if not any(name.endswith(SUFFIXES) for name in names):
        return False
    _CrashCleanup(files, directory, config, now_ms).finish()
    return True


class _CrashCleanup:
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
        # a .swap file at or above a .cleaned file belongs to a split whose parts were not all ready
        incomplete = [
            name for name in swaps if min_cleaned_offset is not None and (offset_of(name) or 0) >= min_cleaned_offset
        ]
        for name in (*incomplete, *cleaned):  # .cleaned last: after another crash they mark .swap files as incomplete
            self._delete(name)
        for name in names:
            if name.endswith(DELETED_SUFFIX) and not name.endswith(RAFT_SNAPSHOT_DELETED_SUFFIX):
                self._delete(name)
        self._complete_swaps([name for name in swaps if name not in incomplete])

    def _delete(self, name: str) -> None:
        self._disk.delete(f"{self._directory}/{name}")

    def _complete_swaps(self, swaps: list[str]) -> None:
        """Complete swaps: delete the segments they replace, then remove the .swap suffix."""
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
        """Return the base offset and end offset of a .log.swap file, by reading it.

        An empty one still replaces the segment at its base offset, whose indexes must be deleted.
        """
        base_offset = offset_of(name) or 0
        ends = [end for _, end in self._batches_of(base_offset, SWAP_SUFFIX)]
        return base_offset, ends[-1] if ends else base_offset + 1

    def _start_of_replaced(self, first: int) -> int:
        """Return the base offset of the first segment that a swap with the base offset `first` replaces.

        It may be below `first`: a split segment's base offset may be below its first batch, where the first part
        begins. Such a segment holds no batch below `first`, unlike a segment that precedes the swap.
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
