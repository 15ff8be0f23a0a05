"""What is looked at on clusters, secured brokers and brokers that look like an older Kafka, as on any broker."""

import pytest
from confluent_kafka import Consumer, Producer

from kafkapy.testing import Broker, Cluster, NewKafkaBroker, NotObserved

TIMEOUT_S = 60
ROWS = [{"id": number} for number in range(30)]


def read_all(config: dict[str, str], group: str) -> None:
    consumer = Consumer({**config, "group.id": group, "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    for _ in ROWS:
        message = consumer.poll(TIMEOUT_S)
        assert message is not None
        assert message.error() is None, message.error()
    consumer.commit(asynchronous=False)
    consumer.close()


def check(world: Broker | Cluster, config: dict[str, str]) -> None:
    assert world.topics["orders"].produce(ROWS, key="id") == 30
    assert sorted(record.value["id"] for record in world.topics["orders"].wait_for(30)) == list(range(30))
    world.topics["orders"].assert_delivered_once(ROWS)
    read_all(config, "readers")
    world.groups["readers"].wait_for_lag(0)
    assert world.groups["readers"].wait_for_state("Empty") == "Empty"
    assert sum(world.groups["readers"].committed.values()) == 30


def test_nodes_in_this_process() -> None:
    with Cluster(3, in_process=True) as cluster:
        cluster.create_topics("orders", partitions=6)
        cluster.requests.on()
        check(cluster, cluster.client_config())
        assert cluster.requests.matching("OffsetCommit", group="readers")
        assert not any((request.client_id or "").startswith("kafkapy") for request in cluster.requests)
        assert {request.client_id for request in cluster.requests} == {"rdkafka"}


@pytest.mark.long
def test_nodes_that_are_processes() -> None:
    with Cluster(3) as cluster:
        cluster.create_topics("orders", partitions=6)
        check(cluster, cluster.client_config())
        cluster.kill(cluster.leader_of("orders", 0))
        cluster.topics["orders"].assert_delivered_once(ROWS, timeout_s=TIMEOUT_S)
        with pytest.raises(NotObserved, match="orders: 30 records, the last:"):
            cluster.topics["orders"].wait_for(31, timeout_s=0.05)


def test_tls_users_and_acls_are_passed_by(new_kafka_broker: NewKafkaBroker) -> None:
    acls = ["allow alice all topic:orders", "allow alice all group:readers"]
    broker = new_kafka_broker(tls=True, users={"alice": "secret"}, acls=acls)
    broker.create_topics("orders", partitions=2)
    broker.requests.on()
    check(broker, broker.client_config("alice"))
    assert {request.principal for request in broker.requests.matching("OffsetCommit")} == {"User:alice"}


@pytest.mark.parametrize("version", ["2.8", "3.9"])
def test_an_older_kafka(new_kafka_broker: NewKafkaBroker, version: str) -> None:
    broker = new_kafka_broker(version=version)
    broker.create_topics("orders", partitions=2)
    check(broker, broker.client_config())


def test_a_schema_registry_decodes(new_kafka_broker: NewKafkaBroker) -> None:
    pytest.importorskip("fastavro")
    pytest.importorskip("uvicorn")
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    broker = new_kafka_broker(registry=True)
    broker.create_topics("orders", partitions=1)
    schema = '{"type": "record", "name": "Order", "fields": [{"name": "id", "type": "int"}]}'
    producer = Producer(broker.client_config())
    with SchemaRegistryClient({"url": broker.schema_registry_url}) as registry:
        serialize = AvroSerializer(registry, schema)
        producer.produce("orders", serialize({"id": 7}, SerializationContext("orders", MessageField.VALUE)))
    producer.flush(TIMEOUT_S)
    assert [record.value for record in broker.topics["orders"].records()] == [{"id": 7}]
    avro = broker.topics["orders"].decoded(value="avro", registry=broker.schema_registry_url)
    assert [record.value for record in avro.records()] == [{"id": 7}]
