"""Idempotent producers, as most are by default: what a broker may answer to which sequence."""

from pathlib import Path
from typing import Any

import pytest

from kafkapy import Broker
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from tests.support.client_requests import batch_of, create_topic, fetch, list_offset, produce, values_in
from tests.support.wire import WireClient

LATEST = -1


class IdempotentProducer:
    """Sends batches of one record with the sequences that a test wants."""

    def __init__(self, client: WireClient, topic: str, producer_id: int | None = None) -> None:
        self._client = client
        self._topic = topic
        self.producer_id = new_producer_id(client) if producer_id is None else producer_id

    def send(self, base_sequence: int, *, producer_epoch: int = 0, count: int = 1) -> tuple[int, int]:
        """Return error code and base offset."""
        fields: dict[str, Any] = {"producer_id": self.producer_id, "producer_epoch": producer_epoch}
        batch = batch_of(count, value=b"%d" % base_sequence, base_sequence=base_sequence, **fields)
        response = produce(self._client, self._topic, batch)
        return response.error_code, response.base_offset


def new_producer_id(client: WireClient, version: int = 5) -> int:
    """Ask until there is one: Apache Kafka's broker gets its first block of ids from the controller meanwhile."""
    while True:
        response = client.call(InitProducerIdRequest(transactional_id=None), version)
        if response.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            assert (response.error_code, response.producer_epoch) == (0, 0)
            return int(response.producer_id)


@pytest.fixture
def producer(client: WireClient, topic: str) -> IdempotentProducer:
    create_topic(client, topic)
    return IdempotentProducer(client, topic)


@pytest.mark.parametrize("version", range(6))
def test_producer_ids_are_new_each_time(client: WireClient, version: int) -> None:
    producer_ids = [new_producer_id(client, version) for _ in range(3)]
    assert len(set(producer_ids)) == 3
    assert min(producer_ids) >= 0


def test_any_of_the_last_five_batches_sent_again_is_answered_with_its_offset(
    client: WireClient, topic: str, producer: IdempotentProducer
) -> None:
    assert [producer.send(sequence) for sequence in range(7)] == [(0, offset) for offset in range(7)]
    assert [producer.send(sequence) for sequence in range(2, 7)] == [(0, offset) for offset in range(2, 7)]
    assert list_offset(client, topic, LATEST).offset == 7
    assert values_in(fetch(client, topic)) == [b"%d" % sequence for sequence in range(7)]


def test_an_older_batch_sent_again_is_out_of_order(producer: IdempotentProducer) -> None:
    for sequence in range(7):
        producer.send(sequence)
    assert producer.send(1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)


def test_a_gap_is_out_of_order_and_the_next_sequence_goes_on(producer: IdempotentProducer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(2) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(1) == (0, 1)


def test_sequences_count_records(producer: IdempotentProducer) -> None:
    assert producer.send(0, count=10) == (0, 0)
    assert producer.send(1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(10) == (0, 10)


def test_a_producer_that_the_broker_has_no_state_of_may_begin_anywhere(producer: IdempotentProducer) -> None:
    """Its state may have expired, or gone with old segments. Kafka 4.3.1; later versions differ (KAFKA-15591)."""
    assert producer.send(77) == (0, 0)
    assert producer.send(78) == (0, 1)


def test_an_older_epoch_is_fenced(producer: IdempotentProducer) -> None:
    assert producer.send(0, producer_epoch=3) == (0, 0)
    assert producer.send(1, producer_epoch=2) == (ErrorCode.INVALID_PRODUCER_EPOCH, -1)


def test_a_newer_epoch_begins_at_0(producer: IdempotentProducer) -> None:
    assert producer.send(0) == (0, 0)
    assert producer.send(1, producer_epoch=1) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert producer.send(0, producer_epoch=1) == (0, 1)


def test_sequences_wrap_to_0(producer: IdempotentProducer) -> None:
    assert producer.send(2**31 - 1) == (0, 0)
    assert producer.send(0) == (0, 1)


def test_producers_do_not_share_sequences(client: WireClient, topic: str, producer: IdempotentProducer) -> None:
    other = IdempotentProducer(client, topic)
    assert [producer.send(0), other.send(0), producer.send(1), other.send(1)] == [(0, offset) for offset in range(4)]


@pytest.mark.ours
def test_what_was_sent_before_a_restart_is_still_a_duplicate(directory: Path, topic: str) -> None:
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        create_topic(client, topic)
        producer = IdempotentProducer(client, topic)
        assert [producer.send(0), producer.send(1)] == [(0, 0), (0, 1)]
    with Broker(data_dir=directory) as broker, WireClient(broker.bootstrap_servers) as client:
        again = IdempotentProducer(client, topic, producer.producer_id)
        assert again.send(1) == (0, 1)
        assert again.send(3) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
        assert again.send(2) == (0, 2)
        assert new_producer_id(client) > producer.producer_id


def test_a_transactional_batch_needs_a_transaction(client: WireClient, topic: str) -> None:
    """The batch counts, not the request: what names no transactional id has no right to one. CVE-2018-17196."""
    create_topic(client, topic)
    batch = batch_of(producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True)
    response = produce(client, topic, batch)
    assert response.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert response.base_offset == -1
    assert list_offset(client, topic, LATEST).offset == 0
