"""The fixture `own_kafka_cluster`, which an install of kafkapy brings; pytest finds it by its entry point."""

import time
from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy.testing import Cluster, ClusterError
from tests.support import topics

pytestmark = pytest.mark.ours
TIMEOUT_S = 120


def test_the_fixture_is_three_nodes_of_which_one_may_be_killed(own_kafka_cluster: Cluster) -> None:
    assert own_kafka_cluster.broker_ids == [1, 2, 3]
    topics.create(own_kafka_cluster.bootstrap_servers, "orders", replicas=3)
    own_kafka_cluster.kill(own_kafka_cluster.leader_of("orders", 0))
    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": own_kafka_cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce("orders", b"first", on_delivery=lambda error, _message: failures.append(error))
    assert producer.flush(TIMEOUT_S) == 0
    assert failures == [None]


def test_the_network_between_nodes_is_delayed_and_named_nodes_exist(own_kafka_cluster: Cluster) -> None:
    own_kafka_cluster.create_topics("orders", partitions=1)
    own_kafka_cluster.network.delay({1, 2, 3}, {1, 2, 3}, ms=200)
    began = time.monotonic()
    producer = Producer({"bootstrap.servers": own_kafka_cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce("orders", b"late")
    assert producer.flush(TIMEOUT_S) == 0
    assert time.monotonic() - began >= 0.2
    own_kafka_cluster.network.heal()
    with pytest.raises(ClusterError, match="there is no node 7"):
        own_kafka_cluster.network.limit({7}, {1}, bytes_per_s=1000)
