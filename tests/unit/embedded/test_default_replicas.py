"""Topics of a cluster of n brokers have min(3, n) replicas, and with three brokers or more two must be in sync."""

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic

from kafkapy.testing import Cluster


@pytest.mark.parametrize(("brokers", "replicas", "in_sync"), [(1, 1, "1"), (2, 2, "1"), (3, 3, "2"), (4, 3, "2")])
def test_a_topic_has_replicas_on_three_brokers_if_there_are_so_many(brokers: int, replicas: int, in_sync: str) -> None:
    with Cluster(brokers, in_process=True) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        admin.create_topics([NewTopic("orders", 2)])["orders"].result(60)
        partitions = admin.list_topics("orders", timeout=60).topics["orders"].partitions
        assert [len(each.replicas) for each in partitions.values()] == [replicas] * 2
        (found,) = admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "orders")]).values()
        assert found.result(60)["min.insync.replicas"].value == in_sync
        if brokers > 1:
            cluster.stop(max(cluster.broker_ids))
        errors: list[object] = []
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
        producer.produce("orders", b"one", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        assert errors == [None], "also after the loss of one of several brokers"
