"""The elements of a request are counted while it is decoded: every array of every API that is served, and its tags."""

import tracemalloc
from collections.abc import Iterator

import pytest

from kafkapy.errors import ProtocolError
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.api import APIS, request_type
from kafkapy.protocol.headers import MAX_HEADER_TAGS, read_request_header, read_response_header
from kafkapy.protocol.primitives import Writer, write_uvarint
from kafkapy.runtime.decoded_requests import ELEMENT_BYTES
from tests.support.large_requests import ArrayPath, array_paths, element_count, large_request

COUNT = 40
SAMPLE = 1_000
"""Elements decoded to see what one takes."""


def arrays() -> Iterator[tuple[int, int, ArrayPath]]:
    for row in BROKER_APIS.values():
        for version in range(row.served_min, row.max_version + 1):
            for path in array_paths(row.api_key, version):
                yield row.api_key, version, path


@pytest.mark.parametrize("is_wide", [False, True])
def test_every_array_of_every_request_is_counted(is_wide: bool) -> None:
    for api_key, version, path in arrays():
        request = large_request(api_key, version, path, COUNT, is_wide=is_wide)
        data, count = request.encode(version), element_count(path, COUNT, is_wide=is_wide)
        type(request).read(data, 0, version, count)
        with pytest.raises(ProtocolError, match="array entries or tagged fields, where"):
            type(request).read(data, 0, version, count - 1)


def test_requests_at_their_bounds_take_less_than_48_mib_when_decoded() -> None:
    """Beside their bytes; so much more is left for the response that it stays below 64 MiB."""
    for row in BROKER_APIS.values():
        for path in array_paths(row.api_key, row.max_version):
            data = large_request(row.api_key, row.max_version, path, SAMPLE).encode(row.max_version)
            request_class = request_type(row.api_key)
            tracemalloc.start()
            request, _ = request_class.read(data, 0, row.max_version)
            taken_bytes, _ = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert request is not None
            at_bound = taken_bytes * row.max_elements / SAMPLE
            assert taken_bytes < SAMPLE * ELEMENT_BYTES * 3 / 4, f"{APIS[row.api_key].name} {path}"
            assert at_bound < 48 << 20, f"{APIS[row.api_key].name} {path}: {at_bound / (1 << 20):.0f} MiB"


def test_tagged_fields_of_every_request_are_counted() -> None:
    for row in BROKER_APIS.values():
        version = row.max_version
        if version < APIS[row.api_key].flexible_from:
            continue
        request = large_request(row.api_key, version, (), 0)
        request.unknown_tagged_fields = {1000 + tag: b"" for tag in range(COUNT)}
        data = request.encode(version)
        type(request).read(data, 0, version, COUNT)
        with pytest.raises(ProtocolError, match="40 more array entries or tagged fields, where 39 more are allowed"):
            type(request).read(data, 0, version, COUNT - 1)


def test_tagged_fields_of_headers_are_counted() -> None:
    def tags(count: int) -> bytes:
        out = Writer()
        write_uvarint(out, count)
        for tag in range(count):
            write_uvarint(out, tag)
            out.append(0)
        return bytes(out)

    request, response = bytes.fromhex("0012 0003 00000007 ffff"), bytes.fromhex("00000007")
    most, too_many = tags(MAX_HEADER_TAGS), tags(MAX_HEADER_TAGS + 1)
    assert read_request_header(memoryview(request + most))[1] == len(request + most)
    assert read_response_header(response + most, 3, 9) == (7, len(response + most))
    with pytest.raises(ProtocolError, match=r"1001 more .* 1000 more are allowed"):
        read_request_header(memoryview(request + too_many))
    with pytest.raises(ProtocolError, match=r"1001 more .* 1000 more are allowed"):
        read_response_header(response + too_many, 3, 9)
