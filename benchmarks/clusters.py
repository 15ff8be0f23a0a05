"""The servers that loads ask for: a node (plaintext, TLS, a cleaner awake, two directories), three or four.

kafkapy and Apache Kafka, and kafkapy compiled where `make compiled` was run; of clusters those two only.
"""

from pathlib import Path

from benchmarks.workload import (
    CLEANING,
    FOUR_NODES,
    METERED,
    SECURED,
    SECURED_RESTARTED,
    THREE_NODES,
    THREE_RESTARTED,
    TLS,
    TWO_DIRECTORIES,
)
from harness.certificates import make_certificate
from harness.listeners import node_keys
from harness.nodes import BROKER, Nodes, Plan, ThreeNodes
from harness.servers import COMPILED_PYTHON, ApacheKafka, CompiledKafkapy, Kafkapy, Server, free_port

COMPILED: tuple[type[Kafkapy], ...] = (CompiledKafkapy,) if COMPILED_PYTHON.exists() else ()
PAIR: tuple[type[Kafkapy] | type[ApacheKafka], ...] = (Kafkapy, ApacheKafka)
KINDS: tuple[type[Kafkapy] | type[ApacheKafka], ...] = (Kafkapy, *COMPILED, ApacheKafka)


def new_pair(servers: str, directory: Path) -> list[Server]:
    """Return a server of each kind, kafkapy first, not started, with directories of their own below `directory`."""
    if servers == TLS:
        return [_with_tls(kind, directory) for kind in KINDS]
    if servers in (SECURED, SECURED_RESTARTED):
        return [_secured(kind, directory) for kind in KINDS]
    if servers in (THREE_NODES, THREE_RESTARTED):
        return [ThreeNodes(kind, directory) for kind in PAIR]
    if servers == FOUR_NODES:
        return [_four_nodes(kind, directory) for kind in PAIR]
    if servers == METERED:
        return [Kafkapy(directory / "metered", {"kafkapy.admin.listener": f"127.0.0.1:{free_port()}"})]
    if servers == TWO_DIRECTORIES:
        return [_with_two_directories(kind, directory / kind.__name__) for kind in KINDS]
    properties = {"log.cleaner.backoff.ms": "50"} if servers == CLEANING else {}
    return [kind(directory / kind.__name__, properties) for kind in KINDS]


def _four_nodes(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Nodes:
    """The fourth is a broker only."""
    return Nodes([Plan(kind, 1), Plan(kind, 2), Plan(kind, 3), Plan(kind, 4, BROKER)], directory)


def _with_two_directories(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Server:
    return kind(directory, {"log.dirs": f"{directory},{second_directory(directory)}"})


def second_directory(directory: Path) -> Path:
    return directory.with_name(f"{directory.name}-second")


def _with_tls(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Server:
    """TLS on the clients' listener with a certificate made for it; the controller's stays plaintext."""
    keys, certificate = make_certificate(directory)
    port = free_port()
    properties = {
        "listeners": f"SSL://127.0.0.1:{port}",
        "security.inter.broker.protocol": "SSL",
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,SSL:SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    if kind is ApacheKafka:
        controller_port = free_port()
        properties["listeners"] += f",CONTROLLER://127.0.0.1:{controller_port}"
        properties["controller.quorum.bootstrap.servers"] = f"127.0.0.1:{controller_port}"
    server = kind(directory / kind.__name__, properties)
    server.port = port
    server.speaks_tls = True
    server.client_settings = {"security.protocol": "ssl", "ssl.ca.location": str(certificate)}
    server.java_settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    return server


SECURED_USER, SECURED_PASSWORD = "alice", "wonderful-secret"
MECHANISMS = {"PLAIN": f'plain.PlainLoginModule required user_{SECURED_USER}="{SECURED_PASSWORD}"'}
MECHANISMS["SCRAM-SHA-256"] = "scram.ScramLoginModule required"


def _secured(kind: type[Kafkapy] | type[ApacheKafka], directory: Path) -> Server:
    """PLAINTEXT for what is prepared, SSL, MTLS, SASL_PLAINTEXT; an authorizer to whom all but one user are super."""
    keys, certificate = make_certificate(directory)
    ports = {name: free_port() for name in ("PLAINTEXT", "SSL", "MTLS", "SASL_PLAINTEXT", "CONTROLLER")}
    prefix = "listener.name.sasl_plaintext"
    properties = {
        **node_keys(ports, {"MTLS": "SSL"}),
        "offsets.topic.replication.factor": "1",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(keys),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
        "listener.name.mtls.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        **{
            f"{prefix}.{name.lower()}.sasl.jaas.config": f"org.apache.kafka.common.security.{module};"
            for name, module in MECHANISMS.items()
        },
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    if kind is ApacheKafka:
        properties["controller.quorum.bootstrap.servers"] = ""
    server = kind(directory / kind.__name__, properties)
    server.port = ports["PLAINTEXT"]
    return server


def listener_port(server: Server, listener: str) -> int:
    """Return where a listener of the secured pair is."""
    assert isinstance(server, Kafkapy | ApacheKafka)
    for each in server.properties["listeners"].split(","):
        name, _, address = each.partition("://")
        if name == listener:
            return int(address.rpartition(":")[2])
    raise LookupError(listener)


def secured_files(server: Server) -> tuple[Path, Path]:
    """Return the key with its certificate, and the certificate that clients trust, of the secured pair."""
    assert isinstance(server, Kafkapy | ApacheKafka)
    return Path(server.properties["ssl.keystore.location"]), Path(server.properties["ssl.truststore.location"])
