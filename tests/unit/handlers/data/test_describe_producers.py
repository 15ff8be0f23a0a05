"""Who may ask for producers, and where there are none to be told. What is told: tests/scenarios."""

from types import SimpleNamespace
from typing import Any

from kafkapy.handlers.data import describe_producers
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_producers_request import DescribeProducersRequest, TopicRequest
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id
from tests.support.metadata_services import Deny, response_of


def send_request(hosting: Hosting, topic: str, *, authorizer: Any = None) -> tuple[int, list[int]]:
    """Return the error code of partition 0 and its producer ids."""
    request = DescribeProducersRequest(topics=[TopicRequest(topic, partition_indexes=[0])])
    context: Any = SimpleNamespace(api_version=0, listener_name="PLAINTEXT", client_id="tester")
    response = response_of(describe_producers.handle(hosting.services(authorizer), context, request))
    (part,) = type(response).decode(response.encode(0), 0).topics[0].partitions
    return part.error_code, [producer.producer_id for producer in part.active_producers]


def with_a_producer(loop: SimLoop) -> Hosting:
    hosting = Hosting(loop, broker_count=2)
    log = hosting.create_topic().log
    assert log is not None
    records = batch(b"x", producer_id=9, producer_epoch=0, base_sequence=0)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    return hosting


async def test_reading_the_topic_must_be_allowed(loop: SimLoop) -> None:
    hosting = with_a_producer(loop)
    assert send_request(hosting, "orders") == (0, [9])
    denied = send_request(hosting, "orders", authorizer=Deny((AclOperation.READ, "orders")))
    assert denied == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, [])


async def test_a_follower_describes_its_producers_too(loop: SimLoop) -> None:
    hosting = with_a_producer(loop)
    hosting.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, isr=[2], replicas=[1, 2])
    )
    assert send_request(hosting, "orders") == (0, [9])


async def test_elsewhere_or_offline_there_are_none(loop: SimLoop) -> None:
    hosting = with_a_producer(loop)
    hosting.create_topic("elsewhere", replicas=(2,))
    assert send_request(hosting, "elsewhere") == (ErrorCode.NOT_LEADER_OR_FOLLOWER, [])
    partition = hosting.manager.partitions.find("orders", 0)
    assert partition is not None
    partition.go_offline()
    assert send_request(hosting, "orders") == (ErrorCode.KAFKA_STORAGE_ERROR, [])


async def test_a_producer_that_has_expired_is_not_told_of(loop: SimLoop) -> None:
    hosting = with_a_producer(loop)
    partition = hosting.manager.partitions.find("orders", 0)
    assert partition is not None
    assert partition.log is not None
    partition.log.producer_state.configure(0, is_verification_enabled=True)
    assert send_request(hosting, "orders") == (0, [])


async def test_the_message_about_a_very_long_name_is_whole_once(loop: SimLoop) -> None:
    """A request may have 90,000 partitions of a topic that cannot be."""
    request = DescribeProducersRequest(topics=[TopicRequest("x" * 30_000, partition_indexes=[0, 1, 2])])
    context: Any = SimpleNamespace(api_version=0, listener_name="PLAINTEXT", client_id="tester")
    (topic,) = response_of(describe_producers.handle(with_a_producer(loop).services(), context, request)).topics
    assert {part.error_code for part in topic.partitions} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    assert [len(part.error_message) > 30_000 for part in topic.partitions] == [True, False, False]
