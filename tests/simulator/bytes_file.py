"""seams.File over bytes in memory, with pages that can be cold: for tests that need no whole simulated disk."""

from collections.abc import Callable, Sequence

from kafkapy.seams import ReadableBuffer

PAGE_BYTES = 4096


class BytesFile:
    """A file that is only read. Cold pages become warm when pread reads them; `on_cold_read` is told before that."""

    def __init__(
        self,
        data: bytes,
        *,
        path: str = "/sim/file",
        is_cold: bool = False,
        on_cold_read: Callable[[], None] | None = None,
    ) -> None:
        self.data = data
        self.path = path
        self.cold_pages = set(range((len(data) + PAGE_BYTES - 1) // PAGE_BYTES)) if is_cold else set()
        self.cold_read_count = 0
        self._on_cold_read = on_cold_read

    def _pages(self, length: int, position: int) -> set[int]:
        return set(range(position // PAGE_BYTES, (position + length + PAGE_BYTES - 1) // PAGE_BYTES))

    def pread(self, length: int, position: int) -> bytes:
        cold = self.cold_pages & self._pages(length, position)
        if cold:
            self.cold_read_count += 1
            self.cold_pages -= cold
            if self._on_cold_read is not None:
                self._on_cold_read()
        return self.data[position : position + length]

    def pread_nowait(self, length: int, position: int) -> bytes | None:
        if self.cold_pages & self._pages(length, position):
            return None
        return self.data[position : position + length]

    def warm(self, length: int, position: int) -> tuple[int, bool]:
        reads_before = self.cold_read_count
        return len(self.pread(length, position)), self.cold_read_count > reads_before

    def pwrite(self, buffers: Sequence[ReadableBuffer], position: int) -> int:
        raise AssertionError("this file is only read")

    def size(self) -> int:
        return len(self.data)

    def truncate(self, size: int) -> None:
        self.data = self.data[:size]

    def sync(self) -> None:
        return

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        return
