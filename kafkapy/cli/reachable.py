"""Checks, before librdkafka connects, that a broker accepts connections, and the TLS settings and login of this client.

librdkafka retries, and reports after 10 to 30 s only that it timed out, whatever the reason was. With these checks a
command fails at once, with the reason and exit status 1.
"""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from kafkapy.cli import command_config
from kafkapy.cli.deadline import TIMEOUT_S, arm, deadline_in, receive
from kafkapy.cli.defaults import DEFAULT_SERVER
from kafkapy.errors import KafkapyError, ProtocolError
from kafkapy.protocol.api import response_type
from kafkapy.protocol.headers import read_response_header, write_request_header
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from kafkapy.protocol.primitives import Writer

if TYPE_CHECKING:
    from ssl import SSLCertVerificationError

PROBE_TIMEOUT_S: Final = 2.0
"""If a broker does not answer these requests in time, the check passes, and librdkafka tries."""
MAX_RESPONSE_BYTES: Final = 1 << 24
"""A TLS alert, read as the size of a response, is larger."""
HINT: Final = "--command-config FILE (a client.properties) or -X KEY=VALUE configures this command for it"
ELSEWHERE: Final = " (-b HOST:PORT names another one, as do KAFKAPY_BOOTSTRAP_SERVERS and `kafkapy profile use`)"
CLIENT_ID: Final = "kafkapy-cli"
DEFAULT_PORT: Final = 9092
MAX_PORT: Final = 65535
"""The largest port of TCP."""


class UnreachableError(KafkapyError):
    """No bootstrap server serves this client; the message is for the user."""


class _NotServedError(Exception):
    """One server does not serve this client; another one may."""


def check_reachable(properties: Mapping[str, Any]) -> None:
    """Return once a bootstrap server serves this client. Raises UnreachableError if none does.

    properties: librdkafka's. The servers are tried in order, up to the first that refuses the login, as librdkafka
    does. The error's reason is that of the first server that accepted the connection.
    """
    servers = properties["bootstrap.servers"]
    reason, refusal = "no HOST:PORT is given", None
    for server in filter(None, map(str.strip, servers.split(","))):
        host, port = host_and_port(server)
        if not 0 < port <= MAX_PORT:
            reason = f"{port} is not a port"
            continue
        try:
            _check_serves(server, (host, port), properties)
            return
        except _NotServedError as error:
            refusal = refusal or error
        except (OSError, UnicodeError) as error:  # UnicodeError: the name cannot be that of a host
            reason = getattr(error, "strerror", None) or str(error)
    hint = ELSEWHERE if servers == DEFAULT_SERVER else ""
    raise UnreachableError(str(refusal or f"no broker answers at {servers}: {reason}{hint}"))


def _check_serves(server: str, address: tuple[str, int], properties: Mapping[str, Any]) -> None:
    """Check one server. Raises _NotServedError, UnreachableError, OSError, UnicodeError."""
    protocol = str(properties.get("security.protocol", "PLAINTEXT")).upper()
    with socket.create_connection(address, timeout=TIMEOUT_S) as connection:
        if protocol == "PLAINTEXT":
            _check_serves_plaintext(connection, server)
    if protocol != "PLAINTEXT" and command_config.current().is_checked_by_login(properties):
        _check_login(*address, server)


def _check_serves_plaintext(connection: socket.socket, server: str) -> None:
    """Raise _NotServedError for a controller's listener, or one that seems to ask for TLS or a login.

    A listener with TLS answers no request in plaintext; one with a login answers ApiVersions only.
    """
    deadline_s = deadline_in(PROBE_TIMEOUT_S)
    try:
        versions = _response(connection, ApiVersionsRequest(), 0, deadline_s)
        if versions is None:
            found = f"does not answer in plaintext: does it ask for TLS? {HINT}"
        elif all(served.api_key != MetadataRequest.API_KEY for served in versions.api_keys):
            found = "is a controller's: a broker's is needed"
        elif _response(connection, MetadataRequest(topics=[]), 1, deadline_s) is None:
            found = f"asks for a login: {HINT}"
        else:
            return
    except TimeoutError:
        return
    raise _NotServedError(f"the listener at {server} {found}")


def _check_login(host: str, port: int, server: str) -> None:
    """Raise UnreachableError if the login is refused, _NotServedError if the server's certificate is not trusted.

    After any other failure the check passes, and librdkafka tries.
    """
    import ssl

    from kafkapy.cli.connection import Connection, LoginRefusedError

    try:
        Connection(host, port, timeout_s=PROBE_TIMEOUT_S).close()
    except LoginRefusedError as error:
        raise UnreachableError(f"{server}: {error}") from error
    except ssl.SSLCertVerificationError as error:
        hint = ": its CA belongs into ssl.truststore.location of --command-config" if _is_of_ca(error) else ""
        raise _NotServedError(f"the certificate of {server} is refused, {error.verify_message}{hint}") from error
    except (OSError, KafkapyError):
        return


def _is_of_ca(error: "SSLCertVerificationError") -> bool:
    """Whether a certificate was refused only because its certificate authority is not trusted."""
    return error.verify_code in (18, 19, 20, 21)  # X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT and the next ones


def _response(connection: socket.socket, request: Any, version: int, deadline_s: float) -> Any:
    """Send a request; return its response, None if the connection ends or something else comes. Raises TimeoutError."""
    out = Writer()
    write_request_header(out, api_key=request.API_KEY, api_version=version, correlation_id=1, client_id=CLIENT_ID)
    request.write(out, version)
    try:
        arm(connection, deadline_s)
        connection.sendall(len(out).to_bytes(4, "big") + out)
        size = int.from_bytes(receive(connection, 4, deadline_s), "big")
        if size > MAX_RESPONSE_BYTES:
            return None
        frame = receive(connection, size, deadline_s)
        _, position = read_response_header(frame, request.API_KEY, version)
        return response_type(request.API_KEY).decode(frame[position:], version)
    except TimeoutError:
        raise
    except (OSError, ProtocolError):
        return None


def host_and_port(server: str) -> tuple[str, int]:
    """Return the address in [PROTOCOL://]HOST[:PORT], as librdkafka parses it."""
    address = server.rpartition("://")[2]
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal():
        host, port = address, str(DEFAULT_PORT)
    return host.strip("[]"), int(port)
