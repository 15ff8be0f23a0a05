"""Three nodes that log in to each other: PLAIN to the controllers' listener, SCRAM to the brokers' one.

The authorizer knows the nodes by the name that they log in with. Clients come over PLAINTEXT.
"""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, ScramMechanism

from harness.nodes import BROKER, CONTROLLER, Nodes, Plan, ThreeNodes
from harness.servers import ApacheKafka, Kafkapy
from tests.compat.test_cluster import KIND, PROPERTIES, TIMEOUT_S
from tests.compat.test_tls_cluster import check_java_in_place, create, in_sync, produce
from tests.support.certificates import Authority
from tests.support.eventually import eventually
from tests.support.logins import PLAIN_MODULE, SCRAM_MODULE
from tests.support.scram_users import add_user
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

LOGIN = 'username="node" password="node-secret"'
REFUSED = "Could not log in" if KIND is Kafkapy else "Authentication failed: Invalid username or password"


def properties() -> dict[str, str]:
    return {
        **PROPERTIES,
        "offsets.topic.replication.factor": "3",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.brokers.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.brokers.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} {LOGIN};",
        "listener.name.controller.plain.sasl.jaas.config": f'{PLAIN_MODULE} {LOGIN} user_node="node-secret";',
        "listener.name.controller.plain.connections.max.reauth.ms": "3000",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node;User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
        "early.start.listeners": "CONTROLLER",
    }


def over_tls(directory: Path) -> dict[str, str]:
    """Return the same with SASL_SSL for both listeners."""
    authority = Authority()
    keys = authority.issue("node", ["localhost", "127.0.0.1"]).write(directory, "node")
    (directory / "ca.pem").write_text(authority.certificate_pem)
    return {
        **properties(),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca.pem"),
    }


def add_node_user(cluster: ThreeNodes) -> None:
    add_user(cluster.bootstrap, "node", "node-secret", (ScramMechanism.SCRAM_SHA_512,))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ThreeNodes]:
    directory = tmp_path_factory.mktemp("sasl")
    with ThreeNodes([KIND] * 3, directory, properties(), heap="384m", more_listeners=["BROKERS"]) as running:
        add_node_user(running)
        yield running


def test_replicas_follow_and_a_killed_node_is_replaced_and_comes_back(cluster: ThreeNodes) -> None:
    """Sessions with the controllers end every three seconds, and are renewed meanwhile."""
    create(cluster, "orders")
    produce(cluster, "orders", 600)
    victim = cluster.by_id[2]
    victim.stop(signal.SIGKILL)
    eventually(lambda: in_sync(cluster, "orders") == [2] * 6)
    produce(cluster, "orders", 600)
    victim.start()
    eventually(lambda: in_sync(cluster, "orders") == [3] * 6)


def test_a_node_with_a_wrong_password_does_not_get_in(cluster: ThreeNodes) -> None:
    create(cluster, "guarded")
    victim = cluster.by_id[3]
    victim.stop()
    wrong = LOGIN.replace("node-secret", "wrong")
    key = "listener.name.controller.plain.sasl.jaas.config"
    victim.properties |= {key: f'{PLAIN_MODULE} {wrong} user_node="node-secret";'}
    victim.prepare()
    victim.launch()
    log = Path(f"{victim.directory}.log")
    eventually(lambda: REFUSED in log.read_text(errors="replace"))
    produce(cluster, "guarded", 60)
    eventually(lambda: set(in_sync(cluster, "guarded")) == {2})
    assert "node-secret" not in log.read_text(errors="replace")
    victim.stop(signal.SIGKILL)


def test_brokers_log_in_by_scram_to_a_controller_that_was_formatted_with_their_user(tmp_path: Path) -> None:
    """KIP-900. Among several controllers it cannot work: credentials come with the metadata of an elected leader."""
    settings = {
        **PROPERTIES,
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": f"{SCRAM_MODULE} {LOGIN};",
    }
    plans = [Plan(KIND, 1, CONTROLLER), Plan(KIND, 2, BROKER)]
    nodes = Nodes(plans, tmp_path, settings, heap="384m")
    nodes.by_id[1].format_arguments = ["--add-scram", "SCRAM-SHA-512=[name=node,password=node-secret]"]
    with nodes:
        metadata = AdminClient({"bootstrap.servers": nodes.bootstrap}).list_topics(timeout=TIMEOUT_S)
        assert [*metadata.brokers] == [2]


@pytest.mark.skipif(KIND is ApacheKafka, reason="Java among ours")
@pytest.mark.skipif(not JAVA_LIBS.is_dir() or shutil.which("java") is None, reason="`make tools` brings the jars")
def test_a_java_node_takes_the_place_of_one_of_ours(tmp_path: Path) -> None:
    """It logs in to ours by PLAIN and SCRAM, and ours to it, over TLS."""
    cluster = ThreeNodes([KIND] * 3, tmp_path, over_tls(tmp_path), more_listeners=["BROKERS"])
    check_java_in_place(cluster, add_node_user)
