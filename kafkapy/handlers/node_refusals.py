"""Logs the requests of other nodes that are refused because of who sent them, with the peer's address.

A node retries ten times a second, and anybody may connect. So the same refusal is logged once in LOGGED_AGAIN_MS, and
at most MAX_LINES different ones in that time. The lines contain no text that the peer has sent.
"""

import logging
from typing import Any, Final

from kafkapy.handlers.context import Connection
from kafkapy.protocol.api import APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.seams import Clock

LOGGED_AGAIN_MS: Final = 60_000
MAX_LINES: Final = 100
"""Different refusals that are logged in that time: anybody may cause them."""
CODES: Final = frozenset(
    (
        ErrorCode.BROKER_ID_NOT_REGISTERED,
        ErrorCode.DUPLICATE_BROKER_REGISTRATION,
        ErrorCode.INCONSISTENT_CLUSTER_ID,
        ErrorCode.INVALID_REGISTRATION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_VOTER_KEY,
        ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE,
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.UNSUPPORTED_VERSION,
    )
)
"""Errors of a whole request that an operator must know of: a wrong address, an id or a directory used twice."""

logger = logging.getLogger(__name__)


class NodeRefusals:
    """The refusals logged in the current period of LOGGED_AGAIN_MS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began_ms = clock.monotonic_ms()
        self._logged: set[tuple[str, int, int]] = set()
        """(host, API key, error code)."""

    def on_response(self, header: RequestHeader, connection: Connection, response: Any) -> None:
        """Log the error of a response, if it has one that is about the node that sent the request."""
        code: int = response.error_code
        if not code:  # of a quorum's election
            code = response.topics[0].partitions[0].error_code
        self.log(header, connection, code)

    def log(self, header: RequestHeader, connection: Connection, code: int) -> None:
        """Log an error of a whole request if it is one of CODES."""
        if code not in CODES:
            return
        now_ms = self._clock.monotonic_ms()
        if now_ms - self._began_ms >= LOGGED_AGAIN_MS:
            self._began_ms = now_ms
            self._logged.clear()
        key = (connection.peer_host, header.api_key, code)
        if key in self._logged or len(self._logged) >= MAX_LINES:
            return
        self._logged.add(key)
        name = APIS[header.api_key].request_name.removesuffix("Request")
        logger.warning("Refused %s of %s: %s", name, connection.connection_id, ErrorCode(code).name)
