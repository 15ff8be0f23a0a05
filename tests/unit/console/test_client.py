"""The clients of the console."""

from contextlib import closing

import confluent_kafka as kafka

from kafkapy import Broker
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import CONSUMER_PROPERTIES, Clients
from kafkapy.console.groups import rebalances
from kafkapy.console.settings import Settings


def test_a_search_does_not_sleep_for_a_second_where_its_queue_is_full() -> None:
    """A queue of 2,000 messages is full after each fetch; librdkafka's default of the backoff is 1,000 ms."""
    assert (CONSUMER_PROPERTIES["queued.min.messages"], CONSUMER_PROPERTIES["fetch.queue.backoff.ms"]) == (2000, 10)


def test_a_login_by_properties_of_the_client_holds_for_rebalances_too() -> None:
    with Broker(users={"alice": "of alice"}) as broker:
        alice = broker.client_config("alice")
        broker.create_topics("orders")
        consumer = kafka.Consumer({**alice, "group.id": "g"})
        consumer.commit(offsets=[kafka.TopicPartition("orders", 0, 0)], asynchronous=False)
        consumer.close()
        settings = Settings(servers=broker.bootstrap_servers, properties=alice)
        with closing(Brokers(settings)) as brokers:
            assert rebalances(Clients(settings, brokers), "g") == ([], None)
