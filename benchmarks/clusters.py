"""The servers that loads ask for: a node (plaintext, TLS, a cleaner awake, two directories), three or four.

kafkapy and Apache Kafka, and kafkapy compiled where `make compiled` was run; of clusters those two only.
"""

from pathlib import Path

from benchmarks.workload import CLEANING, FOUR_NODES, THREE_NODES, THREE_RESTARTED, TLS, TWO_DIRECTORIES
from harness.certificates import make_certificate
from harness.nodes import BROKER, Nodes, Plan, ThreeNodes
from harness.servers import COMPILED_PYTHON, ApacheKafka, CompiledKafkapy, Kafkapy, Server, free_port

COMPILED: tuple[type[Kafkapy], ...] = (CompiledKafkapy,) if COMPILED_PYTHON.exists() else ()
PAIR: tuple[type[Kafkapy] | type[ApacheKafka], ...] = (Kafkapy, ApacheKafka)
KINDS: tuple[type[Kafkapy] | type[ApacheKafka], ...] = (Kafkapy, *COMPILED, ApacheKafka)


def new_pair(servers: str, directory: Path) -> list[Server]:
    """Return a server of each kind, kafkapy first, not started, with directories of their own below `directory`."""
    if servers == TLS:
        return [_with_tls(kind, directory) for kind in KINDS]
    if servers in (THREE_NODES, THREE_RESTARTED):
        return [with_small_heaps(ThreeNodes(kind, directory)) for kind in PAIR]
    if servers == FOUR_NODES:
        return [with_small_heaps(_four_nodes(kind, directory)) for kind in PAIR]
    if servers == TWO_DIRECTORIES:
        return [_with_two_directories(kind, directory / kind.__name__) for kind in KINDS]
    properties = {"log.cleaner.backoff.ms": "50"} if servers == CLEANING else {}
    return [kind(directory / kind.__name__, properties) for kind in KINDS]


def with_small_heaps(nodes: Nodes) -> Nodes:
    """Give each JVM 256 MiB: there are several."""
    for node in nodes.nodes:
        if isinstance(node, ApacheKafka):
            node.heap = "256m"
    return nodes


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
    server.client_settings = {"security.protocol": "ssl", "ssl.ca.location": str(certificate)}
    server.java_settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificate),
    }
    return server
