"""`kafkapy consume` and `produce` by users with few rights."""

from pathlib import Path

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


def test_a_user_who_may_write_nowhere_is_told_so(capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    """librdkafka's own error is of the cluster: it gets no producer id."""
    (tmp_path / "lines").write_bytes(b"one\n")
    with Broker(users={"bob": "pw"}, acls=["allow bob describe topic:orders"]) as broker:
        broker.create_topics("orders", partitions=1)
        settings = [part for key, value in broker.client_config("bob").items() for part in ("-X", f"{key}={value}")]
        arguments = ["produce", "orders", str(tmp_path / "lines"), "-b", broker.bootstrap_servers, *settings]
        assert main(arguments) == 1
        assert b"kafkapy: this user may write to no topic" in capfdbinary.readouterr().err
        assert main([*arguments, "-X", "enable.idempotence=false"]) == 1
    assert b"Topic authorization failed" in capfdbinary.readouterr().err
