"""A broker counts partitions with a late transaction under Apache Kafka's name, until that has ended."""

import asyncio

from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.runtime.coordinators.late_transactions import CHECK_S
from kafkapy.server.admin.metrics import exposition
from kafkapy.storage.producers.state import LATE_TRANSACTION_BUFFER_MS
from tests.simulator.broker_world import INIT_PRODUCER_ID_VERSION, PRODUCE_VERSION, KafkaClient, Machine, Topic
from tests.simulator.loop import SimLoop

NAME = "kafka_server_replicamanager_partitionswithlatetransactionscount"
MAX_TIMEOUT_S = 60
LATE_S = MAX_TIMEOUT_S + LATE_TRANSACTION_BUFFER_MS / 1000
NEVER_MS = 100_000_000
PARTITIONS = 3


def late_count(machine: Machine) -> float:
    """Return the gauge's value as /metrics has it."""
    _, body = exposition(filter(None, machine.server._gauges()), "")
    (line,) = [each for each in body.decode().splitlines() if each.startswith(f"{NAME} ")]
    return float(line.removeprefix(NAME))


async def send(client: KafkaClient, topic: Topic, partition: int, transactional_id: str) -> None:
    """Open a transaction in one partition."""
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 5)
    request = InitProducerIdRequest(transactional_id, transaction_timeout_ms=1000)
    response = await client.call(request, INIT_PRODUCER_ID_VERSION)
    producer = {"producer_id": response.producer_id, "producer_epoch": response.producer_epoch, "base_sequence": 0}
    batch = client.batch([b"value"], is_transactional=True, **producer)
    data = TopicProduceData(
        topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(partition, records=batch)]
    )
    produced = await client.call(
        ProduceRequest(transactional_id, acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION
    )
    assert produced.responses[0].partition_responses[0].error_code == 0


async def test_partitions_with_late_transactions_are_counted_until_these_have_ended(loop: SimLoop) -> None:
    machine = Machine(
        loop,
        transaction_max_timeout_ms=str(MAX_TIMEOUT_S * 1000),
        transaction_abort_timed_out_transaction_cleanup_interval_ms=str(NEVER_MS),
        transaction_state_log_num_partitions="1",
    )
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", PARTITIONS)
    for partition in range(2):
        await send(client, topic, partition, f"t-{partition}")
    await asyncio.sleep(LATE_S - CHECK_S)
    assert late_count(machine) == 0
    await asyncio.sleep(2 * CHECK_S)
    assert late_count(machine) == 2
    await machine.server._coordinators.transactions.abort_timed_out()
    await asyncio.sleep(CHECK_S)
    assert late_count(machine) == 0
    await machine.stop()
