"""Certificates of a listener that change at run time: what is taken, and what is refused and leaves all as it was."""

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from kafkapy.config.broker import BrokerConfig
from kafkapy.config.dynamic import DynamicConfig
from kafkapy.config.embedded import embedded_properties
from kafkapy.config.load import load
from kafkapy.errors import ConfigError
from kafkapy.reactor.tls_admission import ServerTls
from kafkapy.server.peers import Peers
from kafkapy.server.tls.listeners import ClientContexts, TlsListeners
from tests.simulator.io_pool import SimIoPool
from tests.simulator.loop import SimClock, SimLoop
from tests.simulator.network import SimConnector, SimNetwork
from tests.support.certificates import LOCAL_NAMES, Authority, Identity, client_context
from tests.support.chance import SeededRandom

AUTHORITY, STRANGER = Authority(), Authority("another CA")
FIRST = AUTHORITY.issue("broker")
STORES = Path(__file__).parents[3] / "golden" / "key_stores"
PREFIX = "listener.name.ext.ssl."


class Node:
    """A node with a TLS listener, EXT, between whose files and keys tests choose."""

    def __init__(self, directory: Path, **properties: str | None) -> None:
        self.directory = directory
        self.write("first", FIRST)
        (directory / "ca.pem").write_text(AUTHORITY.certificate_pem)
        keys: dict[str, str | None] = (
            {**embedded_properties(data_dir="/logs")}
            | {
                "listeners": "PLAINTEXT://:1,EXT://:2,CONTROLLER://:3",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SSL,CONTROLLER:PLAINTEXT",
                f"{PREFIX}keystore.type": "PEM",
                f"{PREFIX}keystore.location": str(directory / "first"),
                f"{PREFIX}truststore.type": "PEM",
                f"{PREFIX}truststore.location": str(directory / "ca.pem"),
            }
            | properties
        )
        config, _ = load({key: value for key, value in keys.items() if value is not None})
        self.configs = DynamicConfig(config)
        self.listeners = TlsListeners(config)
        self.configs.add_check(self.listeners.check)
        self.configs.add_reader(self.listeners.update)
        (endpoint,) = (each for each in config.listeners if each.listener == "EXT")
        self.secured: ServerTls = self.listeners.secure(config, endpoint)

    @property
    def config(self) -> BrokerConfig:
        return self.configs.current

    def write(self, name: str, identity: Identity) -> None:
        path = self.directory / name
        path.write_text(identity.key_pem() + identity.certificate_pem)
        os.utime(path, ns=(0, hash(identity.certificate_der) & 0xFFFFFFFFFF))

    def alter(self, **keys: str) -> None:
        """Do what kafka-configs.sh does: have the change checked, and then take it."""
        configs = {f"{PREFIX}{key.replace('_', '.')}": value for key, value in keys.items()}
        self.configs.validate(configs, is_per_broker=True)
        self.configs.update(cluster={}, broker=configs)

    def served(self, authority: Authority = AUTHORITY) -> bytes | None:
        """Return the certificate that a new connection finds."""
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context(authority).wrap_bio(to_client, to_server, server_hostname="localhost")
        server = self.secured.context.wrap_bio(to_server, to_client, server_side=True)
        for _ in range(3):
            for side in (client, server):
                try:
                    side.do_handshake()
                except ssl.SSLWantReadError:
                    continue
        return client.getpeercert(binary_form=True)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_another_file_is_taken(node: Node):
    second = AUTHORITY.issue("broker", key_number=2)
    node.write("second", second)
    node.alter(keystore_location=str(node.directory / "second"))
    assert node.served() == second.certificate_der


def test_the_same_value_reads_the_file_anew(node: Node):
    second = AUTHORITY.issue("BROKER", key_number=2)
    before = node.secured.context
    node.alter(keystore_location=str(node.directory / "first"))
    assert node.secured.context is before, "the file is the same"
    node.write("first", second)
    assert node.served() == FIRST.certificate_der, "until somebody says so"
    node.alter(keystore_location=str(node.directory / "first"))
    assert node.served() == second.certificate_der


def test_another_trust_store_is_taken(node: Node):
    (node.directory / "others.pem").write_text(STRANGER.certificate_pem)
    before = node.secured.context
    node.alter(truststore_location=str(node.directory / "others.pem"))
    assert node.secured.context is not before


def test_a_trust_store_under_the_same_name_is_read_anew(node: Node):
    """By a change of any key: its file is newer."""
    path = node.directory / "ca.pem"
    path.write_text(STRANGER.certificate_pem)
    os.utime(path, ns=(0, 7))
    before = node.secured.context
    node.alter(truststore_location=str(path))
    assert node.secured.context is not before


def test_a_listener_without_a_trust_store_gets_none(tmp_path: Path):
    node = Node(tmp_path, **{f"{PREFIX}truststore.location": None, f"{PREFIX}truststore.type": "PEM"})
    for changed in (
        {"truststore_location": str(tmp_path / "ca.pem")},
        {"truststore_certificates": AUTHORITY.certificate_pem},
    ):
        with pytest.raises(
            ConfigError, match="Cannot add SSL truststore to an existing listener for which no truststore"
        ):
            node.alter(**changed)


def test_another_number_of_keys_is_refused(tmp_path: Path):
    stores = {"keystore.type": "JKS", "keystore.location": str(STORES / "keys.jks"), "keystore.password": "storepass"}
    node = Node(tmp_path, **{f"{PREFIX}{key}": value for key, value in {**stores, "key.password": "keypass"}.items()})
    with pytest.raises(ConfigError, match="existing store contains 2 entries, new store contains 1 entries"):
        node.alter(keystore_location=str(STORES / "keys.p12"), key_password="storepass")


def test_a_certificate_may_gain_names(node: Node):
    more = AUTHORITY.issue("broker", [*LOCAL_NAMES, "broker.example"])
    node.write("more", more)
    node.alter(keystore_location=str(node.directory / "more"))
    assert node.served() == more.certificate_der


def _renamed(node: Node) -> None:
    node.write("second", AUTHORITY.issue("other"))


def _without_name(node: Node) -> None:
    node.write("second", AUTHORITY.issue("broker", ["localhost"]))


def _expired(node: Node) -> None:
    node.write("second", AUTHORITY.issue("broker", days=-1))


def _empty(node: Node) -> None:
    (node.directory / "second").write_text("")


def _missing(node: Node) -> None:
    assert not (node.directory / "second").exists()


@pytest.mark.parametrize(
    ("prepare", "reason"),
    [
        (_renamed, "Keystore DistinguishedName does not match: existing=CN=broker, new=CN=other"),
        (_without_name, "Keystore SubjectAltNames do not match"),
        (_expired, "expired on"),
        (_empty, "Private key not provided"),
        (_missing, "the file cannot be read"),
    ],
)
def test_a_refused_change_leaves_all_as_it_was(prepare: Callable[[Node], None], reason: str, node: Node):
    prepare(node)
    with pytest.raises(ConfigError, match=reason):
        node.alter(keystore_location=str(node.directory / "second"))
    assert node.served() == FIRST.certificate_der
    node.listeners.update(node.config)
    assert node.served() == FIRST.certificate_der


def test_names_may_change_where_the_keys_say_so(tmp_path: Path):
    node = Node(tmp_path, **{f"{PREFIX}allow.dn.changes": "true", f"{PREFIX}allow.san.changes": "true"})
    other = AUTHORITY.issue("other", ["localhost"])
    node.write("second", other)
    node.alter(keystore_location=str(node.directory / "second"))
    assert node.served() == other.certificate_der


@pytest.mark.parametrize("allowed", ["dn", "san"])
def test_each_kind_of_name_may_change_by_its_own_key(tmp_path: Path, allowed: str):
    node = Node(tmp_path, **{f"{PREFIX}allow.{allowed}.changes": "true"})
    changed = {"dn": AUTHORITY.issue("other"), "san": AUTHORITY.issue("broker", ["localhost"])}
    for kind, identity in changed.items():
        node.write(kind, identity)
    (refused,) = changed.keys() - {allowed}
    with pytest.raises(ConfigError, match={"dn": "DistinguishedName", "san": "SubjectAltNames"}[refused]):
        node.alter(keystore_location=str(node.directory / refused))
    assert node.served() == FIRST.certificate_der
    node.alter(keystore_location=str(node.directory / allowed))
    assert node.served() == changed[allowed].certificate_der


def test_a_dynamic_config_of_another_key_has_no_effect(node: Node, caplog: pytest.LogCaptureFixture):
    """As in Apache Kafka, whose configs a directory may hold: it refuses no other change, either."""
    before = node.secured.context
    others = {"client_auth": "required", "allow_dn_changes": "true", "cipher_suites": "NONSENSE"}
    for _ in range(2):
        node.alter(**others)
    assert node.secured.context is before
    assert [message.partition(" has no effect")[0] for message in caplog.messages] == [
        f"The dynamic config {PREFIX}{key}" for key in ("allow.dn.changes", "cipher.suites", "client.auth")
    ]
    node.write("second", AUTHORITY.issue("other"))
    with pytest.raises(ConfigError, match="DistinguishedName does not match"):
        node.alter(**others, keystore_location=str(node.directory / "second"))
    third = AUTHORITY.issue("broker", key_number=3)
    node.write("third", third)
    node.alter(**others, keystore_location=str(node.directory / "third"))
    assert node.served() == third.certificate_der
    assert node.secured.context.verify_mode == ssl.CERT_NONE
    restarted = TlsListeners(node.configs.static)
    (endpoint,) = (each for each in node.config.listeners if each.listener == "EXT")
    assert restarted.secure(node.config, endpoint).context.verify_mode == ssl.CERT_NONE


def test_a_dynamic_config_turns_off_no_check_of_other_nodes_names(node: Node):
    contexts = ClientContexts("EXT", node.configs.static, lambda: node.config)
    assert contexts.current().check_hostname
    node.alter(endpoint_identification_algorithm="", truststore_location=str(node.directory / "ca.pem"))
    assert contexts.current().check_hostname


def test_client_auth_that_is_not_the_listeners_own_counts_on_no_sasl_ssl_listener_and_a_warning_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    """KIP-684."""
    protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,EXT:SASL_SSL,CONTROLLER:PLAINTEXT"}
    mechanisms = {"sasl.enabled.mechanisms": "PLAIN", "ssl.client.auth": "required"}
    node = Node(tmp_path, **protocols, **mechanisms)
    assert node.secured.context.verify_mode == ssl.CERT_NONE
    warning = "ssl.client.auth counts only on SSL listeners: EXT has no listener.name.ext.ssl.client.auth"
    assert caplog.messages == [warning]
    caplog.clear()
    for own, mode in (("required", ssl.CERT_REQUIRED), ("none", ssl.CERT_NONE)):
        node = Node(tmp_path, **protocols, **mechanisms, **{f"{PREFIX}client.auth": own})
        assert node.secured.context.verify_mode == mode
    assert not caplog.messages


def test_what_turns_bad_after_it_was_taken_changes_nothing(node: Node, caplog: pytest.LogCaptureFixture):
    (node.directory / "first").write_text("")
    node.listeners.update(node.config)
    assert node.served() == FIRST.certificate_der
    assert "Listener EXT keeps its former certificates" in caplog.text


@pytest.mark.parametrize(
    "configs",
    [{"log.retention.ms": "1000"}, {f"{PREFIX}keystore.location": "first"}],
    ids=["another key", "the same value"],
)
def test_a_file_that_is_broken_refuses_no_change_but_one_that_names_it_anew(
    configs: dict[str, str], node: Node, caplog: pytest.LogCaptureFixture
):
    """As Apache Kafka: it checks a listener whose keys change. A file that has become broken is an error in the log."""
    (node.directory / "first").write_text("")
    changed = {key: str(node.directory / value) if value == "first" else value for key, value in configs.items()}
    node.configs.validate(changed, is_per_broker=True)
    node.configs.update(cluster={}, broker=changed)
    assert node.served() == FIRST.certificate_der
    assert "Listener EXT keeps its former certificates" in caplog.text
    (node.directory / "second").write_text("")
    with pytest.raises(ConfigError, match="Private key not provided"):
        node.configs.validate(
            changed | {f"{PREFIX}keystore.location": str(node.directory / "second")}, is_per_broker=True
        )


def test_a_listener_between_brokers_must_trust_its_own_certificate(tmp_path: Path):
    own = {"inter.broker.listener.name": "EXT"}
    node = Node(tmp_path, **own)
    node.write("second", STRANGER.issue("broker"))
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine created with those settings"):
        node.alter(keystore_location=str(node.directory / "second"))
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        Node(tmp_path, **own, **{f"{PREFIX}keystore.location": str(node.directory / "second")})


def test_a_listener_of_controllers_must_trust_its_own_certificate(tmp_path: Path):
    own = {"controller.listener.names": "EXT", "listeners": "PLAINTEXT://:1,EXT://:2"}
    own["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,EXT:SSL"
    Node(tmp_path, **own).write("second", STRANGER.issue("broker"))
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        Node(tmp_path, **own, **{f"{PREFIX}keystore.location": str(tmp_path / "second")})


def test_a_listener_of_clients_need_not_trust_its_own_certificate(tmp_path: Path):
    Node(tmp_path).write("second", STRANGER.issue("broker"))
    assert Node(tmp_path, **{f"{PREFIX}keystore.location": str(tmp_path / "second")}).served(STRANGER) is not None


def test_the_certificate_of_a_listener_between_brokers_need_not_name_a_host(tmp_path: Path):
    """Only the connections that nodes make check names: ssl.endpoint.identification.algorithm is https."""
    Node(tmp_path).write("second", AUTHORITY.issue("broker", ["elsewhere.example"]))
    own = {"inter.broker.listener.name": "EXT", f"{PREFIX}keystore.location": str(tmp_path / "second")}
    assert Node(tmp_path, **own).secured.context is not None


def test_nodes_connect_with_what_their_files_hold_now(tmp_path: Path):
    node = Node(tmp_path)
    contexts = ClientContexts("EXT", node.config, lambda: node.config)
    first = contexts.current()
    assert contexts.current() is first
    node.write("first", AUTHORITY.issue("broker", key_number=2))
    assert contexts.current() is not first


def test_certificates_between_brokers_change_so_that_the_others_still_trust_this_one(tmp_path: Path):
    """They have the trust store of before, and it theirs: first all trust both authorities, then keys change."""
    node = Node(tmp_path, **{"inter.broker.listener.name": "EXT"})
    node.write("second", STRANGER.issue("broker"))
    (tmp_path / "stranger.pem").write_text(STRANGER.certificate_pem)
    (tmp_path / "both.pem").write_text(STRANGER.certificate_pem + AUTHORITY.certificate_pem)
    second, stranger, both = (str(tmp_path / name) for name in ("second", "stranger.pem", "both.pem"))
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine created with those settings"):
        node.alter(keystore_location=second, truststore_location=stranger)
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        node.alter(truststore_location=stranger)
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        node.alter(truststore_location=both, keystore_location=second)  # others with the former trust store
    assert node.served() == FIRST.certificate_der
    node.alter(truststore_location=both)
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine"):
        node.alter(truststore_location=stranger, keystore_location=second)  # others with the former key store
    node.alter(truststore_location=both, keystore_location=second)
    node.alter(truststore_location=stranger, keystore_location=second)
    assert node.served(STRANGER) is not None


@pytest.mark.parametrize(("before", "after"), [("both.pem", "stranger.pem"), ("ca.pem", "both.pem")])
def test_neither_side_of_a_change_between_brokers_may_distrust_the_other(tmp_path: Path, before: str, after: str):
    """This node would not trust those that have not changed yet, or they not this one."""
    (tmp_path / "stranger.pem").write_text(STRANGER.certificate_pem)
    (tmp_path / "both.pem").write_text(STRANGER.certificate_pem + AUTHORITY.certificate_pem)
    trusted = {f"{PREFIX}truststore.location": str(tmp_path / before)}
    node = Node(tmp_path, **{"inter.broker.listener.name": "EXT"}, **trusted)
    node.write("second", STRANGER.issue("broker"))
    with pytest.raises(ConfigError, match="can't connect to a server SSLEngine created with those settings"):
        node.alter(keystore_location=str(tmp_path / "second"), truststore_location=str(tmp_path / after))
    assert node.served() == FIRST.certificate_der


async def test_a_broker_that_could_connect_to_no_controller_does_not_start(loop: SimLoop, tmp_path: Path):
    config, _ = load(
        {
            "process.roles": "broker",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "9@127.0.0.1:9093",
            "listeners": "PLAINTEXT://:9092",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SSL",
            "log.dirs": "/logs",
            "listener.name.controller.ssl.truststore.type": "PEM",
            "listener.name.controller.ssl.truststore.location": str(tmp_path / "none.pem"),
        }
    )

    clock = SimClock(loop)
    network = SimNetwork(loop)
    with pytest.raises(ConfigError, match=r"none.pem .*the file cannot be read"):
        Peers(
            DynamicConfig(config),
            new_connector=lambda _loop: SimConnector(network, "10.0.0.1"),
            clock=clock,
            random=SeededRandom(1),
            io_pool=SimIoPool(loop),
        )
