"""Topic ids: in Produce 13, Fetch 13, Metadata 10 and later, names are empty, and a new topic of an old name is another
topic. KIP-516."""

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.delete_topics_request import DeleteTopicsRequest, DeleteTopicState
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from tests.support.client_requests import (
    batch_of,
    create_topic,
    delete_topic,
    describe_topic,
    fetch,
    fetch_request,
    metadata,
    produce,
    produce_request,
    values_in,
)
from tests.support.wire import WireClient

NOBODY = bytes(range(16))


def test_one_id_everywhere(client: WireClient, topic: str) -> None:
    topic_id = create_topic(client, topic)
    assert topic_id != bytes(16)
    for version in (10, 11, 12, 13):
        assert metadata(client, topic, version=version).topics[0].topic_id == topic_id
    assert describe_topic(client, topic).topic_id == topic_id
    by_id = MetadataRequest(topics=[MetadataRequestTopic(topic_id, name=None)], allow_auto_topic_creation=False)
    assert client.call(by_id, 12).topics[0].name == topic


@pytest.mark.parametrize("version", range(13, 19))
def test_fetch_and_produce_by_id_answer_with_the_id(client: WireClient, topic: str, version: int) -> None:
    topic_id = create_topic(client, topic)
    produced = client.call(produce_request(topic_id, batch_of()), 13).responses[0]
    assert (produced.name, produced.topic_id, produced.partition_responses[0].error_code) == ("", topic_id, 0)
    fetched = client.call(fetch_request(topic_id), version).responses[0]
    assert (fetched.topic, fetched.topic_id) == ("", topic_id)
    assert values_in(fetched.partitions[0]) == [b"value"]


def test_an_id_that_no_topic_has_is_unknown_as_an_id(client: WireClient) -> None:
    """UNKNOWN_TOPIC_OR_PARTITION would have a client believe that the topic it knows is gone."""
    assert produce(client, NOBODY, batch_of()).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(client, NOBODY).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    request = MetadataRequest(topics=[MetadataRequestTopic(NOBODY, name=None)], allow_auto_topic_creation=False)
    (response,) = client.call(request, 12).topics
    assert (response.error_code, response.topic_id, response.name) == (ErrorCode.UNKNOWN_TOPIC_ID, NOBODY, None)
    (deleted,) = client.call(
        DeleteTopicsRequest([DeleteTopicState(None, topic_id=NOBODY)], topic_names=[], timeout_ms=1000), 6
    ).responses
    assert (deleted.error_code, deleted.topic_id) == (ErrorCode.UNKNOWN_TOPIC_ID, NOBODY)


def test_a_name_or_partition_that_is_not_there_is_unknown_as_such(client: WireClient, topic: str) -> None:
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert produce(client, topic, batch_of()).error_code == unknown
    assert fetch(client, topic).error_code == unknown
    topic_id = create_topic(client, topic)
    for named in (topic, topic_id):
        assert produce(client, named, batch_of(), partition=7).error_code == unknown
        assert fetch(client, named, partition=7).error_code == unknown


def test_a_topic_created_again_is_another_topic(client: WireClient, topic: str) -> None:
    """A producer's window and a consumer's session of the old one must not reach into the new one."""
    old_id = create_topic(client, topic)
    producer = client.call(InitProducerIdRequest(transactional_id=None), 5)
    mine = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    assert produce(client, old_id, batch_of(value=b"old", base_sequence=0, **mine)).base_offset == 0
    delete_topic(client, topic)
    new_id = create_topic(client, topic)
    assert new_id != old_id
    assert produce(client, old_id, batch_of(base_sequence=1, **mine)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert fetch(client, old_id).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    fresh = produce(client, new_id, batch_of(value=b"new", base_sequence=0, **mine))
    assert (fresh.error_code, fresh.base_offset) == (0, 0), "not taken for a duplicate of the old topic's first batch"
    assert values_in(fetch(client, new_id)) == [b"new"]


def test_a_session_that_holds_a_deleted_topic_hears_of_it(client: WireClient, topic: str) -> None:
    """The session knows the name still: that is unknown, or another topic's."""
    old_id = create_topic(client, topic)
    session_id = client.call(fetch_request(old_id, session_epoch=0), 18).session_id

    def reported(session_epoch: int) -> int:
        again = FetchRequest(session_id=session_id, session_epoch=session_epoch)
        (response,) = client.call(again, 18).responses
        assert response.topic_id == old_id
        return int(response.partitions[0].error_code)

    delete_topic(client, topic)
    deleted = [reported(1), reported(2)]
    create_topic(client, topic)
    recreated = [reported(3), reported(4)]
    assert deleted == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert recreated == [ErrorCode.INCONSISTENT_TOPIC_ID] * 2


def test_a_session_of_an_unknown_id_hears_that_it_is_unknown(client: WireClient) -> None:
    opened = client.call(fetch_request(NOBODY, session_epoch=0), 18)
    again = client.call(FetchRequest(session_id=opened.session_id, session_epoch=1), 18)
    for response in (opened, again):
        assert response.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_a_topic_is_deleted_by_its_id(client: WireClient, topic: str) -> None:
    topic_id = create_topic(client, topic)
    (deleted,) = client.call(
        DeleteTopicsRequest([DeleteTopicState(None, topic_id=topic_id)], topic_names=[], timeout_ms=30_000), 6
    ).responses
    assert (deleted.error_code, deleted.name, deleted.topic_id) == (0, topic, topic_id)
    assert metadata(client, topic).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
