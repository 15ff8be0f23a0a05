"""Produces to several partitions on the fast path, where the disk, a consumer or the authorizer has a part in it."""

import errno
import gc
import tracemalloc
from dataclasses import replace
from typing import Any

import pytest

from kafkapy.handlers.data import wide_produces
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.serving import ConnectionInfo, coalesce_nothing
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.security.authorizer import AclOperation
from tests.sim.test_broker_requests import on_machine
from tests.sim.test_small_produces_together import Producing
from tests.simulator.broker_world import PRODUCE_VERSION, KafkaClient, Machine, Topic, values_of
from tests.simulator.loop import SimLoop
from tests.support.hosting import batch, topic_id
from tests.support.metadata_services import Deny
from tests.support.wire import request_frame

PARTITIONS = 4


def produce(topic: Topic, records: bytes, acks: int = -1) -> ProduceRequest:
    data = [PartitionProduceData(partition, records=records) for partition in range(PARTITIONS)]
    return ProduceRequest(
        acks=acks,
        timeout_ms=1000,
        topic_data=[TopicProduceData(topic.name, topic_id=topic.topic_id, partition_data=data)],
    )


async def send(client: KafkaClient, topic: Topic, value: bytes, version: int = PRODUCE_VERSION) -> list[Any]:
    response = await client.call(produce(topic, client.batch([value])), version)
    parts: list[Any] = response.responses[0].partition_responses
    assert [part.index for part in parts] == list(range(PARTITIONS))
    return parts


def serve_by_handlers(machine: Machine) -> None:
    for processor in machine.server._reactor.processors:
        processor.serving = replace(processor.serving, coalesce=coalesce_nothing)


@on_machine
async def test_each_partition_has_its_records_and_its_part_of_the_response(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders", PARTITIONS)
    await client.produce(topic, b"first", partition=2)
    parts = await send(client, topic, b"v")
    assert [(part.error_code, part.base_offset, part.log_start_offset) for part in parts] == [
        (0, 0, 0),
        (0, 0, 0),
        (0, 1, 0),
        (0, 0, 0),
    ]
    for partition in range(PARTITIONS):
        assert values_of(await client.fetch(topic, parts[partition].base_offset, partition=partition)) == [b"v"]


@on_machine
async def test_a_consumer_that_waits_is_given_what_arrived(machine: Machine) -> None:
    client, consumer = machine.connect(), machine.connect()
    topic = await client.create_topic("orders", PARTITIONS)
    waiting = machine.loop.create_task(consumer.fetch(topic, 0, partition=3, max_wait_ms=10_000))
    await send(client, topic, b"v")
    assert values_of(await waiting) == [b"v"]


@pytest.mark.parametrize("fault", ["full", "broken"])
async def test_a_disk_that_takes_no_more_amid_a_request_has_the_same_outcome_as_by_the_handler(
    loop: SimLoop, fault: str
) -> None:
    outcomes = []
    for is_by_handler in (False, True):
        machine = Machine(loop)
        await machine.boot()
        if is_by_handler:
            serve_by_handlers(machine)
        client = machine.connect()
        topic = await client.create_topic("orders", PARTITIONS)
        await send(client, topic, b"first")
        if fault == "full":
            machine.disk.capacity_bytes = machine.disk.used_bytes() + 250  # two batches fit, not three
        else:
            machine.disk.fail("write", errno.EIO, path="orders-2")
        refused = await send(client, topic, b"v" * 20)
        again = await send(client, topic, b"w" * 20)
        outcomes.append(
            [
                (part.error_code, part.base_offset, part.log_start_offset, part.error_message)
                for part in (*refused, *again)
            ]
        )
        machine.disk.heal()
        await machine.stop()
    by_fast_path, by_handler = outcomes
    assert by_fast_path == by_handler
    codes = [code for code, *_ in by_fast_path[:PARTITIONS]]
    assert codes == [0, 0, ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.KAFKA_STORAGE_ERROR]


@pytest.mark.parametrize("version", [11, 13])
async def test_a_topic_made_again_is_another_one(loop: SimLoop, version: int) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders", PARTITIONS)
    await send(client, topic, b"v", version)
    await client.delete_topic(topic)
    assert {part.error_code for part in await send(client, topic, b"v", version)} == {
        ErrorCode.UNKNOWN_TOPIC_ID if version == 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    again = await client.create_topic("orders", PARTITIONS)
    assert [part.base_offset for part in await send(client, again, b"v", version)] == [0] * PARTITIONS
    await machine.stop()


class Served(Producing):
    """The fast paths over `orders` with PARTITIONS partitions, each on this node."""

    def __init__(self, loop: SimLoop, authorizer: Any = None, **topic: Any) -> None:
        super().__init__(loop, authorizer, partition_count=PARTITIONS, **topic)

    def serve_wide(
        self, topic: str = "orders", client_id: str = "c", acks: int = -1, records: bytes | memoryview | None = None
    ) -> Any:
        """Return what serving one request to all partitions returns."""
        sent = batch(b"v") if records is None else records
        request = produce(Topic("", topic_id(topic)), sent, acks)
        return self.serve_frame(request_frame(request, PRODUCE_VERSION, client_id=client_id))

    def serve_frame(self, frame: bytes) -> Any:
        info = ConnectionInfo("c", "PLAINTEXT", "PLAINTEXT", "10.0.0.1", 1)
        return self.served.serve(info, len(frame).to_bytes(4, "big") + frame, 0, 1)


async def test_a_request_to_led_partitions_is_served_with_the_errors_of_each(loop: SimLoop) -> None:
    served = Served(loop).serve_wide()
    assert (served.frame_count, list(served.error_codes)) == (1, [0] * PARTITIONS)


async def test_who_may_not_write_is_left_to_the_handler(loop: SimLoop) -> None:
    for denied, is_served in (("another", True), ("orders", False)):
        authorizer = Deny((AclOperation.WRITE, denied))
        assert (Served(loop, authorizer).serve_wide() is not None) == is_served
        logged = [question[1:4] for question in authorizer.questions if question[4]]
        assert logged == [("TOPIC", "orders", PARTITIONS)] * is_served


async def test_what_lacks_replicas_in_sync_is_left_to_the_handler(loop: SimLoop) -> None:
    configs = {"min.insync.replicas": "2"}
    assert Served(loop, replicas=(1, 2), configs=configs).serve_wide() is not None
    lacking = Served(loop, replicas=(1, 2), isr=(1,), configs=configs)
    assert lacking.serve_wide() is None
    assert lacking.serve_wide(acks=1) is not None


async def test_with_acks_1_a_producers_first_batch_and_its_duplicate_wait_for_no_replica(loop: SimLoop) -> None:
    """Neither is a batch in sequence, so that append_records has to find its outcome."""
    served = Served(loop, replicas=(1, 2))
    first = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    for _ in range(2):
        answered = served.serve_wide(acks=1, records=first)
        assert (answered.wait, list(answered.error_codes)) == (None, [0] * PARTITIONS)
    waiting = served.serve_wide(records=first)
    assert (waiting.wait is None, waiting.responses) == (False, None)


async def test_a_request_that_waits_for_replicas_keeps_no_batch_that_was_refused(loop: SimLoop) -> None:
    served = Served(loop, replicas=(1, 2))
    disk = served.hosting.disk
    disk.capacity_bytes = disk.used_bytes() + 250  # two batches fit, not three
    waiting = served.serve_wide(records=batch(b"v" * 20))
    assert waiting.wait is not None
    here = set(served.hosting.manager.partitions)
    appends = [each for each in gc.get_objects() if type(each) is PartitionAppend and each.partition in here]
    assert sorted(each.error_code for each in appends) == [0, 0, *[ErrorCode.KAFKA_STORAGE_ERROR] * 2]
    assert [bytes(each.records) for each in appends] == [b""] * PARTITIONS


async def test_what_follows_the_topic_is_not_decoded_to_know_a_request(loop: SimLoop) -> None:
    """The handler bounds what it decodes; here a frame of 1 MiB would be half a million tagged fields."""
    served = Served(loop)
    request = produce(Topic("", topic_id("orders")), batch(b"v"))
    request.topic_data[0].partition_data[1].unknown_tagged_fields = dict.fromkeys(range(30_000), b"")
    frame = request_frame(request, PRODUCE_VERSION)
    tracemalloc.start()
    try:
        assert served.serve_frame(frame) is None
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 2 * len(frame)  # serve_frame makes one copy; decoded it takes 26 times its size


async def test_what_has_to_wait_for_a_flush_is_left_to_the_handler(loop: SimLoop) -> None:
    served = Served(loop, configs={"flush.messages": "3"})
    assert served.serve_wide() is not None  # partition 0 has two records then
    assert served.serve_wide() is None


async def test_while_producers_are_crowded_they_are_counted_by_their_client_by_the_handler(loop: SimLoop) -> None:
    served = Served(loop)
    account = served.hosting.log_manager.producer_counts
    account.max_ungranted = 1
    account.add(8)
    assert account.is_crowded
    assert served.serve_wide() is None


async def test_clients_with_ever_new_names_are_served_and_not_all_remembered(loop: SimLoop) -> None:
    served = Served(loop)
    most = wide_produces.MAX_PLANS
    assert all(served.serve_wide(client_id=f"client-{number}") for number in range(most + 10))
    assert len(served.served._wide._plans) <= most
