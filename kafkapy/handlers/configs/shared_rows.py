"""Writes a DescribeConfigs response in which equal configs are one object in memory, however many resources have them.

Groups that are not there have the same configs, each 2 KB with the documentation: 15,000 of them are 32 MiB on the
wire, and less than 4 MiB in memory, while they are unread. The bytes are the generated codec's: a piece is encoded as
the one result of a response, and cut out of it.
"""

from typing import Final

from kafkapy.protocol.connection import MIN_SHARED_BYTES
from kafkapy.protocol.messages.describe_configs_response import (
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kafkapy.protocol.primitives import Writer, write_uvarint

FLEXIBLE_SINCE: Final = 4


def write(out: Writer, response: DescribeConfigsResponse, version: int) -> None:
    """Append the response. Raises EncodeError."""
    whole = DescribeConfigsResponse(response.throttle_time_ms).encode(version)
    pieces = _Pieces(version)
    begin = whole[: len(whole) - pieces.end_bytes - pieces.count_bytes]
    start = len(out)
    spliced = len(out.splices)
    try:
        out += begin
        pieces.write_count(out, len(response.results))
        for result in response.results:
            out += pieces.head(result)
            rows = pieces.rows(result.configs)
            if len(rows) >= MIN_SHARED_BYTES:
                out.splices.append((len(out), rows))
            else:
                out += rows
        out += whole[len(whole) - pieces.end_bytes :]
    except BaseException:
        del out[start:], out.splices[spliced:]
        raise


class _Pieces:
    """Encodes the parts of a response's results at one version."""

    def __init__(self, version: int) -> None:
        self._version = version
        is_flexible = version >= FLEXIBLE_SINCE
        self.count_bytes = 1 if is_flexible else 4
        self.end_bytes = 1 if is_flexible else 0
        """The tagged fields of the response; of each result as many."""
        self._begin = len(DescribeConfigsResponse().encode(version)) - self.end_bytes
        self._rows: dict[int, bytes] = {}
        """By the identity of the list, which its result keeps."""
        self._rows_at = len(self.head(DescribeConfigsResult()))

    def write_count(self, out: Writer, count: int) -> None:
        if self._version >= FLEXIBLE_SINCE:
            write_uvarint(out, count + 1)
        else:
            out += count.to_bytes(4, "big")

    def head(self, result: DescribeConfigsResult) -> bytes:
        """Return what precedes the configs of a result."""
        bare = DescribeConfigsResult(
            result.error_code,
            error_message=result.error_message,
            resource_type=result.resource_type,
            resource_name=result.resource_name,
        )
        encoded = self._encode(bare)
        return encoded[: len(encoded) - self.count_bytes - self.end_bytes]

    def rows(self, rows: list[DescribeConfigsResourceResult]) -> bytes:
        """Return the configs of a result, with their count, and what follows them."""
        found = self._rows.get(id(rows))
        if found is None:
            found = self._encode(DescribeConfigsResult(configs=rows))[self._rows_at :]
            if len(found) >= MIN_SHARED_BYTES:
                self._rows[id(rows)] = found
        return found

    def _encode(self, result: DescribeConfigsResult) -> bytes:
        encoded = DescribeConfigsResponse(results=[result]).encode(self._version)
        return encoded[self._begin : len(encoded) - self.end_bytes]
