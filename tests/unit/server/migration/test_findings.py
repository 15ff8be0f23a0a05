"""What `kafkapy cluster check` says of a cluster and of a server.properties."""

import pytest

from kafkapy.server.migration.findings import Finding, Kind, findings_of, findings_of_properties
from kafkapy.server.migration.survey import HIDDEN, Broker, Partition, Survey, Topic, Voter

BROKER = {
    "process.roles": "broker",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
    "log.dirs": "/data",
}
VOTERS = [Voter(node_id, 10, True) for node_id in (1, 2, 3)]


def survey(**more: object) -> Survey:
    """Return a cluster in which nothing is in the way, but for what is given."""
    partitions = [Partition("orders-0", 1, (1, 2, 3), (3, 1, 2))]
    plain = {
        "cluster_id": "c",
        "brokers": [Broker(1, properties=BROKER, features={"metadata.version": 33, "group.version": 1})],
        "fenced": [],
        "leader_id": 1,
        "voters": VOTERS,
        "topics": [Topic("orders", partitions, min_insync_replicas=2)],
    }
    return Survey(**{**plain, **more})


def of(**more: object) -> list[tuple[Kind, str]]:
    return [(each.kind, each.subject) for each in findings_of(survey(**more))]


def test_nothing_is_reported_of_a_cluster_that_can_be_migrated() -> None:
    assert findings_of(survey()) == []


def test_levels_that_are_not_served_are_lowered_by_one_command() -> None:
    levels = {"transaction.version": 2, "streams.version": 2, "metadata.version": 34}
    found = findings_of(survey(brokers=[Broker(1, properties=BROKER, features=levels)]))
    assert [each.subject for each in found] == ["feature metadata.version", "feature streams.version"]
    command = (
        "kafka-features.sh --bootstrap-server HOST downgrade --feature metadata.version=33 --feature streams.version=1"
    )
    assert {(each.kind, each.remedy) for each in found} == {(Kind.BLOCKS, command)}


@pytest.mark.parametrize(
    ("more", "kind", "subject"),
    [
        ({"voters": [], "leader_id": -1}, Kind.BLOCKS, "quorum"),
        ({"leader_id": -1}, Kind.WAITS, "quorum"),
        ({"voters": [*VOTERS[:2], Voter(3, 1, False)]}, Kind.WAITS, "controller 3"),
        ({"voters": VOTERS[:1]}, Kind.NOTE, "controllers"),
        ({"fenced": [4]}, Kind.WAITS, "broker 4"),
        ({"topics": [Topic("t", [], is_remote=True)]}, Kind.BLOCKS, "topics t"),
        ({"topics": [Topic("t", [Partition("t-0", -1, (1,), (1,))])]}, Kind.WAITS, "1 partitions"),
        ({"topics": [Topic("t", [Partition("t-0", 1, (1, 2), (1,))])]}, Kind.WAITS, "1 partitions"),
        ({"topics": [Topic("t", [Partition("t-0", 1, (1,), (1,))])]}, Kind.NOTE, "1 partitions"),
        ({"topics": [Topic("t", [Partition("t-0", 1, (1, 2), (1, 2))], 2)]}, Kind.NOTE, "1 partitions"),
        ({"reassigned": ["orders-0"]}, Kind.WAITS, "1 partitions"),
        ({"subscriptions": ["s"]}, Kind.NOTE, "client-metrics subscriptions"),
        ({"brokers": [Broker(1, problem="h:1 does not answer")]}, Kind.WAITS, "broker 1"),
        ({"brokers": [Broker(1, properties=BROKER, offline_log_dirs=("/d",))]}, Kind.BLOCKS, "broker 1"),
        ({"brokers": [Broker(1, properties=BROKER, apis=frozenset({0, 52}))]}, Kind.NOTE, "requests"),
        ({"brokers": [Broker(1, properties=BROKER, group_types={"s": "new"})]}, Kind.BLOCKS, "groups s"),
    ],
)
def test_a_cluster_has_one_thing_in_the_way(more: dict[str, object], kind: Kind, subject: str) -> None:
    assert (kind, subject) in of(**more)


def of_file(**more: str) -> list[Finding]:
    return findings_of_properties("f", BROKER | {key.replace("_", "."): value for key, value in more.items()})


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("authorizer.class.name", "com.example.Mine", "no other authorizer is known here"),
        ("create.topic.policy.class.name", "com.example.Mine", "topics that it refuses would be created"),
        ("config.providers", "file", "are not resolved"),
        ("remote.log.storage.system.enable", "true", "there is no remote storage"),
        ("num.io.threads", "none", "Not a number"),
        ("ssl.engine.factory.class", "com.example.Mine", "no class is loaded"),
    ],
)
def test_keys_that_kafkapy_cannot_do_are_in_the_way(key: str, value: str, text: str) -> None:
    (found,) = findings_of_properties("f", BROKER | {key: value})
    assert found.kind is Kind.BLOCKS
    assert text in found.text


def test_a_mechanism_that_is_not_built_is_named_with_its_listener() -> None:
    sasl = {"listeners": "SASL_PLAINTEXT://:9092", "security_inter_broker_protocol": "SASL_PLAINTEXT"}
    (found,) = of_file(**sasl)
    assert found.kind is Kind.BLOCKS
    assert "nodes log in to each other by one of PLAIN" in found.text
    both = {"sasl_enabled_mechanisms": "PLAIN,GSSAPI", "sasl_mechanism_inter_broker_protocol": "PLAIN"}
    (found,) = of_file(**sasl, **both)
    assert (found.kind, found.text) == (Kind.BLOCKS, "listener SASL_PLAINTEXT: SASL mechanism GSSAPI is not built")
    plain = {"sasl_enabled_mechanisms": "PLAIN", "sasl_mechanism_inter_broker_protocol": "PLAIN"}
    assert of_file(**sasl, **plain) == []
    (found,) = of_file(**sasl, **plain, sasl_login_class="com.example.Mine")
    assert found.text == "listener SASL_PLAINTEXT: sasl.login.class=com.example.Mine: no class is loaded"


def test_a_store_that_cannot_be_read_is_in_the_way() -> None:
    (found,) = of_file(listeners="SSL://:9092", security_inter_broker_protocol="SSL", ssl_keystore_type="BCFKS")
    assert found.text == "listener SSL: ssl.keystore.type=BCFKS cannot be read"


def test_keys_without_effect_and_unknown_ones_are_noted() -> None:
    found = findings_of_properties("f", BROKER | {"metric.reporters": "a.B", "my.own": "x", "background.threads": "3"})
    assert [each.kind for each in found] == [Kind.NOTE] * 2
    assert found[0].text == "without effect: background.threads, metric.reporters"
    assert "my.own" in found[1].text


def test_secrets_that_are_withheld_are_named() -> None:
    (found,) = findings_of_properties("f", BROKER | {"listener.name.plaintext.ssl.key.password": HIDDEN})
    assert (found.kind, found.remedy) == (Kind.NOTE, "--config FILE")
