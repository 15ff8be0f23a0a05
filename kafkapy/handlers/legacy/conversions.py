"""Runs conversions for old clients within the memory limit of heavy work; results count against a share of it.

The result of a Fetch conversion stays in memory until the peer has read it. It is sent as a region of an in-memory
file, whose release returns the bytes to the limit.
"""

from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from kafkapy.record.errors import RecordTooLargeError
from kafkapy.runtime.pool import SMALL_WORK_BYTES, HeavyWork
from kafkapy.seams import FileRegion, ReadableBuffer

T = TypeVar("T")

SMALL_INPUT_BYTES: Final = 1 << 20
SMALL_INFLATED_BYTES: Final = 2 << 20
"""The limit of a first try as small work: reading, inflating and compressing needs SMALL_WORK_BYTES at most."""


async def run_conversion(
    heavy_work: HeavyWork, convert: Callable[[int], T], *, input_bytes: int, inflated_bytes: int, needed_bytes: int
) -> T:
    """Run `convert(max_inflated_bytes)` on a worker, as small work if that is enough.

    inflated_bytes: the maximum inflated size of a batch; needed_bytes: the memory for that. Raises what `convert` does.
    """
    if input_bytes <= SMALL_INPUT_BYTES:
        try:
            return await heavy_work.run(lambda: convert(SMALL_INFLATED_BYTES), SMALL_WORK_BYTES)
        except RecordTooLargeError:
            pass
    return await heavy_work.run(lambda: convert(inflated_bytes), needed_bytes)


def region_of(data: bytes, on_release: Callable[[], None]) -> FileRegion:
    """Return a region over bytes in memory."""
    return FileRegion(_BytesFile(data), 0, len(data), on_release)


class _BytesFile:
    """A read-only seams.File over bytes."""

    __slots__ = ("_data",)

    path = "(converted messages)"

    def __init__(self, data: bytes) -> None:
        self._data = data

    def pread(self, length: int, position: int) -> bytes:
        return self._data[position : position + length]

    pread_nowait = pread

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        return min(length, len(self._data) - position), False

    def size(self) -> int:
        return len(self._data)

    def fileno(self) -> int:
        return -1

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        raise AssertionError("this file is only read")

    def truncate(self, size: int) -> None:
        raise AssertionError("this file is only read")

    def sync(self) -> None:
        raise AssertionError("this file is only read")

    def close(self) -> None:
        return
