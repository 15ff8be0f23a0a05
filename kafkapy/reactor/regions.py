"""How a region of a file is best sent: whether it is in the page cache, and a small one's bytes."""

from kafkapy.reactor.limits import PROBE_STRIDE_BYTES, SENDFILE_FROM_BYTES
from kafkapy.seams import File, FileRegion


def read_small(region: FileRegion) -> bytes | None:
    """Return a small region's bytes if they are in the page cache: cheaper to send than by sendfile."""
    if region.length >= SENDFILE_FROM_BYTES:
        return None
    data = region.file.pread_nowait(region.length, region.position)
    if data is not None and len(data) < region.length:
        raise EOFError(f"{region.file.path} ends before position {region.position + region.length}")
    return data


def is_warm(file: File, start: int, end: int) -> bool:
    """Return whether the page cache seems to hold these bytes, asked for by one byte in each read-ahead window."""
    pread_nowait = file.pread_nowait
    if pread_nowait(1, end - 1) is None:
        return False
    return all(pread_nowait(1, position) is not None for position in range(start, end - 1, PROBE_STRIDE_BYTES))
