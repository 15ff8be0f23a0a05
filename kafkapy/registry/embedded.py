"""A registry within a program or a test: `Broker(registry=True)` and the fixture `schema_registry`."""

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final, Protocol, Self

from kafkapy.cli.client_security import PropertiesSecurity
from kafkapy.cli.connecting_options import bound

if TYPE_CHECKING:
    from kafkapy.registry.http.server import ServerThread
    from kafkapy.registry.node import RegistryNode

USER: Final = "schema-registry"
"""The user of the registry, if clients have to log in."""
HOST: Final = "127.0.0.1"
NEEDED: Final = "'kafkapy-broker[registry]'"


class EmbeddedRegistry:
    """Serves on a free port of this machine, in threads of its own, from start() to stop().

    `config`: how a client connects, in librdkafka's names. Raises ImportError without what the registry needs.
    """

    def __init__(self, config: Mapping[str, str]) -> None:
        self._config = dict(config)
        self._node: RegistryNode | None = None
        self._server: ServerThread | None = None
        self.url = ""

    def start(self) -> Self:
        """Return when it serves; the first write waits for the election.

        Raises ImportError, ClusterError, RegistryError.
        """
        try:
            import uvicorn  # noqa: F401

            from kafkapy.registry.election import Identity
            from kafkapy.registry.http.server import ServerThread
            from kafkapy.registry.node import RegistryNode, RegistryOptions
        except ImportError as error:
            raise ImportError(f"the registry needs {error.name}: pip install {NEEDED}", name=error.name) from error
        listener = bound(HOST, 0)
        identity = Identity("http", HOST, listener.getsockname()[1])
        options = RegistryOptions(
            servers=self._config["bootstrap.servers"],
            identity=identity,
            security=PropertiesSecurity(self._config),
            is_sole=True,
        )
        self._node = RegistryNode(options)
        try:
            self._node.start()
        except BaseException:
            self._node.stop()
            listener.close()
            raise
        self._server = ServerThread(self._node.app, listener, None)
        self.url = identity.url
        return self

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()
        if self._node is not None:
            self._node.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


class HasProtocol(Protocol):
    """The login of a broker's clients; EmbeddedSecurity implements it."""

    @property
    def protocol(self) -> str: ...


def new_beside(client_config: Callable[[str | None], dict[str, str]], security: HasProtocol | None) -> EmbeddedRegistry:
    """Return a registry for a broker or a cluster, not yet started. client_config(user): the settings of a client."""
    has_users = security is not None and security.protocol.startswith("SASL_")
    return EmbeddedRegistry(client_config(USER if has_users else None))


async def started_beside(
    client_config: Callable[[str | None], dict[str, str]], security: HasProtocol | None
) -> EmbeddedRegistry:
    """Like new_beside; start it, from the event loop of its broker."""
    return await asyncio.to_thread(new_beside(client_config, security).start)


def with_user(
    users: Mapping[str, str] | None, acls: Sequence[str] | None
) -> tuple[Mapping[str, str] | None, Sequence[str] | None]:
    """Return users and ACLs of a broker with those that its registry needs."""
    if users is None:
        return users, acls
    if acls is not None:
        acls = [*acls, f"allow {USER} all topic:_schemas", f"allow {USER} all group:schema-registry"]
    return {**users, USER: secrets.token_hex(16)}, acls
