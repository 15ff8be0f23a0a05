"""produce and consume with a schema registry over HTTP; Confluent's serializers are the other side."""

import io
import json
import sys
from types import SimpleNamespace

import confluent_kafka as kafka
import pytest

from kafkapy import Broker
from kafkapy.__main__ import main

registries = pytest.importorskip("confluent_kafka.schema_registry")
avro = pytest.importorskip("confluent_kafka.schema_registry.avro")
serialization = pytest.importorskip("confluent_kafka.serialization")

TRADE = json.dumps({"type": "record", "name": "Trade", "fields": [{"name": "price", "type": "double"}]})
CONTEXT = serialization.SerializationContext("trades", serialization.MessageField.VALUE)


@pytest.fixture(scope="module")
def broker():
    with Broker(registry=True) as running:
        yield running


@pytest.fixture(scope="module")
def client(broker):
    with registries.SchemaRegistryClient({"url": broker.schema_registry_url}) as running:
        running.register_schema("trades-value", registries.Schema(TRADE, "AVRO"))
        yield running


@pytest.fixture
def run(broker, client, capsys, monkeypatch):
    """Run a command with the registry and lines on stdin; return its exit status, stdout and stderr."""

    def run_command(*arguments: str, stdin: bytes = b"", registry: str = "") -> SimpleNamespace:
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(stdin), isatty=lambda: False))
        where = ["-b", broker.bootstrap_servers, "--schema-registry", registry or broker.schema_registry_url]
        status = main([*arguments, *where])
        output = capsys.readouterr()
        return SimpleNamespace(status=status, out=output.out, err=output.err)

    return run_command


def bytes_of_first(broker, topic: str) -> bytes:
    consumer = kafka.Consumer({**broker.client_config(), "group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    (message,) = consumer.consume(1, 30)
    consumer.close()
    return message.value()


def test_confluents_deserializer_reads_what_produce_encodes(broker, client, run) -> None:
    broker.create_topics("trades")
    assert run("produce", "trades", "--value-schema", "trades-value", stdin=b'{"price": 97.5}\n').status == 0
    assert avro.AvroDeserializer(client)(bytes_of_first(broker, "trades"), CONTEXT) == {"price": 97.5}


def test_consume_decodes_what_has_a_schema_and_leaves_the_rest(broker, client, run) -> None:
    broker.create_topics("mixed")
    producer = kafka.Producer(broker.client_config())
    producer.produce("mixed", avro.AvroSerializer(client, TRADE)({"price": 1.5}, CONTEXT), "k")
    producer.produce("mixed", "plain text", "k")
    producer.flush(30)
    assert run("consume", "mixed", "-B", "-e", "-K", ":").out == 'k:{"price": 1.5}\nk:plain text\n'
    raw = run("consume", "mixed", "-B", "-e", "--value-format", "hex").out
    assert raw.startswith("00000000")


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("trade-value", "the schema registry has no subject trade-value. Did you mean trades-value?"),
        ("99", "the schema registry has no schema 99"),
    ],
)
def test_what_the_registry_lacks_is_named(run, schema, said) -> None:
    refused = run("produce", "trades", "--value-schema", schema, stdin=b"{}\n")
    assert (refused.status, said in refused.err) == (2, True), refused.err


def test_a_registry_that_is_not_there_is_said_without_the_words_of_a_library(run) -> None:
    refused = run("produce", "trades", "--value-schema", "x", registry="http://127.0.0.1:1", stdin=b"{}\n")
    assert "the schema registry does not answer: Connection refused (see" in refused.err


PRICE = json.dumps({"type": "number", "minimum": 0})
QUOTE = json.dumps(
    {"title": "Quote", "type": "object", "properties": {"bid": {"$ref": "price.json"}}, "required": ["bid"]}
)


@pytest.fixture
def quotes(broker, client) -> str:
    """A subject of a JSON Schema that refers to another one."""
    pytest.importorskip("jsonschema")
    client.register_schema("price", registries.Schema(PRICE, "JSON"))
    reference = registries.SchemaReference("price.json", "price", 1)
    client.register_schema("quotes-value", registries.Schema(QUOTE, "JSON", [reference]))
    return "quotes-value"


def test_confluents_deserializer_takes_what_a_json_schema_lets_through(broker, client, run, quotes) -> None:
    deserializers = pytest.importorskip("confluent_kafka.schema_registry.json_schema")
    broker.create_topics("quotes")
    assert run("produce", "quotes", "--value-schema", quotes, stdin=b'{"bid": 1.25}\n').status == 0
    data = bytes_of_first(broker, "quotes")
    registered = client.get_latest_version(quotes).schema
    read = deserializers.JSONDeserializer(registered, schema_registry_client=client)
    assert read(data, CONTEXT) == {"bid": 1.25}


def test_what_a_json_schema_refuses_is_not_sent(run, broker, quotes) -> None:
    broker.create_topics("refused")
    refused = run("produce", "refused", "--value-schema", quotes, stdin=b'{"bid": 1}\n{"bid": -1}\n{"bid": 2}\n')
    said = "line 2: not of schema"
    assert (refused.status, said in refused.err, ".bid: -1 is less than the minimum of 0" in refused.err) == (
        1,
        True,
        True,
    )
    assert [record.value for record in broker.topics["refused"].wait_for(1)] == [{"bid": 1}]
