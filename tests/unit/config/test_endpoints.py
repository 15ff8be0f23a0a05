"""Listeners: names, hosts of all kinds, ports, and what may not stand beside what."""

import pytest

from kafkapy.config.endpoints import Endpoint, SecurityProtocol, parse_endpoints, parse_protocol_map
from kafkapy.errors import ConfigError

PROTOCOLS = {
    "PLAINTEXT": SecurityProtocol.PLAINTEXT,
    "SSL": SecurityProtocol.SSL,
    "INTERNAL": SecurityProtocol.SASL_PLAINTEXT,
    "THIRD": SecurityProtocol.PLAINTEXT,
}


@pytest.mark.parametrize(
    ("text", "listener", "host", "port"),
    [
        ("PLAINTEXT://localhost:9092", "PLAINTEXT", "localhost", 9092),
        ("plaintext://localhost:9092", "PLAINTEXT", "localhost", 9092),
        ("INTERNAL://:0", "INTERNAL", "", 0),
        ("PLAINTEXT://0.0.0.0:9092", "PLAINTEXT", "0.0.0.0", 9092),
        ("PLAINTEXT://[::1]:9092", "PLAINTEXT", "::1", 9092),
        ("PLAINTEXT://[fe80::b1da:69ca:57f7:63d8%3]:9092", "PLAINTEXT", "fe80::b1da:69ca:57f7:63d8%3", 9092),
        ("SSL://my_host-1.example:65535", "SSL", "my_host-1.example", 65535),
    ],
)
def test_listeners_are_read(text, listener, host, port) -> None:
    assert parse_endpoints("listeners", [text], PROTOCOLS) == (Endpoint(listener, host, port, PROTOCOLS[listener]),)


@pytest.mark.parametrize(
    "text",
    [
        "localhost:9092",
        "PLAINTEXT:/localhost:9092",
        "PLAINTEXT://localhost",
        "PLAINTEXT://a b:1",
        "PLAINTEXT://h:",
        f"PLAINTEXT://h:{'9' * 5000}",
    ],
)
def test_what_is_no_listener_is_refused(text) -> None:
    with pytest.raises(ConfigError, match="Unable to parse"):
        parse_endpoints("listeners", [text], PROTOCOLS)


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (["PLAINTEXT://a:1", "plaintext://b:2"], "Each listener must have a different name"),
        (["PLAINTEXT://a:1", "SSL://b:1"], "Each listener must have a different port, "),
        (["PLAINTEXT://:1", "SSL://127.0.0.1:1"], "Each listener must have a different port, "),
        (["PLAINTEXT://127.0.0.1:1", "SSL://127.0.0.2:1"], "one needs to be IPv4 and the other IPv6"),
        (["PLAINTEXT://127.0.0.1:1", "SSL://[::1]:1", "THIRD://[::2]:1"], "unless exactly one listener has an IPv4"),
        (["OTHER://a:1"], "No security protocol defined for listener OTHER"),
        (["PLAINTEXT://a:70000"], "is not within 0 and 65535"),
    ],
)
def test_listeners_that_do_not_go_together(entries, message) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_endpoints("listeners", entries, PROTOCOLS)


def test_port_may_be_shared_by_ipv4_and_ipv6_and_by_port_0() -> None:
    assert len(parse_endpoints("listeners", ["PLAINTEXT://127.0.0.1:1", "SSL://[::1]:1"], PROTOCOLS)) == 2
    assert len(parse_endpoints("listeners", ["PLAINTEXT://:0", "SSL://:0"], PROTOCOLS)) == 2


def test_advertised_listeners_may_share_a_port() -> None:
    entries = ["PLAINTEXT://lb:1", "SSL://lb:1"]
    assert len(parse_endpoints("advertised.listeners", entries, PROTOCOLS, require_distinct_ports=False)) == 2


def test_protocol_map() -> None:
    assert parse_protocol_map("k", "a:PLAINTEXT , B:sasl_ssl") == {
        "A": SecurityProtocol.PLAINTEXT,
        "B": SecurityProtocol.SASL_SSL,
    }
    for text in ("A", "A:TLS"):
        with pytest.raises(ConfigError):
            parse_protocol_map("k", text)


def test_protocols_know_their_number_and_what_they_use() -> None:
    assert [(protocol.code, protocol.uses_sasl, protocol.uses_tls) for protocol in SecurityProtocol] == [
        (0, False, False),
        (1, False, True),
        (2, True, False),
        (3, True, True),
    ]


def test_endpoint_prints_as_it_is_written() -> None:
    for text in ("PLAINTEXT://h:1", "PLAINTEXT://[::1]:1", "PLAINTEXT://:0"):
        assert str(parse_endpoints("listeners", [text], PROTOCOLS)[0]) == text
