"""Forwards a write to the leading registry, and returns its response."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final

from kafkapy.registry.election import Identity
from kafkapy.registry.errors import LeaderUnreachableError, forwarding_failed

TIMEOUT_S: Final = 30.0
"""The time for the leader's response."""
CONNECT_S: Final = 5.0
"""Less than a session: if the leader's host is gone, a thread waits for so long."""
FORWARDED: Final = "x-forward"
"""The header of forwarded requests, which are not forwarded again. Confluent's registries have it, too."""
PASSED_ON: Final = ("authorization", "content-type", "accept")


def forward(
    leader: Identity,
    request: tuple[str, str, bytes],
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
) -> tuple[int, bytes]:
    """Return the leader's status and body. `request`: method, path with query, body.

    Raises RegistryError, LeaderUnreachableError.
    """
    method, path, body = request
    passed = {name: headers[name] for name in PASSED_ON if name in headers} | {FORWARDED: "false"}
    connection: http.client.HTTPConnection
    if leader.scheme == "https":
        connection = http.client.HTTPSConnection(leader.host, leader.port, timeout=CONNECT_S, context=context)
    else:
        connection = http.client.HTTPConnection(leader.host, leader.port, timeout=CONNECT_S)
    text = f"Error while forwarding the request to the leader at {leader.url}"
    try:
        connection.connect()  # apart from the request: until here nothing was sent, and the caller may try again
    except OSError as error:
        raise LeaderUnreachableError(f"{text}: {error}") from error
    connection.sock.settimeout(TIMEOUT_S)
    try:
        connection.request(method, path, body or None, passed)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise forwarding_failed(f"{text}: {error}") from error
    finally:
        connection.close()
