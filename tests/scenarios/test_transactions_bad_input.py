"""Requests about transactions that no client of ours sends, and what they are answered."""

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.support.client_requests import LATEST, batch_of, create_topic, list_offset
from tests.support.transactions import TransactionalProducer
from tests.support.wire import WireClient


@pytest.mark.parametrize("version", [10, 12])
def test_a_produce_with_batches_of_two_transactional_producers_is_refused_as_a_whole(
    client: WireClient, topic: str, version: int
) -> None:
    create_topic(client, topic, 2)
    producers = [TransactionalProducer(client, f"{topic}-{number}") for number in range(2)]
    data = []
    for number, producer in enumerate(producers):
        assert producer.init() == ErrorCode.NONE
        assert producer.add(topic, partitions=(0, 1)) == {topic: ErrorCode.NONE}
        batch = batch_of(producer_id=producer.producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        data.append(PartitionProduceData(number, records=batch))
    request = ProduceRequest(
        transactional_id=f"{topic}-0",
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic, topic_id=bytes(16), partition_data=data)],
    )
    (answered,) = client.call(request, version).responses
    assert {each.error_code for each in answered.partition_responses} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert [list_offset(client, topic, LATEST, partition=number).offset for number in range(2)] == [0, 0]


@pytest.mark.ours
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_producer_that_was_fenced_by_an_older_kind_of_client_does_not_get_its_epoch(
    client: WireClient, topic: str, commit: bool
) -> None:
    """Apache Kafka 4.3.1 gives it: both then write with one producer id, epoch and sequence."""
    create_topic(client, topic)
    fenced, newer = TransactionalProducer(client, topic), TransactionalProducer(client, topic)
    assert fenced.init() == newer.init() == ErrorCode.NONE
    assert newer.add(topic, version=0) == {topic: ErrorCode.NONE}
    assert newer.send(topic, version=10) == ErrorCode.NONE
    assert newer.end(commit=commit, version=1) == ErrorCode.NONE
    assert fenced.end(commit=commit) == ErrorCode.PRODUCER_FENCED
    assert fenced.send(topic) == ErrorCode.INVALID_PRODUCER_EPOCH
