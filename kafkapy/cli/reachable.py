"""Checks, before librdkafka connects, that a broker accepts connections, and the TLS settings and login of this client.

librdkafka tries again and again, and says only after 10 to 30 s that it timed out, whatever the reason was.
"""

import socket
from collections.abc import Mapping
from typing import Any, Final

from kafkapy.cli import command_config
from kafkapy.errors import KafkapyError
from kafkapy.protocol.headers import write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.primitives import Writer

TIMEOUT_S: Final = 10.0
PROBE_TIMEOUT_S: Final = 2.0
"""A broker that does not answer a probe in time is left to librdkafka."""
MOST_ANSWER_BYTES: Final = 1 << 24
"""A TLS alert, read as the size of an answer, is larger."""
CLIENT_ID: Final = "kafkapy-cli"
DEFAULT_PORT: Final = 9092
MAX_PORT: Final = 65535


class UnreachableError(Exception):
    """No bootstrap server serves this client; the message is for the user."""


def check_reachable(properties: Mapping[str, Any]) -> None:
    """Connect to the first bootstrap server that accepts; `properties` are librdkafka's. Raises UnreachableError."""
    servers = properties["bootstrap.servers"]
    reason = "no HOST:PORT is given"
    for server in filter(None, map(str.strip, servers.split(","))):
        host, port = _host_and_port(server)
        if not 0 < port <= MAX_PORT:
            reason = f"{port} is not a port"
            continue
        try:
            with socket.create_connection((host, port), timeout=TIMEOUT_S) as connection:
                protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
                if protocol == "PLAINTEXT":
                    _check_serves_plaintext(connection, server)
            if protocol != "PLAINTEXT" and command_config.current().is_checked_by_login(protocol):
                _check_login(host, port, server)
            return
        except OSError as error:
            reason = error.strerror or str(error)
    raise UnreachableError(f"no broker answers at {servers}: {reason}")


def _check_serves_plaintext(connection: socket.socket, server: str) -> None:
    """Raise UnreachableError if a listener seems to ask for TLS or a login, which this client has no settings for.

    A listener with TLS answers no request in plaintext; one with a login answers ApiVersions only.
    """
    connection.settimeout(PROBE_TIMEOUT_S)
    try:
        if not _is_answered(connection, ApiVersionsRequest(), 0):
            found = "does not answer in plaintext: does it ask for TLS?"
        elif not _is_answered(connection, MetadataRequest(topics=[]), 1):
            found = "asks for a login:"
        else:
            return
    except TimeoutError:
        return
    told = "--command-config FILE (a client.properties) or -X KEY=VALUE tells this command how"
    raise UnreachableError(f"the listener at {server} {found} {told}")


def _check_login(host: str, port: int, server: str) -> None:
    """Raise UnreachableError if a certificate or the login is refused; other failures are left to librdkafka."""
    import ssl

    from kafkapy.cli.connection import Connection, LoginRefusedError

    try:
        Connection(host, port, timeout_s=PROBE_TIMEOUT_S).close()
    except LoginRefusedError as error:
        raise UnreachableError(f"{server}: {error}") from error
    except ssl.SSLCertVerificationError as error:
        told = "its CA belongs into ssl.truststore.location of --command-config"
        raise UnreachableError(f"the certificate of {server} is refused, {error.verify_message}: {told}") from error
    except (OSError, KafkapyError):
        return


def _is_answered(connection: socket.socket, request: Any, version: int) -> bool:
    """Send a request; return whether it is answered before the connection ends. Raises TimeoutError."""
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=1, client_id=CLIENT_ID)
    request.write(out, version)
    try:
        connection.sendall(len(out).to_bytes(4, "big") + out)
        size = int.from_bytes(_take(connection, 4), "big")
        if size > MOST_ANSWER_BYTES:
            return False
        _take(connection, size)
    except TimeoutError:
        raise
    except (OSError, EOFError):
        return False
    return True


def _take(connection: socket.socket, count: int) -> bytes:
    """Receive so many bytes. Raises EOFError, OSError."""
    data = bytearray()
    while len(data) < count:
        received = connection.recv(count - len(data))
        if not received:
            raise EOFError
        data += received
    return bytes(data)


def _host_and_port(server: str) -> tuple[str, int]:
    """Return the address in [PROTOCOL://]HOST[:PORT], as librdkafka parses it."""
    address = server.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = address, str(DEFAULT_PORT)
    return host.strip("[]"), int(port)
