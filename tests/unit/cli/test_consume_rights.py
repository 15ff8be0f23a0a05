"""`kafkapy consume` by a user who may read a topic and use no group."""

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main

confluent_kafka = pytest.importorskip("confluent_kafka")


def test_a_topic_is_read_without_rights_on_any_group(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    with Broker(users={"bob": "pw"}, acls=["allow bob read topic:orders", "allow bob write topic:orders"]) as broker:
        broker.create_topics("orders", partitions=1)
        config = broker.client_config("bob")
        producer = confluent_kafka.Producer(config)
        producer.produce("orders", b"one")
        assert producer.flush(60) == 0
        settings = [part for key, value in config.items() for part in ("-X", f"{key}={value}")]
        arguments = ["consume", "orders", "-b", broker.bootstrap_servers, *settings, "--from-beginning", "-n", "1"]
        assert main(arguments) == 0
        assert capfdbinary.readouterr().out == b"one\n"
        assert main([*arguments, "--group", "readers"]) == 1
    assert b"GROUP_AUTHORIZATION_FAILED" in capfdbinary.readouterr().err
