"""Decide how to send a file region: probe whether it is in the page cache, and read the bytes of a small one."""

from kafkapy.reactor.limits import PROBE_STRIDE_BYTES, SENDFILE_FROM_BYTES
from kafkapy.seams import File, FileRegion


def read_small(region: FileRegion) -> bytes | None:
    """Return a small region's bytes if they are in the page cache, which is cheaper than sendfile; otherwise None."""
    if region.length >= SENDFILE_FROM_BYTES:
        return None
    data = region.file.pread_nowait(region.length, region.position)
    if data is not None and len(data) < region.length:
        raise EOFError(f"{region.file.path} ends before position {region.position + region.length}")
    return data


def is_warm(file: File, start: int, end: int) -> bool:
    """Return whether the page cache seems to hold [start, end), by probing a byte every PROBE_STRIDE_BYTES."""
    pread_nowait = file.pread_nowait
    if pread_nowait(1, end - 1) is None:
        return False
    for position in range(start, end - 1, PROBE_STRIDE_BYTES):  # noqa: SIM110  a generator costs a call a probe
        if pread_nowait(1, position) is None:
            return False
    return True
