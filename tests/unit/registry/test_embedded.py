"""Registries in a program, and what the command refuses."""

import os
import sys
from pathlib import Path

import pytest

pytest.importorskip("confluent_kafka.schema_registry")
pytest.importorskip("uvicorn")

from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from kafkapy import Broker, Cluster
from kafkapy.cli.profiles import Profile, Profiles, path_of_profiles, save
from kafkapy.decoders.errors import DecodeError
from kafkapy.decoders.registry import SchemaRegistry, SubjectVersion
from kafkapy.registry.election import Identity, assignment_of
from kafkapy.registry.main import OptionError, main, users_of
from kafkapy.registry.records import parse_json
from kafkapy.server.cluster.plan import ClusterError
from tests.support.registries import AVRO, AVRO_2


@pytest.mark.parametrize(
    "options",
    [{}, {"tls": True, "users": {"alice": "secret"}}, {"users": {"alice": "secret"}, "acls": []}],
    ids=["plain", "tls and logins", "acls"],
)
def test_a_broker_has_a_registry_beside_it(options):
    with (
        Broker(registry=True, **options) as broker,
        SchemaRegistryClient({"url": broker.schema_registry_url}) as client,
    ):
        assert client.register_schema("s", Schema(AVRO, "AVRO")) == 1


def test_schemas_outlive_a_restart_of_the_broker_and_its_end(tmp_path: Path):
    with Broker(tmp_path, registry=True) as broker:
        url = broker.schema_registry_url
        with SchemaRegistryClient({"url": url}) as client:
            client.register_schema("s", Schema(AVRO, "AVRO"))
            broker.restart()
            assert broker.schema_registry_url == url
            assert client.register_schema("s", Schema(AVRO_2, "AVRO")) == 2
    with Broker(tmp_path, registry=True) as broker, SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
        assert client.get_versions("s") == [1, 2]
    with pytest.raises(RuntimeError, match="not running"):
        broker.schema_registry_url  # noqa: B018


@pytest.mark.parametrize("options", [{}, {"users": {"alice": "secret"}, "acls": []}], ids=["plain", "acls"])
def test_a_cluster_has_a_registry_beside_it(options):
    with Cluster(3, in_process=True, registry=True, **options) as cluster:
        with SchemaRegistryClient({"url": cluster.schema_registry_url}) as client:
            assert client.register_schema("orders-value", Schema(AVRO, "AVRO")) == 1
        assert cluster.partitions().isr_sizes["_schemas"] == {0: 3}
    with Cluster(1, in_process=True) as cluster, pytest.raises(ClusterError, match="registry=True"):
        cluster.schema_registry_url  # noqa: B018


async def test_on_the_callers_loop():
    import asyncio

    async with Broker(registry=True) as broker:
        with SchemaRegistryClient({"url": broker.schema_registry_url}) as client:
            assert await asyncio.to_thread(client.register_schema, "s", Schema(AVRO, "AVRO")) == 1


def test_a_broker_without_one_says_so():
    with Broker() as broker, pytest.raises(RuntimeError, match=r"Broker\(registry=True\)"):
        broker.schema_registry_url  # noqa: B018


def test_the_fixture(schema_registry, kafka_topic):
    with SchemaRegistryClient({"url": schema_registry}) as client:
        client.register_schema(f"{kafka_topic}-value", Schema(AVRO, "AVRO"))
        assert client.get_versions(f"{kafka_topic}-value") == [1]


def test_the_consoles_client_lists_what_is_there(schema_registry, kafka_topic):
    subject = f"{kafka_topic}/value"
    with SchemaRegistryClient({"url": schema_registry}) as client:
        schema_id = client.register_schema(subject, Schema(AVRO, "AVRO"))
        client.set_compatibility(subject, "FULL")
    registry = SchemaRegistry(schema_registry)
    assert subject in registry.subjects()
    assert registry.newest_versions(subject) == [SubjectVersion(subject, 1, schema_id, "AVRO", AVRO)]
    assert registry.level(subject) == "FULL"
    with pytest.raises(DecodeError, match="answers 404"):
        registry.newest_versions("none")


def test_a_directory_has_no_subjects(tmp_path: Path):
    with pytest.raises(DecodeError, match="by number, not by subject"):
        SchemaRegistry(str(tmp_path)).subjects()


def test_without_its_packages_the_error_names_the_extra(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(ImportError, match=r"needs uvicorn: pip install 'kafkapy-broker\[registry\]'"):
        Broker(registry=True).__enter__()
    assert main(["--listen", "127.0.0.1:0"]) == 1
    assert "the registry needs uvicorn: pip install 'kafkapy-broker[registry]'" in capsys.readouterr().err


def test_a_cluster_that_does_not_answer_is_named(capsys):
    assert main(["-b", "127.0.0.1:1", "--listen", "127.0.0.1:0"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err


def test_a_registry_may_listen_at_every_address(capsys):
    assert main(["-b", "127.0.0.1:1", "--listen", ":0"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err, "the listener is no error"


def test_a_profile_names_the_cluster_of_the_command(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    save(path_of_profiles(os.environ), Profiles({"gone": Profile("127.0.0.1:1")}))
    assert main(["--profile", "gone", "--listen", "127.0.0.1:0"]) == 1
    assert "no broker answers at 127.0.0.1:1" in capsys.readouterr().err
    assert main(["--profile", "gone", "-b", "127.0.0.1:2"]) == 1
    assert "--profile gone and -b name a cluster each: give one" in capsys.readouterr().err


def test_users_come_from_a_file(tmp_path: Path):
    file = tmp_path / "users"
    file.write_text("# names\nalice: secret,admin\nbob:other\n", encoding="utf-8")
    assert users_of(str(file)) == {"alice": "secret", "bob": "other"}
    file.write_text("alice\n", encoding="utf-8")
    with pytest.raises(OptionError, match="line 1 must read NAME: PASSWORD"):
        users_of(str(file))


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--tls-certificate", "none.pem"], "TLS needs both"),
        (["--tls-certificate", "none.pem", "--tls-key", "none.pem"], "No such file"),
        (["--users", "none"], "No such file"),
        (["--compatibility", "SIDEWAYS"], "invalid choice"),
    ],
)
def test_options_that_cannot_be_are_refused(arguments, reason, capsys):
    try:
        status = main(["--listen", "127.0.0.1:0", *arguments])
    except SystemExit as error:
        status = error.code
    assert status in (1, 2)
    assert reason in capsys.readouterr().err


def test_the_member_that_leads_goes_on_else_the_smallest_url_leads():
    one, two, three = (Identity("http", "host", port) for port in (1, 2, 3))
    leading = Identity("http", "host", 3, leads=True)
    idle = Identity("http", "host", 0, eligible=False)
    response = parse_json(assignment_of({"a": two, "b": one, "c": idle}))
    assert (response["error"], response["master"], response["master_identity"]["port"]) == (0, "b", 1)
    assert parse_json(assignment_of({"a": one, "b": leading}))["master"] == "b"
    assert (
        parse_json(assignment_of({"a": one, "b": Identity("http", "host", 2, leads=True), "c": leading}))["master"]
        == "a"
    )
    assert parse_json(assignment_of({"a": three, "b": three}))["error"] == 1
    assert "master" not in parse_json(assignment_of({"c": idle}))
