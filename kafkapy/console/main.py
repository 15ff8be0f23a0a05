"""`kafkapy console`: serves the console until Ctrl-C or SIGTERM.

If a broker started it (`kafkapy start --console`), it ends with the broker: at the end of its stdin.
"""

import argparse
import logging
import os
import socket
import sys
import threading
from collections.abc import Sequence
from importlib.util import find_spec
from typing import Any, Final
from urllib.parse import urlsplit

from kafkapy.cli.addresses import connectable, host_port
from kafkapy.cli.command_config import NOTHING, CommandConfig, CommandConfigError, current
from kafkapy.cli.connecting_options import bound, parsed
from kafkapy.cli.console_options import TOKEN_VARIABLE, new_parser
from kafkapy.cli.defaults import BUILT_IN
from kafkapy.cli.failure import fail
from kafkapy.cli.profiles import ProfileError, load, path_of_profiles
from kafkapy.cli.state_dir import state_dir
from kafkapy.console.addresses import is_loopback, is_private_url
from kafkapy.console.masks import Masks
from kafkapy.console.session_key import KeyFileError, session_key
from kafkapy.console.settings import MIN_TOKEN_CHARACTERS, Cluster, Oidc, Settings
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.registry import SchemaRegistry

STOP_S: Final = 2
"""Streams are open for ever: a stop does not wait for them."""


class OptionError(Exception):
    """The console cannot start; the message is one line."""


def main(arguments: Sequence[str]) -> int:
    """Run with the arguments after `kafkapy console`; return the exit status."""
    try:
        # a broker's own console is about that broker, whatever profile is in use
        with parsed(new_parser(), arguments, alone=("--end-with-stdin",)) as (given, defaults):
            settings = settings_of(given, defaults.servers.source.removeprefix("profile ").replace(BUILT_IN, ""))
            return _serve(settings, _bound(settings, _option(given)), ends_with_stdin=given.end_with_stdin)
    except (OptionError, CommandConfigError, ProfileError, DecodeError) as error:
        return fail(str(error))


def settings_of(given: argparse.Namespace, name: str = "") -> Settings:
    """`name`: of the profile that names the first cluster. Raises OptionError, CommandConfigError, DecodeError."""
    host, port = given.listen
    token = _token(given.token_file)
    oidc = _oidc(given)
    if token is None and oidc is None and not is_loopback(host):
        needed = f"a token is needed, by --token-file or {TOKEN_VARIABLE}, or --oidc-issuer"
        raise OptionError(f"{host} is no loopback address: {needed}")
    for url in given.metrics:
        if urlsplit(url).scheme not in ("http", "https"):
            raise OptionError(f"--metrics {url}: not an http URL")
    current().librdkafka()  # fails here instead of later
    Masks(given.mask)  # fails here instead of later
    names = {host.lower(), *(name.lower() for name in given.allowed_host)}
    return Settings(
        servers=given.bootstrap_server,
        host=host,
        port=port,
        allowed_hosts=tuple(sorted(names)),
        token=token,
        allow_changes=given.allow_changes,
        properties=dict(_setting(text) for text in given.client_config),
        registry=None if given.schema_registry is None else SchemaRegistry(given.schema_registry),
        metrics_urls=tuple(given.metrics),
        audit_log=given.audit_log,
        masks=tuple(given.mask),
        name=name,
        clusters=_clusters(given.cluster),
        oidc=oidc,
    )


def _clusters(names: Sequence[str]) -> tuple[Cluster, ...]:
    """Return the clusters of profiles. Raises ProfileError, CommandConfigError, OptionError."""
    profiles = load(path_of_profiles(os.environ))
    if len(set(names)) < len(names):
        raise OptionError("--cluster: a profile is named twice")
    found = []
    for name in names:
        profile = profiles.named(name)
        config = CommandConfig.of_file(profile.command_config) if profile.command_config else NOTHING
        config.librdkafka()  # fails here instead of later
        found.append(Cluster(name, profile.bootstrap_servers, config))
    return tuple(found)


def _oidc(given: argparse.Namespace) -> Oidc | None:
    """Return the provider that the options name, None without one. Raises OptionError."""
    if given.oidc_issuer is None:
        if given.oidc_client_id or given.oidc_viewer or given.oidc_editor:
            raise OptionError("--oidc-issuer URL names the provider of the other --oidc options")
        return None
    if not given.oidc_client_id:
        raise OptionError("--oidc-issuer needs --oidc-client-id")
    if find_spec("jwt") is None:
        raise OptionError("--oidc-issuer needs PyJWT: pip install 'PyJWT>=2.12'")
    if not is_private_url(given.oidc_issuer):
        raise OptionError(f"--oidc-issuer {given.oidc_issuer}: https, or http on this machine")
    return Oidc(
        issuer=given.oidc_issuer,
        client_id=given.oidc_client_id,
        client_secret="" if given.oidc_client_secret_file is None else _first_line(given.oidc_client_secret_file),
        claim=given.oidc_claim,
        viewers=frozenset(given.oidc_viewer),
        editors=frozenset(given.oidc_editor),
        url=given.url or "",
    )


def _first_line(path: str) -> str:
    """Return the first line of a file. Raises OptionError."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.readline().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(f"{path}: {getattr(error, 'strerror', None) or error}") from error


def _token(path: str | None) -> str | None:
    token = os.environ.pop(TOKEN_VARIABLE, None)  # not for processes that this one may start
    if path is not None:
        token = _first_line(path)
    if token is not None and len(token) < MIN_TOKEN_CHARACTERS:
        raise OptionError(f"the token has fewer than {MIN_TOKEN_CHARACTERS} characters")
    return token


def _setting(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise OptionError(f"--client-config {text}: it must read KEY=VALUE")
    return key.strip(), value


def _option(given: argparse.Namespace) -> str:
    """Return the option that says where to serve: of `kafkapy start --console` if a broker started this process."""
    return "--console-port" if given.end_with_stdin else "--listen"


def _bound(settings: Settings, option: str) -> socket.socket:
    """Return the listening socket. Raises OptionError."""
    try:
        return bound(settings.host, settings.port)
    except OSError as error:
        raise OptionError(f"{settings.host}:{settings.port}: {error.strerror} (choose another by {option})") from error


def _serve(settings: Settings, listener: socket.socket, *, ends_with_stdin: bool) -> int:
    try:
        import confluent_kafka  # noqa: F401
        import uvicorn

        from kafkapy.console.app import new_app
        from kafkapy.console.connections import MAX_CONNECTIONS, new_protocol
    except ImportError as error:
        listener.close()
        return fail(f"the console needs {error.name}: pip install {' '.join(NEEDED)}")
    try:
        _log_changes(settings.audit_log)
    except OSError as error:
        listener.close()
        return fail(f"--audit-log {settings.audit_log}: {error.strerror}")
    config = uvicorn.Config(
        new_app(settings, _session_key(settings)),
        loop="asyncio",
        http=new_protocol(),
        ws="none",
        log_level="warning",
        access_log=False,
        proxy_headers=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS + 1,  # after one too many, the oldest without a request makes room
        timeout_graceful_shutdown=STOP_S,
    )
    server = uvicorn.Server(config)
    if ends_with_stdin:
        threading.Thread(target=_stop_after_stdin, args=(server,), name="console-stdin", daemon=True).start()
    print(f"kafkapy console ready on {_url(settings, listener)}", flush=True)  # connections wait in the backlog
    try:
        server.run(sockets=[listener])
    except KeyboardInterrupt:  # uvicorn raises the signal again once it has stopped in order
        return 0
    return 0 if server.started else 1


def _session_key(settings: Settings) -> bytes | None:
    """Return the key that signs sessions, None if there are no logins or the key cannot be kept."""
    if not settings.has_login:
        return None
    try:
        return session_key(state_dir(os.environ), settings)
    except KeyFileError as error:
        print(f"kafkapy console: sessions end with this process: {error}", file=sys.stderr)
        return None


NEEDED: Final = ("jinja2", "python-multipart", "starlette", "uvicorn", "confluent-kafka")


def _log_changes(audit_log: str | None) -> None:
    """Write to stderr, and to a file if there is one, who changed what. Raises OSError."""
    changes = logging.getLogger("kafkapy.console")
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    if audit_log is not None:
        handlers.append(logging.FileHandler(audit_log, encoding="utf-8"))
    for handler in handlers:
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        changes.addHandler(handler)
    changes.setLevel(logging.INFO)


def _url(settings: Settings, listener: socket.socket) -> str:
    return f"http://{connectable(host_port(settings.host, listener.getsockname()[1]))}"


def _stop_after_stdin(server: Any) -> None:
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    server.should_exit = True
