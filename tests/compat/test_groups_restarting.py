"""Committed offsets are asked for again and again, by one process, while the nodes of a cluster are restarted."""

import os
from concurrent.futures import ThreadPoolExecutor

import pytest
from confluent_kafka import Consumer, TopicPartition

from kafkapy import Cluster
from kafkapy.console.brokers import Brokers
from kafkapy.console.client import Clients
from kafkapy.console.settings import Settings
from tests.support import topics
from tests.support.committed import commit

pytestmark = [
    pytest.mark.long,
    pytest.mark.ours,
    pytest.mark.skipif(os.environ.get("KAFKAPY_COMPAT_SERVER") == "apache", reason="restarts its own nodes"),
]
GROUPS = [f"group-{number}" for number in range(8)]
"""Their coordinators are of all three nodes."""


def test_committed_offsets_are_answered_while_every_node_is_restarted() -> None:
    with Cluster(3, properties={"offsets.topic.num.partitions": 12}) as cluster:
        servers = cluster.bootstrap_servers
        topics.create(servers, "records", partitions=1, replicas=3)
        for group in GROUPS:
            consumer = Consumer({"bootstrap.servers": servers, "group.id": group})
            commit(consumer, TopicPartition("records", 0, 4))
            consumer.close()
        settings = Settings(servers=servers)
        brokers = Brokers(settings)
        clients = Clients(settings, brokers)
        with ThreadPoolExecutor(1) as executor:
            restarts = executor.submit(restart_each, cluster)
            responses = []
            while not restarts.done():
                responses += [clients.offsets(group).committed() for group in GROUPS]
            restarts.result()
        brokers.close()
    assert [each for each in responses if each != {("records", 0): 4}] == []


def restart_each(cluster: Cluster) -> None:
    for node_id in cluster.broker_ids:
        cluster.stop(node_id)
        cluster.start(node_id)
