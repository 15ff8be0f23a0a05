"""DescribeConfigs responses written in pieces that resources share: the bytes are those of the generated codec."""

import pytest

from kafkapy.handlers.configs import shared_rows
from kafkapy.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from kafkapy.protocol.primitives import EncodeError, Writer


def rows_of(count: int, value: str | None) -> list[DescribeConfigsResourceResult]:
    return [
        DescribeConfigsResourceResult(f"key.{number}", value=value, synonyms=[DescribeConfigsSynonym("s", value=value)])
        for number in range(count)
    ]


def response_of(resource_count: int, version: int) -> DescribeConfigsResponse:
    """Resources with shared configs, with their own, with few, with none, and with an error."""
    shared = rows_of(150, "x")
    kinds = [lambda: shared, lambda: rows_of(40, None), lambda: rows_of(1, "y"), list]
    results = [
        DescribeConfigsResult(
            error_code=number % 5,
            error_message=None if number % 2 else "message " * number,
            resource_type=32,
            resource_name=f"group-{number}" * (1 + number % 30),
            configs=kinds[number % 4](),
        )
        for number in range(resource_count)
    ]
    return DescribeConfigsResponse(throttle_time_ms=77, results=results)


@pytest.mark.parametrize("version", range(1, 5))
@pytest.mark.parametrize("resource_count", [0, 1, 4, 127, 200])
def test_pieces_are_the_bytes_of_the_whole(resource_count: int, version: int) -> None:
    response = response_of(resource_count, version)
    out = Writer()
    out += b"header"
    shared_rows.write(out, response, version)
    assert out.joined() == b"header" + response.encode(version)
    shared = [payload for _, payload in out.splices if len(payload) > 2_000]
    assert len(shared) == (resource_count + 3) // 4
    assert len({id(payload) for payload in shared}) <= 1


def test_a_name_too_long_for_its_field_is_refused_and_leaves_nothing() -> None:
    response = response_of(3, 4)
    response.results[2].resource_name = "x" * 40_000
    out = Writer()
    with pytest.raises(EncodeError):
        shared_rows.write(out, response, 4)
    assert (bytes(out), out.splices) == (b"", [])
