"""The schema registry over a broker process, ours or Apache Kafka: stock clients and serializers, many registries."""

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.error import SchemaRegistryError
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from kafka import KafkaConsumer, KafkaProducer

from kafkapy.registry.http.server import Tls
from kafkapy.server.tls.dev_certificates import DevAuthority
from tests.support.client_requests import until
from tests.support.registries import AVRO, AVRO_2, AVRO_3, running_registry

TRADE = {"symbol": "BTCUSDT", "price": 1.5, "at": 17}
AVRO_TRADE = json.dumps(
    {
        "type": "record",
        "name": "Trade",
        "fields": [
            {"name": "symbol", "type": "string"},
            {"name": "price", "type": "double"},
            {"name": "at", "type": "long", "default": 0},
        ],
    }
)
JSON_TRADE = json.dumps(
    {
        "title": "Trade",
        "type": "object",
        "properties": {"symbol": {"type": "string"}, "price": {"type": "number"}, "at": {"type": "integer"}},
        "required": ["symbol"],
    }
)


@pytest.fixture(scope="module")
def url(server) -> Iterator[str]:
    with running_registry(server.bootstrap) as (_, found):
        yield found


@pytest.fixture
def client(url: str) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": url}) as found:
        yield found


def sent_and_read(bootstrap: str, topic: str, value: bytes) -> bytes:
    """Send by confluent-kafka, read by it."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, value)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(60)
    consumer.close()
    assert message is not None
    return message.value()


def context(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_avro_by_confluents_serializers(bootstrap, topic, client):
    data = AvroSerializer(client, AVRO_TRADE)(TRADE, context(topic))
    assert data[0] == 0
    assert AvroDeserializer(client)(sent_and_read(bootstrap, topic, data), context(topic)) == TRADE
    assert client.get_latest_version(f"{topic}-value").schema.schema_type == "AVRO"


def test_json_by_confluents_serializers(bootstrap, topic, client):
    data = JSONSerializer(JSON_TRADE, client)(TRADE, context(topic))
    assert JSONDeserializer(JSON_TRADE, None, client)(sent_and_read(bootstrap, topic, data), context(topic)) == TRADE


def trade_class() -> type:
    """The class of a message whose type of a field is of an imported file."""
    pool = DescriptorPool()
    side = FileDescriptorProto(name="test/side.proto", package="test", syntax="proto3")
    side.message_type.add(name="Side").field.add(name="is_buy", number=1, type=8, label=1)
    trade = FileDescriptorProto(name="test/trade.proto", package="test", syntax="proto3", dependency=[side.name])
    message = trade.message_type.add(name="Trade")
    message.field.add(name="symbol", number=1, type=9, label=1)
    message.field.add(name="side", number=2, type=11, type_name=".test.Side", label=1)
    for file in (side, trade):
        pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("test.Trade"))


def test_protobuf_by_confluents_serializers(bootstrap, topic, client):
    """Registered as descriptors in Base64; the file that is imported is a reference."""
    trade = trade_class()
    message = trade(symbol="BTCUSDT")
    message.side.is_buy = True
    data = ProtobufSerializer(trade, client)(message, context(topic))
    assert ProtobufDeserializer(trade, {}, client)(sent_and_read(bootstrap, topic, data), context(topic)) == message
    schema = client.get_latest_version(f"{topic}-value").schema
    assert schema.schema_str == (
        'syntax = "proto3";\npackage test;\n\nimport "test/side.proto";\n\nmessage Trade {\n  string symbol = 1;\n'
        "  .test.Side side = 2;\n}\n"
    )
    assert [each.name for each in schema.references] == ["test/side.proto"]


def test_other_clients_beside_it(bootstrap, topic, client):
    """kafka-python carries what the serializers make, and what it reads is deserialized."""
    data = AvroSerializer(client, AVRO_TRADE)(TRADE, context(topic))
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    producer.send(topic, data).get(30)
    producer.close()
    consumer = KafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    record = next(consumer)
    consumer.close()
    assert AvroDeserializer(client)(record.value, context(topic)) == TRADE


def test_all_calls_of_confluents_client(topic, client):
    subject, other = f"{topic}-value", f"{topic}-other"
    first = client.register_schema(subject, Schema(AVRO, "AVRO"))
    assert client.get_schema(first).schema_str == AVRO
    assert client.lookup_schema(subject, Schema(AVRO, "AVRO")).version == 1
    assert client.test_compatibility(subject, Schema(AVRO_2, "AVRO"))
    assert not client.test_compatibility(subject, Schema(AVRO_3, "AVRO"))
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(subject, Schema(AVRO_3, "AVRO"))
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 40901)
    client.set_compatibility(subject, "NONE")
    assert client.get_compatibility(subject) == "NONE"
    second = client.register_schema(subject, Schema(AVRO_3, "AVRO"))
    assert client.get_versions(subject) == [1, 2]
    reference = SchemaReference("T", subject, 1)
    outer = '{"type":"record","name":"O","fields":[{"name":"t","type":"T"}]}'
    client.register_schema(other, Schema(outer, "AVRO", [reference]))
    assert client.get_latest_version(other).schema.references == [reference]
    assert client.get_version(subject, 2).schema_id == second
    assert {subject, other} <= set(client.get_subjects())
    assert client.delete_subject(other) == [1]
    assert client.delete_subject(other, permanent=True) == [1]
    assert client.delete_version(subject, 1) == 1
    assert client.get_versions(subject) == [2]


def test_several_registries_elect_one_and_forward_to_it(server, topic):
    """A write on any of them is read on all; when the leader leaves, another one writes, and ids go on."""
    options = {"topic": f"{topic}-schemas", "group": topic}
    with ExitStack() as stack:
        running = [stack.enter_context(running_registry(server.bootstrap, **options)) for _ in range(2)]
        first, second = (node.election for node, _ in running)
        until(lambda: first.leader is not None and first.leader == second.leader)
        (leading, its_url), (following, other_url) = sorted(running, key=lambda each: not each[0].election.is_leader)
        assert not following.election.is_leader
        leader = stack.enter_context(SchemaRegistryClient({"url": its_url}))
        other = stack.enter_context(SchemaRegistryClient({"url": other_url}))
        assert other.register_schema("s", Schema(AVRO, "AVRO")) == 1
        assert other.get_versions("s") == leader.get_versions("s") == [1]
        with pytest.raises(SchemaRegistryError, match="incompatible"):
            other.register_schema("s", Schema(AVRO_3, "AVRO"))
        leading.election.stop()
        until(lambda: following.election.is_leader)
        assert other.register_schema("s", Schema(AVRO_2, "AVRO")) == 2
    with running_registry(server.bootstrap, **options) as (_, url), SchemaRegistryClient({"url": url}) as third:
        assert third.get_versions("s") == [1, 2], "all of it is in the topic"


def test_the_topic_is_compacted_and_has_one_partition(server, topic):
    with running_registry(server.bootstrap, topic=f"{topic}-schemas", group=topic):
        from confluent_kafka.admin import AdminClient, ConfigResource

        admin = AdminClient({"bootstrap.servers": server.bootstrap})
        assert len(admin.list_topics(f"{topic}-schemas").topics[f"{topic}-schemas"].partitions) == 1
        resource = ConfigResource(ConfigResource.Type.TOPIC, f"{topic}-schemas")
        (described,) = admin.describe_configs([resource]).values()
        assert described.result()["cleanup.policy"].value == "compact"


def test_tls_and_basic_authentication(server, topic, tmp_path: Path):
    """Also between registries: the one that does not lead sends a write on, with the user's password."""
    authority = DevAuthority()
    issued = authority.issue("registry")
    files = {"ca": authority.certificate_pem, "certificate": issued.certificate_pem, "key": issued.key_pem}
    paths = {name: str(tmp_path / f"{name}.pem") for name in files}
    for name, text in files.items():
        Path(paths[name]).write_text(text, encoding="utf-8")
    tls = Tls(paths["certificate"], paths["key"], ca=paths["ca"])
    options = {"topic": f"{topic}-schemas", "group": topic, "users": {"alice": "secret"}, "tls": tls}
    with (
        running_registry(server.bootstrap, **options) as (one, one_url),
        running_registry(server.bootstrap, **options) as (two, two_url),
    ):
        until(lambda: two.election.leader is not None and two.election.leader == one.election.leader)
        following = two_url if one.election.is_leader else one_url
        config = {"url": following, "ssl.ca.location": paths["ca"], "basic.auth.user.info": "alice:secret"}
        with SchemaRegistryClient(config) as client:
            assert client.register_schema("s", Schema(AVRO, "AVRO")) == 1
        trusting = ssl.create_default_context(cafile=paths["ca"])
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{following}/subjects", context=trusting)
        assert refused.value.code == 401
        refused.value.close()
