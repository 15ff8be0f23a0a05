"""Responses that are read instead of being sent release the segments that they kept."""

from typing import Any

import pytest

from kafkapy.embedded.responses import joined
from kafkapy.protocol.primitives import Writer
from kafkapy.seams import FileRegion


class StoredBytes:
    """A seams.File of so many zeros, as far as a region reads it. None: its disk has failed."""

    def __init__(self, size: int | None) -> None:
        self._size = size

    def pread(self, length: int, position: int) -> bytes:
        if self._size is None:
            raise OSError("the disk has failed")
        return bytes(self._size)[position : position + length]


def response_of(file: Any, released: list[str]) -> Writer:
    response = Writer()
    response += b"head"
    response.splices.append((4, FileRegion(file, 0, 3, lambda: released.append("released"))))
    return response


def test_a_frame_that_is_read_releases_its_region() -> None:
    released: list[str] = []
    assert joined(response_of(StoredBytes(10), released)) == b"head\0\0\0"
    assert released == ["released"]


def test_a_region_that_cannot_be_read_is_released() -> None:
    released: list[str] = []
    with pytest.raises(OSError, match="the disk has failed"):
        joined(response_of(StoredBytes(None), released))
    assert released == ["released"]
