"""A write that came to a registry which does not lead: sent to the leader, whose response is passed on."""

import http.client
import ssl
from collections.abc import Mapping
from typing import Final

from kafkapy.registry.election import Identity
from kafkapy.registry.errors import forwarding_failed

TIMEOUT_S: Final = 30.0
FORWARDED: Final = "x-forward"
"""A header of what was forwarded: it is not forwarded once more. Confluent's registries have it, too."""
PASSED_ON: Final = ("authorization", "content-type", "accept")


def forward(
    leader: Identity,
    request: tuple[str, str, bytes],
    headers: Mapping[str, str],
    context: ssl.SSLContext | None,
) -> tuple[int, bytes]:
    """Return the leader's status and body. `request`: method, path with query, body. Raises RegistryError."""
    method, path, body = request
    passed = {name: headers[name] for name in PASSED_ON if name in headers} | {FORWARDED: "false"}
    connection: http.client.HTTPConnection
    if leader.scheme == "https":
        connection = http.client.HTTPSConnection(leader.host, leader.port, timeout=TIMEOUT_S, context=context)
    else:
        connection = http.client.HTTPConnection(leader.host, leader.port, timeout=TIMEOUT_S)
    try:
        connection.request(method, path, body or None, passed)
        response = connection.getresponse()
        return response.status, response.read()
    except (OSError, http.client.HTTPException) as error:
        raise forwarding_failed(f"Error while forwarding the request to the leader at {leader.url}: {error}") from error
    finally:
        connection.close()
