"""Windows of quotas move with a virtual clock: a throttled client is served once its time is over there."""

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest

from kafkapy.testing import Broker

CLIENT_ID = "slow"
BYTES_PER_S = 1.0
RECORD = b"x" * 20_000
"""It takes hours at this rate, far beyond what a test waits for."""
TIMEOUT_S = 60


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(clock="virtual") as broker:
        broker.create_topics("orders", partitions=1)
        admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        quota = ([("client-id", CLIENT_ID)], [("producer_byte_rate", BYTES_PER_S, False)])
        request = AlterClientQuotasRequest(entries=[quota], validate_only=False)
        (altered,) = admin._manager.run(admin._manager.send, request).entries
        assert altered.error_code == 0
        admin.close()
        yield broker


def test_librdkafka_is_throttled_until_the_clock_is_advanced(broker: Broker) -> None:
    throttled_s: list[float] = []
    config = {"bootstrap.servers": broker.bootstrap_servers, "client.id": CLIENT_ID, "linger.ms": 0}
    producer = Producer({**config, "throttle_cb": lambda event: throttled_s.append(event.throttle_time)})
    producer.produce("orders", RECORD, partition=0)
    assert producer.flush(TIMEOUT_S) == 0, "the response comes at once"
    producer.poll(0)
    assert throttled_s[-1] > 3600
    producer.produce("orders", b"held", partition=0)
    assert producer.flush(0.5) == 1, "the broker does not read from the connection"
    broker.clock.advance("2d")
    assert producer.flush(TIMEOUT_S) == 0
    producer.poll(0)
    assert throttled_s[-1] < 3600, "its windows are empty again"


def test_others_are_not_throttled(broker: Broker) -> None:
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers})
    for _ in range(3):
        producer.produce("orders", RECORD, partition=0)
        assert producer.flush(TIMEOUT_S) == 0
    assert AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics(timeout=TIMEOUT_S).topics
