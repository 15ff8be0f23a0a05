"""Sends the file regions of one connection, each part once it is in the page cache: sendfile must not block."""

from collections.abc import Callable, Iterable

from kafkapy.reactor.limits import PROBED_BYTES, SENDFILE_BYTES
from kafkapy.reactor.read_ahead import ReadAhead
from kafkapy.seams import Channel, FileRegion

OnWarmed = Callable[[BaseException | None], None]
"""Called on the loop when the bytes to be sent next are in the page cache, or with the error of reading them."""


class RegionSender:
    """Sends regions one after the other. `warming` is the region that a worker reads: until then nothing is sent."""

    __slots__ = ("_channel", "_is_closed", "_probed", "_read_ahead", "_warm_until", "warming")

    def __init__(self, channel: Channel, read_ahead: ReadAhead) -> None:
        self._channel = channel
        self._read_ahead = read_ahead
        self._probed: FileRegion | None = None
        self._warm_until = 0  # the probed region is in the page cache up to here
        self._is_closed = False
        self.warming: FileRegion | None = None

    def send(self, region: FileRegion, start: int, on_warmed: OnWarmed) -> tuple[int, int]:
        """Send part of a region from `start` on; return bytes requested and sent; (0, 0) if it must be warmed first."""
        if region is not self._probed:
            self._probed, self._warm_until = region, 0
        count = min(region.length - start, SENDFILE_BYTES)
        if start + count > self._warm_until:
            first = region.position + max(start, self._warm_until)
            end = region.position + min(start + PROBED_BYTES, region.length)
            self._warm_until = self._read_ahead.warm_end(region.file, first, end) - region.position
            count = min(count, self._warm_until - start)
            if not count:
                self._warm(region, start, on_warmed)
                return 0, 0
        return count, self._channel.send_region(region, start, count)

    def _warm(self, region: FileRegion, start: int, on_warmed: OnWarmed) -> None:
        """Load the region's next bytes into the page cache on a worker."""
        self.warming = region

        def warmed(warm_end: int, error: BaseException | None) -> None:
            self.warming = None
            if self._is_closed:
                region.release()  # not released in close(), because the worker was reading the file
                return
            if error is None:
                self._warm_until = max(warm_end - region.position, start)
            on_warmed(error)

        self._read_ahead.wait(region.file, region.position + start, warmed)

    def close(self, regions: Iterable[FileRegion]) -> None:
        """Release the regions that will not be sent; the one that a worker reads is released after that."""
        self._is_closed = True
        for region in regions:
            if region is not self.warming:
                region.release()
