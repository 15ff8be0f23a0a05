"""The fixture `own_kafka_cluster`, which an install of kafkapy brings; pytest finds it by its entry point."""

from typing import Any

import pytest
from confluent_kafka import Producer

from kafkapy import Cluster
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
