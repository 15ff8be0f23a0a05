"""Logging in through a WireClient, step by step, and the properties of brokers that ask for it."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.listeners import listener_keys
from harness.servers import ApacheKafka, free_port
from kafkapy import Broker
from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.messages.sasl_authenticate_request import SaslAuthenticateRequest
from kafkapy.protocol.messages.sasl_handshake_request import SaslHandshakeRequest
from kafkapy.security.plain import PlainClient
from kafkapy.security.sasl import SaslClient
from kafkapy.security.scram import ScramClient
from tests.support.wire import WireClient

MODULES = "org.apache.kafka.common.security"
PLAIN_MODULE = f"{MODULES}.plain.PlainLoginModule required"
SCRAM_MODULE = f"{MODULES}.scram.ScramLoginModule required"


IS_APACHE = os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache"
MECHANISMS_ENABLED = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


@contextmanager
def sasl_broker(
    directory: Path, listeners: tuple[str, ...], users: dict[str, str], properties: Mapping[str, str]
) -> Iterator[dict[str, int]]:
    """Run a broker, or Apache Kafka, with PLAINTEXT and SASL_PLAINTEXT listeners of those names; ports by listener."""
    ports = {name: free_port() for name in ("PLAINTEXT", *listeners, "CONTROLLER")}
    keys = {
        **listener_keys(ports, dict.fromkeys(listeners, "SASL_PLAINTEXT")),
        "controller.quorum.bootstrap.servers": f"127.0.0.1:{ports['CONTROLLER']}",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS_ENABLED),
        **properties,
    }
    for listener in listeners:
        keys |= jaas_keys(listener, mechanisms=MECHANISMS_ENABLED, users=users)
    if IS_APACHE:
        server = ApacheKafka(directory / "data", keys)
        server.port = ports["PLAINTEXT"]
        with server:
            yield ports
    else:
        with Broker(properties=keys):
            yield ports


def jaas_keys(listener: str, *, mechanisms: tuple[str, ...], users: dict[str, str]) -> dict[str, str]:
    """Return the keys of a listener's login modules; `users` are PLAIN's."""
    options = "".join(f' user_{name}="{password}"' for name, password in users.items())
    modules = {name: f"{PLAIN_MODULE}{options};" if name == "PLAIN" else f"{SCRAM_MODULE};" for name in mechanisms}
    prefix = f"listener.name.{listener.lower()}"
    return {f"{prefix}.{name.lower()}.sasl.jaas.config": module for name, module in modules.items()}


def sasl_client(mechanism: str, name: str, password: str, nonce: str = "fyko+d2lbbFgONRv9qkxdawL") -> SaslClient:
    if mechanism == "PLAIN":
        return PlainClient(name, password)
    return ScramClient(MECHANISMS[mechanism], name, password, nonce=nonce)


def shake_hands(client: WireClient, mechanism: str, version: int = 1) -> None:
    response = client.call(SaslHandshakeRequest(mechanism=mechanism), version)
    assert response.error_code == 0, response


def log_in(client: WireClient, sasl: SaslClient, *, version: int = 2) -> Any:
    """Send handshake and tokens; return the response to the last of them, a failed one, too."""
    shake_hands(client, sasl.mechanism)
    return exchange(client, sasl, version=version)


def exchange(client: WireClient, sasl: SaslClient, *, version: int = 2) -> Any:
    """Send tokens until the client is content, or refused."""
    response = client.call(SaslAuthenticateRequest(auth_bytes=sasl.evaluate(b"")), version)
    while not response.error_code:
        token = sasl.evaluate(bytes(response.auth_bytes))
        if sasl.is_complete:
            return response
        response = client.call(SaslAuthenticateRequest(auth_bytes=token), version)
    return response


def log_in_raw(client: WireClient, sasl: SaslClient) -> None:
    """Log in as clients before Kafka 1.0 do: tokens are frames. A failure closes the connection."""
    shake_hands(client, sasl.mechanism, 0)
    token = sasl.evaluate(b"")
    while not sasl.is_complete:
        client.send_frame(token)
        token = sasl.evaluate(client.receive_frame())
