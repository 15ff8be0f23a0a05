"""What expires after days, in a broker whose time a test moves on: ids of producers and transactions, tokens."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer
from kafka import KafkaAdminClient, TopicPartition

from kafkapy.metadata.scram_types import MECHANISMS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.create_delegation_token_request import CreateDelegationTokenRequest
from kafkapy.security.scram import ScramClient
from kafkapy.testing import Broker
from tests.support.eventually import eventually
from tests.support.logins import log_in, sasl_client
from tests.support.wire import WireClient

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker(clock="virtual", properties={"transaction.state.log.num.partitions": 1}) as running:
        running.create_topics("payments", partitions=1)
        yield running


@pytest.fixture
def admin(broker: Broker) -> Iterator[KafkaAdminClient]:
    admin = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    yield admin
    admin.close()


def pay(producer: Producer) -> None:
    producer.begin_transaction()
    producer.produce("payments", b"value")
    producer.commit_transaction(TIMEOUT_S)


def test_a_transactional_id_expires_after_a_week(broker: Broker, admin: KafkaAdminClient) -> None:
    producer = Producer({**broker.client_config(), "transactional.id": "weekly", "log_level": 0})
    producer.init_transactions(TIMEOUT_S)
    pay(producer)
    broker.clock.advance("6d")
    assert "weekly" in str(admin.list_transactions())
    broker.clock.advance("2d")
    assert "weekly" not in str(admin.list_transactions())
    with pytest.raises(KafkaException):
        pay(producer)


def test_a_producer_id_expires_after_a_day(broker: Broker, admin: KafkaAdminClient) -> None:
    broker.create_topics("orders", partitions=1, configs={"message.timestamp.type": "LogAppendTime"})
    producer = Producer({**broker.client_config(), "enable.idempotence": True, "log_level": 0})
    producer.produce("orders", b"value")
    assert producer.flush(TIMEOUT_S) == 0
    assert len(producers(admin)) == 1
    broker.clock.advance("23h")
    assert len(producers(admin)) == 1
    broker.clock.advance("2h")
    assert producers(admin) == []
    producer.produce("orders", b"value")
    assert producer.flush(TIMEOUT_S) == 0
    assert len(producers(admin)) == 1, "it goes on, with a state of its own again"


def producers(admin: KafkaAdminClient) -> list[object]:
    orders = TopicPartition("orders", 0)
    return list(admin.describe_producers([orders])[orders].active_producers)


def test_a_delegation_token_logs_in_for_a_day() -> None:
    with Broker(clock="virtual", users={"alice": "secret"}) as broker:
        with WireClient(broker.bootstrap_servers) as client:
            assert log_in(client, sasl_client("PLAIN", "alice", "secret")).error_code == 0
            token = client.call(CreateDelegationTokenRequest(max_lifetime_ms=-1), 3)
            assert token.error_code == 0
        eventually(lambda: logged_in_by(broker, token) == 0, what="a login by the token")
        broker.clock.advance("23h")
        assert logged_in_by(broker, token) == 0
        broker.clock.advance("2h")
        assert logged_in_by(broker, token) == ErrorCode.SASL_AUTHENTICATION_FAILED


def logged_in_by(broker: Broker, token: Any) -> int:
    """Return the error code of a login by a token, as clients do it (SCRAM, KIP-48)."""
    password = base64.b64encode(token.hmac).decode()
    scram = ScramClient(MECHANISMS["SCRAM-SHA-256"], token.token_id, password, nonce="abc", is_token=True)
    with WireClient(broker.bootstrap_servers) as client:
        return int(log_in(client, scram).error_code)
