"""Listeners that come and go while a broker runs (KIP-226): the same requests to kafkapy and to Apache Kafka 4.4.0."""

import re
import ssl
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path

import pytest

from harness.servers import Kafkapy, free_port
from kafkapy.protocol.messages.api_versions_request import ApiVersionsRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.metadata_request import MetadataRequest
from tests.support import java_tools
from tests.support.certificates import Authority
from tests.support.client_requests import until
from tests.support.logins import jaas_keys, log_in, sasl_client
from tests.support.quick_kafka import QuickKafka
from tests.support.wire import ConnectionClosed, WireClient

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(not java_tools.are_here(), reason="Apache Kafka's jars are missing: run `make tools`"),
]

BROKER_RESOURCE = 4
SET, DELETE = 0, 1
PROTOCOLS = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
SCALAS = "requirement failed: "
"""What Scala's require puts in front of a message."""
NESTED = r"^Invalid value [\w.]+ConfigException: (.*) for configuration Invalid dynamic configuration$"
"""The error as the value of a configuration of that name: ours says the same in one sentence."""


class Listeners:
    """Changes of a server's listeners by its first one; `own`: the listeners of its configuration file."""

    def __init__(self, server: Kafkapy | QuickKafka, stack: ExitStack) -> None:
        self.server = server
        self.own = server.properties["listeners"]
        self.client = stack.enter_context(WireClient(server.bootstrap))
        self.told: list[tuple[str, int, str]] = []

    def alter(self, what: str, **configs: str | None) -> int:
        """Alter the broker's configs, written with _ for each dot, keep the outcome, and return its code."""
        return self.alter_keys(what, {key.replace("_", "."): value for key, value in configs.items()})

    def alter_keys(self, what: str, configs: Mapping[str, str | None]) -> int:
        altered = [
            AlterableConfig(key, config_operation=DELETE if value is None else SET, value=value)
            for key, value in configs.items()
        ]
        resource = AlterConfigsResource(BROKER_RESOURCE, resource_name="1", configs=altered)
        (result,) = self.client.call(IncrementalAlterConfigsRequest(resources=[resource]), 1).responses
        message = re.sub(r":\d{4,5}", ":PORT", result.error_message or "").removeprefix(SCALAS)
        message = re.sub(NESTED, r"Invalid dynamic configuration: \1", message)
        self.told.append((what, result.error_code, message))
        return int(result.error_code)

    def with_one_more(self, name: str, port: int) -> str:
        return f"{self.own},{name}://127.0.0.1:{port}"


def serves(port: int, tls: ssl.SSLContext | None = None) -> bool:
    try:
        with WireClient(f"127.0.0.1:{port}", tls=tls) as client:
            return bool(client.call(ApiVersionsRequest(), 0).error_code == 0)
    except (OSError, ConnectionClosed):
        return False


def refused_changes(listeners: Listeners) -> None:
    """An advertised listener cannot be removed; protocols and other keys of a bound listener cannot change."""
    extra = listeners.with_one_more("EXTRA", free_port())
    listeners.alter("nobody's protocol", listeners=extra)
    listeners.alter("without the advertised one", listeners=listeners.own.partition(",")[2])
    changed = PROTOCOLS.replace("PLAINTEXT:PLAINTEXT,", "PLAINTEXT:SASL_PLAINTEXT,")
    listeners.alter("another protocol", listener_security_protocol_map=changed)
    listeners.alter_keys(
        "a key that stays",
        {
            "listeners": extra,
            "listener.security.protocol.map": f"{PROTOCOLS},EXTRA:PLAINTEXT",
            "listener.name.plaintext.connections.max.reauth.ms": "5000",
        },
    )
    listeners.alter("two of one name", listeners=f"{listeners.own},PLAINTEXT://127.0.0.1:{free_port()}")


def a_plain_one(listeners: Listeners) -> None:
    """It serves at once, its connections are closed with it, and it may come back elsewhere."""
    protocols = f"{PROTOCOLS},EXTRA:PLAINTEXT"
    for _ in range(2):
        port = free_port()
        extra = listeners.with_one_more("EXTRA", port)
        listeners.alter("added", listeners=extra, listener_security_protocol_map=protocols)
        until(lambda: serves(port))  # noqa: B023
        with WireClient(f"127.0.0.1:{port}") as client:
            assert client.call(ApiVersionsRequest(), 0).error_code == 0
            listeners.alter("removed", listeners=None)
            with pytest.raises((ConnectionClosed, ConnectionResetError)):
                client.receive_frame()
        assert not serves(port)
        assert serves(listeners.server.port)
    listeners.alter("as it was", listener_security_protocol_map=None)


def one_with_tls(listeners: Listeners) -> None:
    """Its keys come with it, none of the broker's other listeners had any."""
    directory = Path(f"{listeners.server.directory}-keys")
    authority = Authority()
    keys = authority.issue("localhost").write(directory, "broker")
    trusted = ssl.create_default_context(cadata=authority.certificate_pem)
    trusted.check_hostname = False
    port = free_port()
    secure = {
        "listeners": listeners.with_one_more("SECURE", port),
        "listener.security.protocol.map": f"{PROTOCOLS},SECURE:SSL",
        "listener.name.secure.ssl.keystore.type": "PEM",
        "listener.name.secure.ssl.keystore.location": str(keys),
    }
    listeners.alter_keys("added with TLS", secure)
    until(lambda: serves(port, trusted))
    listeners.alter("removed with TLS", listeners=None)
    until(lambda: not serves(port, trusted))


def one_with_logins(listeners: Listeners) -> None:
    """Nobody is served without a login, though the broker's other listeners want none."""
    port = free_port()
    configs = {
        "listeners": listeners.with_one_more("LOGIN", port),
        "listener.security.protocol.map": f"{PROTOCOLS},LOGIN:SASL_PLAINTEXT",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        **jaas_keys("LOGIN", mechanisms=("PLAIN",), users={"alice": "alice-secret"}),
    }
    listeners.alter_keys("added with logins", configs)
    until(lambda: serves(port))  # ApiVersions comes before the login
    assert serves_after(port, "alice-secret")
    assert not serves_after(port, "wrong")
    assert not serves_after(port, None)
    listeners.alter_keys("removed with logins", dict.fromkeys(configs))
    until(lambda: not serves(port))


def serves_after(port: int, password: str | None) -> bool:
    """Whether Metadata is answered after a login with that password, or after none."""
    with WireClient(f"127.0.0.1:{port}") as client:
        if password is not None and log_in(client, sasl_client("PLAIN", "alice", password)).error_code:
            return False
        try:
            return bool(client.call(MetadataRequest(topics=[]), 12).cluster_id)
        except ConnectionClosed:
            return False


CHAPTERS = (refused_changes, a_plain_one, one_with_tls, one_with_logins)


def prepared(kind: Callable[[Path], Kafkapy | QuickKafka], directory: Path) -> Kafkapy | QuickKafka:
    server, controller_port = kind(directory / "data"), free_port()
    server.properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "listeners": f"PLAINTEXT://127.0.0.1:{server.port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{server.port}",
        "listener.security.protocol.map": PROTOCOLS,
    }
    return server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Kafkapy | QuickKafka]]:
    with ExitStack() as stack:
        found = [prepared(kind, tmp_path_factory.mktemp(kind.__name__)) for kind in (Kafkapy, QuickKafka)]
        for server in found:
            stack.enter_context(server)
        yield found


@pytest.mark.parametrize("chapter", CHAPTERS, ids=lambda chapter: chapter.__name__)
def test_listeners_change_alike(chapter: Callable[[Listeners], None], servers: list[Kafkapy | QuickKafka]) -> None:
    told = []
    for server in servers:
        with ExitStack() as stack:
            listeners = Listeners(server, stack)
            chapter(listeners)
            told.append(listeners.told)
    assert told[0] == told[1]


def test_an_added_listener_is_there_after_a_restart(tmp_path: Path) -> None:
    port = free_port()
    with prepared(Kafkapy, tmp_path) as server, ExitStack() as stack:
        listeners = Listeners(server, stack)
        protocols = f"{PROTOCOLS},EXTRA:PLAINTEXT"
        configs = {"listeners": listeners.with_one_more("EXTRA", port), "listener_security_protocol_map": protocols}
        assert listeners.alter("added", **configs) == 0
        until(lambda: serves(port))
        stack.close()
        server.stop()
        server.start()
        assert serves(port)
        assert serves(server.port)


@pytest.mark.parametrize("kind", [Kafkapy, QuickKafka])
def test_a_port_that_changed_at_run_time_holds_from_the_next_start_on(
    kind: Callable[[Path], Kafkapy | QuickKafka], tmp_path: Path
) -> None:
    """Apache Kafka reads it from its last snapshot before it binds: so it has to be in one."""
    own, port = prepared(kind, tmp_path), free_port()
    own.properties["metadata.log.max.snapshot.interval.ms"] = "1000"
    with own as server:
        before = f"PLAINTEXT://127.0.0.1:{server.port}"
        after = server.properties["listeners"].replace(before, f"PLAINTEXT://127.0.0.1:{port}")
        with ExitStack() as stack:
            assert Listeners(server, stack).alter("moved", listeners=after) == 0
            assert serves(server.port)
            assert not serves(port), "a listener that is bound stays where it is"
        if isinstance(server, QuickKafka):
            metadata = Path(server.directory) / "__cluster_metadata-0"
            until(lambda: any(after.encode() in each.read_bytes() for each in metadata.glob("*.checkpoint")))
        server.stop()
        server.port = port
        server.start()
        assert serves(port)
