"""`kafkapy registry`: serves the registry until Ctrl-C or SIGTERM."""

import argparse
import logging
import signal
import socket
import ssl
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from kafkapy.cli.addresses import ANY_HOST, connectable, host_port
from kafkapy.cli.command_config import CommandConfigError
from kafkapy.cli.connecting_options import bound, parsed
from kafkapy.cli.failure import fail, reason_of
from kafkapy.cli.profiles import ProfileError
from kafkapy.cli.registry_options import new_parser

if TYPE_CHECKING:
    from kafkapy.registry.election import Identity
    from kafkapy.registry.http.server import Tls
    from kafkapy.registry.node import RegistryNode

NEEDED: Final = "'kafkapy-broker[registry]'"


class OptionError(Exception):
    """The registry cannot start; the message is one line."""


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy registry`; return the exit status."""
    try:
        with parsed(new_parser(), arguments) as (given, _):
            return _serve(given)
    except (OptionError, CommandConfigError, ProfileError) as error:
        return fail(str(error))


def _serve(given: argparse.Namespace) -> int:
    """Serve until a signal; return the exit status. Raises OptionError."""
    try:
        import starlette  # noqa: F401
        import uvicorn  # noqa: F401

        import kafkapy.registry.http.server  # noqa: F401
        from kafkapy.registry.model import Level
        from kafkapy.registry.node import RegistryNode, RegistryOptions
    except ImportError as error:
        return fail(f"the registry needs {error.name}: pip install {NEEDED}")
    host, port = given.listen
    tls, forwarding = _tls(given)
    users = None if given.users is None else users_of(given.users)
    try:
        listener = bound(host, port)
    except OSError as error:
        raise OptionError(f"{host}:{port}: {error.strerror or error} (choose another by --listen)") from error
    _log_to_stderr()
    node = RegistryNode(
        RegistryOptions(
            servers=given.bootstrap_server,
            identity=_identity(given, listener, tls),
            topic=given.topic,
            group=given.group,
            level=Level[given.compatibility],
            users=users,
            forwarding=forwarding,
        )
    )
    signal.signal(signal.SIGTERM, _interrupt)
    return _run(node, listener, tls, _url(given, listener, tls))


def _run(node: "RegistryNode", listener: socket.socket, tls: "Tls | None", url: str) -> int:
    """Serve until a signal; return the exit status."""
    from kafkapy.registry.cluster import ClusterError
    from kafkapy.registry.errors import RegistryError
    from kafkapy.registry.http.server import new_server

    try:
        node.start()
        server = new_server(node.app, tls)
        print(f"kafkapy registry ready on {url}", flush=True)  # connections wait in the listen queue meanwhile
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn raises the signal again after an orderly stop
        return 0
    except (ClusterError, RegistryError) as error:
        return fail(str(error))
    finally:
        node.stop()
        listener.close()
    return 0 if server.started else 1


def _interrupt(*_: object) -> None:
    """End as on Ctrl-C: the group is left, so that another registry leads at once."""
    raise KeyboardInterrupt


def _identity(given: argparse.Namespace, listener: socket.socket, tls: "Tls | None") -> "Identity":
    """Return the address by which other registries reach this one."""
    from kafkapy.registry.election import Identity

    host, port = given.advertise or (given.listen[0], listener.getsockname()[1])
    if host in ANY_HOST:
        host = socket.gethostname()
    return Identity(_scheme(tls), host, port)


def _scheme(tls: "Tls | None") -> str:
    return "http" if tls is None else "https"


def users_of(path: str) -> dict[str, str]:
    """Return passwords by name: of lines NAME: PASSWORD, as Jetty's PropertyFileLoginModule has them, or NAME:PASSWORD.

    What follows a comma are roles, which are not used. Raises OptionError.
    """
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"--users {path}: {reason_of(error)}") from error
    found = {}
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, rest = line.partition(":")
        password = rest.partition(",")[0].strip()
        if not colon or not name.strip() or not password:
            raise OptionError(f"--users {path}: line {number} must read NAME: PASSWORD")
        found[name.strip()] = password
    if not found:
        raise OptionError(f"--users {path}: it has no users")
    return found


def _tls(given: argparse.Namespace) -> "tuple[Tls | None, ssl.SSLContext | None]":
    """Return the TLS of clients, and that of requests to another registry. Raises OptionError."""
    from kafkapy.registry.http.server import Tls

    files = (given.tls_certificate, given.tls_key, given.tls_client_ca, given.tls_ca)
    if not any(files):
        return None, None
    if given.tls_certificate is None or given.tls_key is None:
        raise OptionError("TLS needs both --tls-certificate and --tls-key")
    tls = Tls(given.tls_certificate, given.tls_key, given.tls_client_ca, given.tls_ca)
    try:
        return tls, tls.forwarding_context()
    except OSError as error:
        raise OptionError(f"--tls-certificate, --tls-key, --tls-ca: {reason_of(error)}") from error


def _log_to_stderr() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    registry = logging.getLogger("kafkapy.registry")
    registry.addHandler(handler)
    registry.setLevel(logging.INFO)


def _url(given: argparse.Namespace, listener: socket.socket, tls: "Tls | None") -> str:
    return f"{_scheme(tls)}://{connectable(host_port(given.listen[0], listener.getsockname()[1]))}"
