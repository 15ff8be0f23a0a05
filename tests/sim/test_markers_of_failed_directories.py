"""A log directory fails amid a transaction: its end is answered, its marker is written when the directory is back."""

import errno

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.describe_transactions_request import DescribeTransactionsRequest
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.simulator.broker_world import PRODUCE_VERSION, KafkaClient, Machine, Topic
from tests.simulator.loop import SimLoop

FIRST_DIR, FAILING_DIR = "/first", "/failing"
PROPERTIES = {
    "log_dirs": f"{FIRST_DIR},{FAILING_DIR}",
    "metadata_log_dir": FIRST_DIR,
    "transaction_state_log_num_partitions": "1",
}
TRANSACTIONAL_ID = "t"


async def state_of(client: KafkaClient) -> str:
    (found,) = (await client.call(DescribeTransactionsRequest([TRANSACTIONAL_ID]), 0)).transaction_states
    return str(found.transaction_state)


async def are_markers(client: KafkaClient, topic: Topic) -> list[bool]:
    """Return for each batch of the topic whether it is a marker."""
    return [batch.is_control for batch in await client.read_all(topic)]


async def topics_in_both(machine: Machine, client: KafkaClient) -> dict[str, Topic]:
    """Create topics; return one of each directory."""
    topics = [await client.create_topic(f"orders-{number}") for number in range(4)]
    return {
        directory: topic
        for directory in (FIRST_DIR, FAILING_DIR)
        for topic in topics
        if machine.disk.exists(f"{directory}/{topic.name}-0")
    }


async def begin(client: KafkaClient, *topics: Topic) -> EndTxnRequest:
    """Write one record to each topic in a transaction; return the request that commits it."""
    request = InitProducerIdRequest(TRANSACTIONAL_ID, transaction_timeout_ms=60_000)
    producer = await client.call(request, 5)
    assert producer.error_code == ErrorCode.NONE
    fields = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch, "base_sequence": 0}
    records = client.batch([b"value"], is_transactional=True, **fields)
    data = [
        TopicProduceData(
            each.name,
            topic_id=each.topic_id,
            partition_data=[PartitionProduceData(0, records=memoryview(bytearray(records)))],
        )
        for each in topics
    ]
    response = await client.call(
        ProduceRequest(TRANSACTIONAL_ID, acks=-1, timeout_ms=30_000, topic_data=data), PRODUCE_VERSION
    )
    assert [each.partition_responses[0].error_code for each in response.responses] == [ErrorCode.NONE] * len(topics)
    return EndTxnRequest(
        TRANSACTIONAL_ID, producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, committed=True
    )


async def test_a_failed_directory_holds_up_no_response_and_its_marker_is_written_when_it_is_back(loop: SimLoop) -> None:
    machine = Machine(loop, **PROPERTIES)
    await machine.boot()
    client = machine.connect()
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[TRANSACTIONAL_ID]), 5)
    assert machine.disk.exists(f"{FIRST_DIR}/__transaction_state-0")
    topics = await topics_in_both(machine, client)
    ending = await begin(client, *topics.values())
    machine.disk.fail("write", errno.EIO, path=f"{FAILING_DIR}/", times=1000)
    assert (await client.call(ending, 5)).error_code == ErrorCode.NONE
    assert await state_of(client) == "PrepareCommit"
    assert await are_markers(client, topics[FIRST_DIR]) == [False, True]
    await machine.stop()
    machine.disk.heal()
    await machine.boot()
    client = machine.connect()
    while await state_of(client) != "CompleteCommit":
        assert loop.time() < 60, "the marker is not written"
    assert await are_markers(client, topics[FAILING_DIR]) == [False, True]
    await machine.stop()
