"""`kafkapy security user|acl` against a broker that goes by ACLs, and Broker(acls=...) itself."""

import io
import json
from types import SimpleNamespace

import pytest
import typer
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.passwords import password_of
from kafkapy.cli.security_admin import _acl_row
from kafkapy.metadata.acl_types import Acl, AclOperation, PatternType, PermissionType, ResourceType
from kafkapy.server.login.acl_text import AclTextError, parse_acl

ADMIN = ["allow admin alter cluster", "allow admin describe cluster", "allow admin all topic:*"]


@pytest.fixture
def broker():
    with Broker(users={"admin": "pw"}, acls=ADMIN) as running:
        yield running


@pytest.fixture
def run(broker, tmp_path, capsys):
    path = tmp_path / "client.properties"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    path.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        f'sasl.jaas.config={module} required username="admin" password="pw";\n'
    )

    def run_command(*arguments: str) -> tuple[int, str]:
        connect = ["-b", broker.bootstrap_servers, "--command-config", str(path)]
        status = main(["security", *arguments, *connect])
        output = capsys.readouterr()
        return status, output.out + output.err

    return run_command


def produce(config: dict[str, str], topic: str) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer({**config, "log_level": 0, "message.timeout.ms": 60_000})
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    producer.flush(90)
    return errors[0]


def test_a_user_may_do_what_an_acl_allows(broker, run) -> None:
    admin = AdminClient(broker.client_config("admin"))
    for created in admin.create_topics([NewTopic("orders-1", 1), NewTopic("other", 1)]).values():
        created.result(60)
    status, output = run("user", "add", "bob")
    assert status == 0
    password = output.split("password ")[1].split(":")[0]
    bob = {
        **broker.client_config("admin"),
        "sasl.username": "bob",
        "sasl.password": password,
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    assert run("acl", "add", "-u", "bob", "-o", "write", "-o", "describe", "-r", "topic:orders-*")[0] == 0
    assert produce(bob, "orders-1") is None
    refused = produce(bob, "other")
    assert refused is not None
    assert refused.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    rows = json.loads(run("acl", "list", "--json")[1])
    assert {
        "principal": "User:bob", "permission": "allow", "operation": "write", "resource": "topic:orders-*", "host": "*"
    } in rows  # fmt: skip
    assert run("acl", "remove", "-u", "bob", "-o", "write", "-r", "topic:orders-*") == (0, "Removed 1 ACL of bob.\n")
    assert produce(bob, "orders-1") is not None


def test_a_property_that_no_client_has_is_refused_by_name(run) -> None:
    status, said = run("acl", "list", "-X", "no.such.property=1")
    assert (status, "no.such.property" in said) == (1, True)


def test_acls_are_listed_of_a_user_and_of_what_applies_to_a_resource(run) -> None:
    for user, resource in (
        ("dora", "topic:pay-*"),
        ("dora", "group:pay"),
        ("emil", "topic:pay-1"),
        ("emil", "topic:log"),
    ):
        assert run("acl", "add", "-u", user, "-o", "read", "-r", resource)[0] == 0

    def listed(*options: str) -> set[tuple[str, str]]:
        rows = json.loads(run("acl", "list", "--json", *options)[1])
        return {(row["principal"], row["resource"]) for row in rows if row["principal"] in ("User:dora", "User:emil")}

    assert listed("-u", "dora") == {("User:dora", "topic:pay-*"), ("User:dora", "group:pay")}
    assert listed("-r", "topic:pay-1") == {("User:dora", "topic:pay-*"), ("User:emil", "topic:pay-1")}
    assert listed("-r", "topic:pay-*") == {("User:dora", "topic:pay-*")}
    assert listed("-r", "group") == {("User:dora", "group:pay")}
    assert listed("-u", "User:emil", "-r", "topic:log") == {("User:emil", "topic:log")}
    assert listed("-u", "CN=Dora Maar", "-r", "group:of all") == set(), "names have blanks, too"
    status, said = run("acl", "list", "-r", "topics:pay")
    assert (status, "'topics' is no resource type" in said) == (2, True)


def test_users_are_listed_and_deleted(run) -> None:
    assert run("user", "add", "carol", "--password", "x", "--mechanism", "scram-sha-256")[0] == 0
    listed = json.loads(run("user", "list", "--json")[1])
    assert {"user": "carol", "mechanism": "SCRAM-SHA-256", "iterations": 4096} in listed
    assert run("user", "delete", "carol", "--mechanism", "SCRAM-SHA-256")[0] == 0
    assert "carol" not in run("user", "list")[1]
    status, output = run("user", "delete", "carol", "--mechanism", "SCRAM-SHA-256")
    assert status == 1
    assert "does not exist" in output


def test_what_is_no_acl_is_explained(run) -> None:
    for options, reason in (
        (("-u", "bob", "-o", "reed", "-r", "topic:a"), "'reed' is no operation"),
        (("-u", "bob", "-o", "read", "-r", "topick:a"), "'topick' is no resource type"),
        (("-u", "bob", "-o", "read", "-r", "topic"), "the resource has no name"),
    ):
        status, output = run("acl", "add", *options)
        assert status == 2
        assert reason in output


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_embedded_users_log_in_by_each_mechanism(broker, mechanism) -> None:
    assert AdminClient(broker.client_config("admin", mechanism)).list_topics(timeout=60).brokers


def test_without_acls_that_allow_it_nobody_may_do_anything() -> None:
    with Broker(acls=[]) as broker:
        admin = AdminClient(broker.client_config())
        with pytest.raises(KafkaException):
            admin.create_topics([NewTopic("topic", 1)])["topic"].result(60)


def test_an_acl_of_a_later_release_is_listed() -> None:
    acl = SimpleNamespace(principal="User:a", permission_type=3, operation=99, host="*")
    resource = SimpleNamespace(resource_type=42, resource_name="r", pattern_type=3)
    assert _acl_row(resource, acl) == ("User:a", "allow", "unknown", "unknown:r", "*")


def test_acls_in_words() -> None:
    assert parse_acl("deny * all group:test-*") == Acl(
        ResourceType.GROUP, "test-", PatternType.PREFIXED, "User:*", "*", AclOperation.ALL, PermissionType.DENY
    )
    assert parse_acl("allow bob cluster-action cluster").resource_name == "kafka-cluster"
    assert parse_acl("allow Group:x read topic:*").pattern_type == PatternType.LITERAL
    with pytest.raises(AclTextError, match="must read"):
        parse_acl("allow everything")


def test_operations_are_allowed_on_each_of_several_resources(run) -> None:
    options = ["-r", "topic:a", "-r", "topic:b", "-o", "read", "-o", "write"]
    assert run("acl", "add", "-u", "carol", *options)[0] == 0
    rows = json.loads(run("acl", "list", "--json")[1])
    found = [(each["resource"], each["operation"]) for each in rows if each["principal"] == "User:carol"]
    assert found == [("topic:a", "read"), ("topic:b", "read"), ("topic:a", "write"), ("topic:b", "write")]


def test_without_an_authorizer_no_acls_are_listed(capsys) -> None:
    with Broker() as broker:
        assert main(["security", "acl", "list", "-b", broker.bootstrap_servers]) == 1
    assert "SECURITY_DISABLED" in capsys.readouterr().err


def test_a_password_is_not_empty(run) -> None:
    status, output = run("user", "add", "bob", "--password", "")
    assert (status, "not empty" in output) == (2, True)


def test_a_password_comes_from_a_file_or_standard_input(run, broker, tmp_path, monkeypatch) -> None:
    path = tmp_path / "password"
    path.write_text("of a file\nsecond line\n")
    assert run("user", "add", "ann", "--password-file", str(path)) == (0, "Added user ann.\n")
    monkeypatch.setattr("sys.stdin", io.StringIO("of stdin\n"))
    assert run("user", "add", "ben", "--password-file", "-") == (0, "Added user ben.\n")
    for user, password in (("ann", "of a file"), ("ben", "of stdin")):
        config = {"sasl.username": user, "sasl.password": password, "sasl.mechanism": "SCRAM-SHA-512"}
        AdminClient({**broker.client_config("admin"), **config}).list_topics(timeout=60)


@pytest.mark.parametrize(
    ("options", "text", "status", "message"),
    [
        (["--password-file", "/no/such/file"], "", 1, "/no/such/file: No such file or directory"),
        (["--password-file", "-"], "\n", 2, "a password is not empty"),
        (["--password-file", "-"], "x" * 5_000, 1, "a password of more than 4096 characters"),
        (["--password", "a", "--password-file", "-"], "b", 2, "give one of them"),
        (["--password-prompt"], "", 1, "there is no terminal to ask for the password"),
    ],
)
def test_a_password_that_cannot_be_used_is_refused(run, monkeypatch, options, text, status, message) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO(text))
    done = run("user", "add", "ann", *options)
    assert (done[0], message in done[1]) == (status, True), done


@pytest.mark.parametrize(("typed", "expected"), [(["a", "a"], "a"), (["a", "b"], None)])
def test_a_password_is_typed_twice(typed, expected, monkeypatch, capsys) -> None:
    responses = iter(typed)
    monkeypatch.setattr("sys.stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr("getpass.getpass", lambda prompt: next(responses))
    if expected is not None:
        assert password_of(None, is_prompted=True, file="") == expected
        return
    with pytest.raises(typer.Exit):
        password_of(None, is_prompted=True, file="")
    assert capsys.readouterr().err == "kafkapy: the passwords differ\n"
