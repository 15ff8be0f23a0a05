"""What a queue on three brokers has in flight: each tells of what it leads."""

import json
import time

import pytest

from kafkapy import Cluster
from kafkapy.__main__ import main

confluent_kafka = pytest.importorskip("confluent_kafka")
pytest.importorskip("confluent_kafka.admin")
pytestmark = pytest.mark.long

GROUP, TOPIC = "workers", "jobs"


def test_every_leader_tells_of_its_partitions(capsys: pytest.CaptureFixture[str]) -> None:
    admin_module = confluent_kafka.admin
    with Cluster(3, in_process=True) as cluster:
        servers = cluster.bootstrap_servers
        cluster.create_topics(TOPIC, partitions=3)
        admin = admin_module.AdminClient({"bootstrap.servers": servers})
        entry = admin_module.ConfigEntry(
            "share.auto.offset.reset", "earliest", incremental_operation=admin_module.AlterConfigOpType.SET
        )
        resource = admin_module.ConfigResource(admin_module.ResourceType.GROUP, GROUP, incremental_configs=[entry])
        for future in admin.incremental_alter_configs([resource]).values():
            future.result(60)
        producer = confluent_kafka.Producer({"bootstrap.servers": servers})
        for partition in range(3):
            producer.produce(TOPIC, "job", partition=partition)
        assert producer.flush(60) == 0
        leaders = {each.leader for each in admin.list_topics(TOPIC, timeout=60).topics[TOPIC].partitions.values()}
        assert len(leaders) == 3
        settings = {"bootstrap.servers": servers, "group.id": GROUP, "client.id": "worker", "log_level": 0}
        with confluent_kafka.ShareConsumer({**settings, "share.acknowledgement.mode": "explicit"}) as consumer:
            consumer.subscribe([TOPIC])
            read_from: set[int] = set()
            deadline = time.monotonic() + 120
            while len(read_from) < 3:
                assert time.monotonic() < deadline
                for message in consumer.poll(0.5):
                    consumer.acknowledge(message, confluent_kafka.AcknowledgeType.ACCEPT)
                    read_from.add(message.partition())
            capsys.readouterr()
            assert main(["groups", "explain", GROUP, "--json", "-b", servers]) == 0
            told = json.loads(capsys.readouterr().out)
    assert [each["partition"] for each in told["partitions"]] == [0, 1, 2]
    assert all(each["members"][0].startswith("worker (") for each in told["partitions"])
