"""Spark's from_avro and to_avro beside Confluent's serializers: the schemas are those of the registry, found by id."""

import json
from collections.abc import Iterator

import pytest

pytest.importorskip("fastavro")
pytest.importorskip("confluent_kafka.schema_registry")

from confluent_kafka import Consumer, Producer
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from spark_jobs.topics import create_topic
from tests.support.registries import running_registry

pytestmark = [
    pytest.mark.long,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::DeprecationWarning"),
]
FIELDS = [{"name": "symbol", "type": "string"}, {"name": "price", "type": "double"}]
TRADE = json.dumps({"type": "record", "name": "Trade", "fields": FIELDS})
AT = {"name": "at", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}], "default": None}
TIMED_TRADE = json.dumps({"type": "record", "name": "Trade", "fields": [*FIELDS, AT]})
ID_OF = "cast(conv(hex(substring(value, 2, 4)), 16, 10) as int)"
"""Confluent's header: a zero, and four bytes with the id of the schema."""


@pytest.fixture(scope="module")
def client(server) -> Iterator[SchemaRegistryClient]:
    with running_registry(server.bootstrap) as (_, url), SchemaRegistryClient({"url": url}) as found:
        yield found


def produce(bootstrap: str, topic: str, client: SchemaRegistryClient, schema: str, trades: list[dict]) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    context = SerializationContext(topic, MessageField.VALUE)
    serializer = AvroSerializer(client, schema)
    for trade in trades:
        producer.produce(topic, serializer(trade, context))
    assert producer.flush(60) == 0


def test_from_avro_reads_what_confluents_serializer_wrote_by_the_schema_of_each_id(spark, bootstrap, topic, client):
    from pyspark.sql.avro.functions import from_avro
    from pyspark.sql.functions import col, expr

    create_topic(bootstrap, topic, 1)
    produce(bootstrap, topic, client, TRADE, [{"symbol": "BTC", "price": 1.5}, {"symbol": "ETH", "price": 2.5}])
    produce(bootstrap, topic, client, TIMED_TRADE, [{"symbol": "BTC", "price": 3.5, "at": 17}])
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
    frame = spark.read.format("kafka").options(**options).load().withColumn("id", expr(ID_OF))
    found = {}
    for row in frame.select("id").distinct().collect():
        schema = client.get_schema(row.id).schema_str
        of_schema = frame.where(col("id") == row.id).select(from_avro(expr("substring(value, 6)"), schema).alias("t"))
        found[row.id] = [each.asDict() for each in of_schema.select("t.*").collect()]
    versions = [client.get_version(f"{topic}-value", number).schema_id for number in (1, 2)]
    assert found.keys() == set(versions)
    assert found[versions[0]] == [{"symbol": "BTC", "price": 1.5}, {"symbol": "ETH", "price": 2.5}]
    (timed,) = found[versions[1]]
    assert (timed["symbol"], timed["price"], timed["at"].timestamp()) == ("BTC", 3.5, 0.017)


def test_confluents_deserializer_reads_what_to_avro_wrote(spark, bootstrap, topic, client):
    from pyspark.sql.avro.functions import to_avro
    from pyspark.sql.functions import concat, expr, lit, struct

    create_topic(bootstrap, topic, 1)
    schema_id = client.register_schema(f"{topic}-value", Schema(TRADE, "AVRO"))
    header = bytearray(b"\0" + schema_id.to_bytes(4, "big"))
    frame = spark.createDataFrame([("BTC", 1.5), ("ETH", 2.5)], "symbol string, price double").coalesce(1)
    value = concat(lit(header), to_avro(struct(expr("symbol"), expr("price")), client.get_schema(schema_id).schema_str))
    sink = frame.select(value.alias("value")).write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    sink.option("topic", topic).save()
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    messages = consumer.consume(2, 60)
    consumer.close()
    deserializer = AvroDeserializer(client, TRADE)
    context = SerializationContext(topic, MessageField.VALUE)
    assert [deserializer(message.value(), context) for message in messages] == [
        {"symbol": "BTC", "price": 1.5},
        {"symbol": "ETH", "price": 2.5},
    ]
