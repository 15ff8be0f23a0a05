"""Responses that a connection keeps until earlier ones have come: their memory, and their regions of files."""

from typing import TYPE_CHECKING

from kafkapy.named_tuple import NamedTuple
from kafkapy.seams import FileRegion

if TYPE_CHECKING:
    from kafkapy.protocol.primitives import Writer


class Together(NamedTuple):
    """Responses, with their size prefixes, to requests that were served together."""

    frame_count: int
    responses: bytes


def memory_of(response: "Writer | Together | None") -> int:
    """Return how many bytes a response has in memory; None is that of a request without one."""
    if response is None:
        return 0
    if isinstance(response, Together):
        return len(response.responses)
    payloads = [payload for _, payload in response.splices if not isinstance(payload, FileRegion)]
    return len(response) + sum(map(len, payloads))


def regions_of(response: "Writer | Together | None") -> list[FileRegion]:
    """Return the regions of files that belong to a response."""
    if response is None or isinstance(response, Together):
        return []
    return [payload for _, payload in response.splices if isinstance(payload, FileRegion)]


def discard(response: "Writer | None") -> None:
    """Release the regions of a response that is not sent."""
    for region in regions_of(response):
        region.release()
