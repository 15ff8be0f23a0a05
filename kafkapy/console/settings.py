"""The settings from the command line of `kafkapy console`."""

from collections.abc import Mapping
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.decoders.registry import SchemaRegistry

MIN_TOKEN_CHARACTERS: Final = 16
"""64 random bits as hexadecimal digits: with wrong ones delayed, never guessed."""


@dataclass(frozen=True, slots=True)
class Settings:
    """`properties`: librdkafka's, from the command line. `token`: required of clients; None only on loopback."""

    servers: str
    host: str = "127.0.0.1"
    port: int = 8080
    allowed_hosts: tuple[str, ...] = ()
    token: str | None = None
    allow_changes: bool = False
    properties: Mapping[str, str] | None = None
    registry: SchemaRegistry | None = None
    metrics_urls: tuple[str, ...] = ()
