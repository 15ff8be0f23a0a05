"""Parsing listeners into endpoints, and the rules between them.

`NAME://host:port`; listener.security.protocol.map maps the name to a security protocol. An empty host means all
addresses and is kept as "" (Kafka's null); IPv6 hosts are in brackets.
"""

import re
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Final

from kafkapy.config.validators import ADDRESS, ConfigRuleError
from kafkapy.dataclass import dataclass

LISTENER: Final = re.compile(r"(.*)://\[?([0-9a-zA-Z\-%._:]*)\]?:(-?[0-9]{1,9})")


class SecurityProtocol(StrEnum):
    """A listener's security protocol; the value is Kafka's name."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def code(self) -> int:
        """The code in metadata records (Kafka's SecurityProtocol.id)."""
        return PROTOCOL_CODES[self]

    @property
    def uses_sasl(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)

    @property
    def uses_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)


PROTOCOL_CODES: Final = {
    SecurityProtocol.PLAINTEXT: 0,
    SecurityProtocol.SSL: 1,
    SecurityProtocol.SASL_PLAINTEXT: 2,
    SecurityProtocol.SASL_SSL: 3,
}


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A listener: its name in upper case, the host ("" for all addresses), the port (0 for a free one)."""

    listener: str
    host: str
    port: int
    security_protocol: SecurityProtocol

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"


def host_and_port(text: str) -> tuple[str, int]:
    """Return host ("" for all addresses) and port of a text that was validated as host:port."""
    matched = re.fullmatch(ADDRESS, text)
    assert matched is not None, f"{text} was checked to be host:port"
    return matched[1] or matched[2], int(matched[3])


def parse_protocol_map(key: str, text: str) -> dict[str, SecurityProtocol]:
    """Return listener name -> protocol from "NAME:PROTOCOL,NAME:PROTOCOL". Raises ConfigRuleError."""
    protocols: dict[str, SecurityProtocol] = {}
    for pair in filter(None, map(str.strip, text.split(","))):
        name, colon, protocol = pair.rpartition(":")
        if not colon:
            raise ConfigRuleError(key, text, f"Error parsing configuration property '{key}': no ':' in {pair}")
        if protocol.strip().upper() not in SecurityProtocol.__members__:
            raise ConfigRuleError(key, text, f"Invalid security protocol `{protocol.strip()}` defined in {key}")
        protocols[name.strip().upper()] = SecurityProtocol[protocol.strip().upper()]
    return protocols


def parse_endpoints(
    key: str, entries: Iterable[str], protocols: Mapping[str, SecurityProtocol], *, require_distinct_ports: bool = True
) -> tuple[Endpoint, ...]:
    """Return the endpoints of `listeners` or `advertised.listeners`. Raises ConfigRuleError."""
    texts = tuple(entries)
    endpoints = tuple(_parse_endpoint(key, texts, entry, protocols) for entry in texts)
    if len({endpoint.listener for endpoint in endpoints}) != len(endpoints):
        raise _error(key, texts, f"Each listener must have a different name, listeners: {_shown(texts)}")
    if require_distinct_ports:
        _check_ports(key, texts, endpoints)
    return endpoints


def _parse_endpoint(
    key: str, entries: tuple[str, ...], entry: str, protocols: Mapping[str, SecurityProtocol]
) -> Endpoint:
    matched = LISTENER.fullmatch(entry)
    if matched is None:
        raise _error(key, entries, f"Unable to parse {entry} to a broker endpoint")
    name = matched[1].upper()
    if name not in protocols:
        raise _error(key, entries, f"No security protocol defined for listener {name}")
    port = int(matched[3])
    if not -1 <= port <= 65535:
        raise _error(key, entries, f"Port {port} of listener {name} is not within 0 and 65535")
    return Endpoint(listener=name, host=matched[2], port=port, security_protocol=protocols[name])


def _check_ports(key: str, entries: tuple[str, ...], endpoints: tuple[Endpoint, ...]) -> None:
    """Check ports: two listeners may share one only if one has an IPv4 and the other an IPv6 address."""
    for port in {endpoint.port for endpoint in endpoints} - {0}:
        hosts = [endpoint.host for endpoint in endpoints if endpoint.port == port]
        if len(hosts) == 1:
            continue
        # 0 stands for a host name, which may have addresses of either version: it shares no port.
        versions = sorted(_ip_version(host) for host in hosts)
        if versions == [4, 6]:
            continue
        listed = f"listeners: {_shown(entries)}"
        if versions.count(0) > 1 or (0 in versions and len(hosts) == 2):
            raise _error(key, entries, f"Each listener must have a different port, {listed}")
        if len(hosts) == 2:
            raise _error(
                key,
                entries,
                "If you have two listeners on the same port then one needs to be IPv4 and the other IPv6, "
                f"{listed}, port: {port}",
            )
        raise _error(
            key,
            entries,
            "Each listener must have a different port unless exactly one listener has an IPv4 address and the other "
            f"IPv6 address, {listed}, port: {port}",
        )


def _ip_version(host: str) -> int:
    """Return 4 or 6 for an address, 0 for a host name."""
    from ipaddress import ip_address

    try:
        return ip_address(host).version
    except ValueError:
        return 0


def _error(key: str, entries: tuple[str, ...], message: str) -> ConfigRuleError:
    return ConfigRuleError(
        key, ",".join(entries), f"Error creating broker listeners from '{_shown(entries)}': {message}"
    )


def _shown(entries: tuple[str, ...]) -> str:
    return f"[{', '.join(entries)}]"
