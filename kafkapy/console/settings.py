"""The settings from the command line of `kafkapy console`."""

from collections.abc import Mapping
from typing import Final

from kafkapy.cli.command_config import CommandConfig
from kafkapy.dataclass import dataclass
from kafkapy.decoders.registry import SchemaRegistry

MIN_TOKEN_CHARACTERS: Final = 16
"""64 random bits as hexadecimal digits: with wrong ones delayed, never guessed."""


@dataclass(frozen=True, slots=True)
class Oidc:
    """A provider of OpenID Connect. `viewers`, `editors`: values of `claim` in its ID tokens.

    Without `viewers`, everybody who can log in may look.
    """

    issuer: str
    client_id: str
    client_secret: str = ""
    claim: str = "groups"
    viewers: frozenset[str] = frozenset()
    editors: frozenset[str] = frozenset()
    url: str = ""
    """The URL by which browsers reach the console; "" for the host that their requests name."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A further cluster. `name`: of its profile, and in its URLs; `config`: its client.properties."""

    name: str
    servers: str
    config: CommandConfig


@dataclass(frozen=True, slots=True)
class Settings:
    """`name`: of the cluster, shown if there are several; `clusters`: the others. `token`: required of clients.

    `properties`: librdkafka's, from the command line. Without token and OIDC the console is served on loopback only.
    """

    servers: str
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    token: str | None = None
    allow_changes: bool = False
    properties: Mapping[str, str] | None = None
    registry: SchemaRegistry | None = None
    metrics_urls: tuple[str, ...] = ()
    audit_log: str | None = None
    masks: tuple[str, ...] = ()
    name: str = ""
    clusters: tuple[Cluster, ...] = ()
    oidc: Oidc | None = None

    @property
    def has_login(self) -> bool:
        return self.token is not None or self.oidc is not None
