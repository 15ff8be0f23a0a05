"""ACLs by kafka-acls.sh and by librdkafka, and what a client without the right meets: with either broker."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from harness.nodes import ThreeNodes
from harness.servers import ApacheKafka, Kafkapy, Server
from tests.compat.conftest import new_server
from tests.compat.test_cluster import KIND, eventually
from tests.compat.test_cluster import PROPERTIES as CLUSTER
from tools.kafka import JAVA_LIBS

pytestmark = pytest.mark.long

AUTHORIZER = {"authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer"}
ALL_ARE_SUPER_USERS = {**AUTHORIZER, "super.users": "User:ANONYMOUS"}
OPEN_AT_FIRST = {**AUTHORIZER, "allow.everyone.if.no.acl.found": "true"}
LITERAL, PREFIXED = ResourcePatternType.LITERAL, ResourcePatternType.PREFIXED
ALLOW, DENY, ANY = AclPermissionType.ALLOW, AclPermissionType.DENY, AclPermissionType.ANY
EVERY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)
Acls = Callable[..., str]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with new_server(tmp_path_factory.mktemp("guarded") / "data", ALL_ARE_SUPER_USERS) as running:
        yield running


@pytest.fixture
def acls(java_tool: Callable[..., str], guarded: Server) -> Acls:
    def run(*arguments: str) -> str:
        return java_tool("org.apache.kafka.tools.AclCommand", "--bootstrap-server", guarded.bootstrap, *arguments)

    return run


def admin(server: Server) -> AdminClient:
    return AdminClient({"bootstrap.servers": server.bootstrap})


def create(server: Server, *bindings: AclBinding) -> None:
    client = admin(server)
    for created in client.create_acls(list(bindings)).values():
        created.result(60)


def names(server: Server) -> list[str]:
    client = admin(server)
    return [each.name for each in client.describe_acls(EVERY).result(60)]


def reported(server: Server) -> list[str]:
    client = admin(server)
    return [str(each) for each in client.describe_acls(EVERY).result(60)]


def binding(resource: ResourceType, name: str, principal: str, operation: AclOperation, **fields: object) -> AclBinding:
    values = {"pattern": LITERAL, "host": "*", "permission": ALLOW, **fields}
    return AclBinding(resource, name, values["pattern"], principal, values["host"], operation, values["permission"])


def entries(output: str) -> list[str]:
    """Return the patterns and entries that the tool prints, sorted: it keeps them in hash maps."""
    return sorted({line.strip() for line in output.splitlines() if line.strip()})


def entry(operation: str, principal: str = "User:alice", host: str = "*", permission: str = "ALLOW") -> str:
    return f"(principal={principal}, host={host}, operation={operation}, permissionType={permission})"


def current(resource: str, name: str, pattern: str = "LITERAL") -> str:
    return f"Current ACLs for resource `ResourcePattern(resourceType={resource}, name={name}, patternType={pattern})`:"


def test_a_producers_rights_are_added_listed_and_removed(acls: Acls, guarded: Server) -> None:
    producer = ["--producer", "--idempotent", "--allow-principal", "User:alice", "--topic", "orders"]
    acls("--add", *producer)
    assert entries(acls("--list", "--principal", "User:alice")) == sorted(
        [
            "ACLs for principal `User:alice`",
            current("TOPIC", "orders"),
            current("CLUSTER", "kafka-cluster"),
            *(entry(operation) for operation in ("WRITE", "DESCRIBE", "CREATE", "IDEMPOTENT_WRITE")),
        ]
    )
    acls("--remove", *producer, "--force")
    assert names(guarded) == []


def test_a_consumers_rights_are_added_listed_and_removed(acls: Acls, guarded: Server) -> None:
    consumer = ["--consumer", "--allow-principal", "User:carol", "--topic", "orders", "--group", "readers"]
    acls("--add", *consumer)
    assert entries(acls("--list", "--principal", "User:carol")) == sorted(
        [
            "ACLs for principal `User:carol`",
            current("TOPIC", "orders"),
            current("GROUP", "readers"),
            *(entry(operation, "User:carol") for operation in ("READ", "DESCRIBE")),
        ]
    )
    acls("--remove", *consumer, "--force")
    assert names(guarded) == []


def test_what_applies_to_a_name_is_found_and_deleted(acls: Acls, guarded: Server) -> None:
    create(
        guarded,
        binding(ResourceType.TOPIC, "ord", "User:bob", AclOperation.READ, pattern=PREFIXED),
        binding(ResourceType.TOPIC, "*", "User:bob", AclOperation.ALL, host="10.0.0.1", permission=DENY),
        binding(ResourceType.TOPIC, "orders", "User:*", AclOperation.READ),
        binding(ResourceType.TOPIC, "other", "User:*", AclOperation.READ),
    )
    assert entries(acls("--list", "--topic", "orders", "--resource-pattern-type", "match")) == sorted(
        [
            current("TOPIC", "orders"),
            current("TOPIC", "ord", "PREFIXED"),
            current("TOPIC", "*"),
            entry("READ", "User:*"),
            entry("READ", "User:bob"),
            entry("ALL", "User:bob", "10.0.0.1", "DENY"),
        ]
    )
    wanted = AclBindingFilter(
        ResourceType.TOPIC, "orders", ResourcePatternType.MATCH, None, None, AclOperation.ANY, AclPermissionType.ANY
    )
    client = admin(guarded)
    (deleted,) = client.delete_acls([wanted]).values()
    assert sorted(each.name for each in deleted.result(60)) == ["*", "ord", "orders"]
    assert names(guarded) == ["other"]


def test_what_is_denied_is_denied_before_and_after_a_restart(tmp_path: Path) -> None:
    """The producer is idempotent by default, which WRITE on any topic is enough for (KIP-679)."""
    anonymous = "User:ANONYMOUS"
    with new_server(tmp_path / "data", OPEN_AT_FIRST) as server:
        cluster = (ResourceType.BROKER, "kafka-cluster", anonymous)
        create(server, binding(*cluster, AclOperation.ALL))
        create(
            server,
            binding(*cluster, AclOperation.IDEMPOTENT_WRITE, permission=DENY),
            binding(ResourceType.TOPIC, "open-", anonymous, AclOperation.WRITE, pattern=PREFIXED),
            binding(ResourceType.TOPIC, "secret", "User:alice", AclOperation.WRITE),
        )
        for _ in range(2):
            assert produced(server, "open-orders") is None
            assert produced(server, "secret") == KafkaError.TOPIC_AUTHORIZATION_FAILED
            server.stop()
            server.start()


@pytest.mark.ours
@pytest.mark.skipif(not JAVA_LIBS.is_dir(), reason="Apache Kafka's jars are missing: run `make tools`")
def test_they_go_from_one_broker_to_the_other_and_back(tmp_path: Path) -> None:
    expected: set[str] = set()
    for turn, kind in enumerate((Kafkapy, ApacheKafka, Kafkapy)):
        with kind(tmp_path / "data", ALL_ARE_SUPER_USERS) as server:
            assert set(reported(server)) == expected
            kept = binding(ResourceType.TOPIC, f"kept-{turn}", "User:a", AclOperation.READ, pattern=PREFIXED)
            gone = binding(ResourceType.GROUP, f"gone-{turn}", "User:b", AclOperation.ALL, permission=DENY)
            create(server, kept, gone)
            client = admin(server)
            wanted = AclBindingFilter(
                ResourceType.ANY, f"gone-{turn - 1}", ResourcePatternType.ANY, None, None, AclOperation.ANY, ANY
            )
            (deleted,) = client.delete_acls([wanted]).values()
            assert len(deleted.result(60)) == (turn > 0)
            expected = set(reported(server))
            assert len(expected) == turn + 2


def test_any_node_of_a_cluster_takes_them_and_all_of_them_know(tmp_path: Path) -> None:
    """A quorum's nodes are super users: they ask each other before any ACL is loaded."""
    with ThreeNodes(KIND, tmp_path, {**CLUSTER, **ALL_ARE_SUPER_USERS}) as cluster:
        for number, node in enumerate(cluster.nodes):
            create(node, binding(ResourceType.TOPIC, f"orders-{number}", "User:alice", AclOperation.READ))
        for node in cluster.nodes:
            eventually(lambda node=node: sorted(names(node)) == ["orders-0", "orders-1", "orders-2"])


def produced(server: Server, topic: str) -> int | None:
    """Return the error of a record that is produced."""
    errors: list[KafkaError | None] = []
    properties = {"bootstrap.servers": server.bootstrap, "enable.idempotence": True, "message.timeout.ms": 60_000}
    producer = Producer(properties)
    producer.produce(topic, b"v", on_delivery=lambda error, _: errors.append(error))
    producer.flush(90)
    return None if errors[0] is None else errors[0].code()
