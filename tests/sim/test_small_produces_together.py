"""Small produces that arrive together, where the disk, a consumer, another topic or the authorizer has a part in it."""

import errno
from types import SimpleNamespace
from typing import Any

import pytest

from kafkapy.handlers.data.small_produces import MAX_PLANS, MIN_SWEEP, SmallProduces
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.runtime.coordinators.transaction_verification import TransactionalProducer
from kafkapy.security.authorizer import AclOperation
from tests.sim.test_broker_requests import on_machine
from tests.simulator.broker_world import PRODUCE_VERSION, KafkaClient, Machine, Topic, values_of
from tests.simulator.hot_paths import new_transactions
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id
from tests.support.metadata_services import Deny
from tests.support.wire import request_frame

PRODUCER = {"producer_id": 7, "producer_epoch": 0}
NUMBERS = [b"%d" % number for number in range(5)]
INFO = ConnectionInfo("c", "PLAINTEXT", "PLAINTEXT", "10.0.0.1", 1)


def produce(topic: Topic, records: bytes | memoryview) -> ProduceRequest:
    named = TopicProduceData(
        topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(0, records=bytes(records))]
    )
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[named])


def framed(value: bytes) -> bytes:
    """Return a request with this record for `orders`, as it is sent."""
    frame = request_frame(produce(Topic("", topic_id("orders")), batch(value)), PRODUCE_VERSION)
    return len(frame).to_bytes(4, "big") + frame


async def send_together(
    client: KafkaClient, topic: Topic, version: int = PRODUCE_VERSION, **producer: int
) -> list[Any]:
    """Send a request for each of NUMBERS before the first is answered; return the responses."""
    for number, value in enumerate(NUMBERS):
        fields = {**producer, "base_sequence": producer["base_sequence"] + number} if producer else {}
        await client.send(produce(topic, client.batch([value], **fields)), version)
    return [(await client.receive()).responses[0].partition_responses[0] for _ in NUMBERS]


@on_machine
async def test_what_arrives_together_is_one_write(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    writes: list[str] = []
    machine.disk.hook = lambda operation, path: writes.append(path) if operation == "write" else None
    responses = await send_together(client, topic)
    assert len([path for path in writes if "orders-0" in path]) == 1
    assert [response.base_offset for response in responses] == [1, 2, 3, 4, 5]
    assert values_of(await client.fetch(topic, 1)) == NUMBERS


@on_machine
async def test_a_consumer_that_waits_is_given_what_arrived_together(machine: Machine) -> None:
    client, consumer = machine.connect(), machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    waiting = machine.loop.create_task(consumer.fetch(topic, 1, max_wait_ms=10_000))
    await send_together(client, topic)
    assert values_of(await waiting) == NUMBERS


@on_machine
async def test_a_full_disk_refuses_all_that_would_be_one_write_and_keeps_none_of_it(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    producer_id, producer_epoch = await client.init_producer_id()
    producer = {"producer_id": producer_id, "producer_epoch": producer_epoch}
    await client.produce(topic, b"first", base_sequence=0, **producer)
    machine.disk.capacity_bytes = machine.disk.used_bytes() + 200
    refused = await send_together(client, topic, base_sequence=1, **producer)
    assert {response.error_code for response in refused} == {ErrorCode.KAFKA_STORAGE_ERROR}
    assert {(response.base_offset, response.log_start_offset) for response in refused} == {(-1, -1)}
    assert values_of(await client.fetch(topic, 0)) == [b"first"]
    machine.disk.heal()
    again = await send_together(client, topic, base_sequence=1, **producer)
    assert [(response.error_code, response.base_offset) for response in again] == [
        (0, offset) for offset in range(1, 6)
    ]
    assert [found.base_sequence for found in await client.read_all(topic)] == list(range(6))


@on_machine
async def test_a_disk_that_fails_refuses_all_that_would_be_one_write(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    machine.disk.fail("write", errno.EIO, path="orders-0")
    refused = [*await send_together(client, topic), *await send_together(client, topic)]
    assert {response.error_code for response in refused} == {ErrorCode.KAFKA_STORAGE_ERROR}


@pytest.mark.parametrize("version", [11, 13])
async def test_a_topic_made_again_is_another_one(loop: SimLoop, version: int) -> None:
    machine = Machine(loop)
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders")
    await send_together(client, topic, version)
    await client.delete_topic(topic)
    assert {response.error_code for response in await send_together(client, topic, version)} == {
        ErrorCode.UNKNOWN_TOPIC_ID if version == 13 else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }
    again = await client.create_topic("orders")
    responses = await send_together(client, again, version)
    assert [response.base_offset for response in responses] == [0, 1, 2, 3, 4]
    await machine.stop()


class Producing:
    """SmallProduces over partitions on a simulated disk; `orders` holds a record already."""

    def __init__(self, loop: SimLoop, authorizer: Any = None, **topic: Any) -> None:
        self.hosting = Hosting(loop, broker_count=2)
        self.create(**topic)
        services = self.hosting.services(authorizer)
        self.verified: list[tuple[TransactionalProducer, int]] = []
        services.transaction_verification = SimpleNamespace(verify_at_once=self._verify_at_once)
        self.served = SmallProduces(services)

    def _verify_at_once(self, producer: TransactionalProducer, _partition: Any, base_sequence: int) -> None:
        """Verify nothing at once, as if the coordinator were another broker."""
        self.verified.append((producer, base_sequence))

    def create(self, **topic: Any) -> None:
        partition = self.hosting.create_topic(**topic)
        partition.log.append_as_leader(bytearray(batch(b"first")), leader_epoch=0, now_ms=NOW_MS)

    def begin_transaction(self) -> None:
        """Open a transaction of PRODUCER in `orders`."""
        log = self.hosting.log("orders")
        guard = log.producer_state.start_verification(7, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
        first = batch(b"first", **PRODUCER, base_sequence=0, is_transactional=True)
        log.append_as_leader(bytearray(first), leader_epoch=0, now_ms=NOW_MS, verification=guard)

    def serve(
        self,
        count: int = 1,
        client_id: str | None = "c",
        most: int = 32,
        topic: str = "orders",
        transactional_id: str | None = None,
    ) -> int:
        """Return how many of `count` requests are served."""
        fields = {} if transactional_id is None else {**PRODUCER, "base_sequence": 1, "is_transactional": True}
        request = produce(Topic("", topic_id(topic)), batch(b"v", **fields))
        request.transactional_id = transactional_id
        frame = request_frame(request, PRODUCE_VERSION, client_id=client_id)
        found = self.served.serve(INFO, (len(frame).to_bytes(4, "big") + frame) * count, 0, most)
        return 0 if found is None else found.frame_count


async def test_who_may_not_write_is_left_to_the_handler(loop: SimLoop) -> None:
    assert Producing(loop).serve() == 1
    assert Producing(loop, Deny((AclOperation.WRITE, "orders"))).serve() == 0


async def test_who_may_not_write_in_a_transaction_is_left_to_the_handler(loop: SimLoop) -> None:
    for denied, count in (("another", 1), ("id", 0), ("orders", 0)):
        authorizer = Deny((AclOperation.WRITE, denied))
        requester = Producing(loop, authorizer)
        requester.begin_transaction()
        authorizer.questions.clear()
        assert requester.serve(transactional_id="id") == count
        requested = [(kind, name) for _, kind, name, *_, is_logged, _ in authorizer.questions if is_logged]
        assert requested == [("TRANSACTIONAL_ID", "id"), ("TOPIC", "orders")] * count


async def test_a_transaction_that_cannot_be_verified_at_once_is_left_to_the_handler(loop: SimLoop) -> None:
    requester = Producing(loop)
    assert requester.serve(transactional_id="id") == 0
    [(producer, base_sequence)] = requester.verified
    assert (producer.transactional_id, producer.producer_id, producer.producer_epoch) == ("id", 7, 0)
    assert (producer.adds_partitions, producer.knows_transaction_abortable, base_sequence) == (True, True, 1)
    requester.begin_transaction()
    assert requester.serve(transactional_id="id") == 1
    assert requester.serve() == 1
    assert len(requester.verified) == 1


async def test_while_producers_are_crowded_a_transaction_is_left_to_the_handler(loop: SimLoop) -> None:
    """It counts new producers by their client: one client with ever new transactional ids takes not all the room."""
    requester = Producing(loop)
    requester.begin_transaction()
    account = requester.hosting.log_manager.producer_counts
    account.max_ungranted = 1
    account.add(8)
    assert account.is_crowded
    assert requester.serve(transactional_id="id") == 0
    assert requester.serve() == 1
    account.max_ungranted = 100
    account.add(9)
    assert not account.is_crowded
    assert requester.serve(transactional_id="id") == 1


@on_machine
async def test_a_transaction_does_not_begin_before_sequence_0(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    producer_id = (await new_transactions(client, topic, "id"))._producer_id
    topics = [AddPartitionsToTxnTopic(topic.name, partitions=[0])]
    await client.call(
        AddPartitionsToTxnRequest(
            [],
            v3_and_below_transactional_id="id",
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        ),
        3,
    )
    for base_sequence in (-1, -5):
        fields = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": base_sequence}
        request = produce(topic, client.batch([b"v"] * 3, **fields, is_transactional=True))
        request.transactional_id = "id"
        response = (await client.call(request, 11)).responses[0].partition_responses[0]
        assert response.error_code == ErrorCode.INVALID_RECORD
    assert values_of(await client.fetch(topic, 0)) == [b"first"]


async def test_what_lacks_replicas_in_sync_is_left_to_the_handler(loop: SimLoop) -> None:
    configs = {"min.insync.replicas": "2"}
    assert Producing(loop, replicas=(1, 2), configs=configs).serve() == 1
    assert Producing(loop, replicas=(1, 2), isr=(1,), configs=configs).serve() == 0


async def test_each_request_that_was_not_replicated_in_time_is_counted_with_its_error(loop: SimLoop) -> None:
    requester = Producing(loop, replicas=(1, 2))
    served = requester.served.serve(INFO, framed(b"v") * 3, 0, 32)
    assert served is not None
    assert served.wait is not None
    answered = loop.create_future()
    served.wait(answered.set_result)
    await answered
    assert list(served.error_codes) == [ErrorCode.REQUEST_TIMED_OUT] * 3


async def test_each_request_that_a_full_disk_refused_is_counted_with_its_error(loop: SimLoop) -> None:
    requester = Producing(loop)
    disk = requester.hosting.disk
    disk.capacity_bytes = disk.used_bytes() + 100
    served = requester.served.serve(INFO, framed(b"v") * 3, 0, 32)
    assert served is not None
    assert list(served.error_codes) == [ErrorCode.KAFKA_STORAGE_ERROR] * 3


async def test_no_more_are_served_than_a_turn_has_left(loop: SimLoop) -> None:
    requester = Producing(loop)
    assert [requester.serve(5, most=most) for most in (1, 4, 5, 6)] == [1, 4, 5, 5]


async def test_clients_with_ever_new_names_are_served_and_not_all_remembered(loop: SimLoop) -> None:
    requester = Producing(loop)
    assert all(requester.serve(client_id=f"client-{number}") for number in range(MAX_PLANS + 10))
    assert len(requester.served._plans) <= MAX_PLANS


async def test_deleted_topics_are_not_remembered(loop: SimLoop) -> None:
    requester = Producing(loop)
    for number in range(100):
        requester.create(name=f"topic-{number}")
        assert requester.serve(topic=f"topic-{number}") == 1
        requester.hosting.delete_topic(f"topic-{number}")
    assert len(requester.served._plans) <= 2 * MIN_SWEEP


async def test_a_frame_larger_than_what_is_allowed_is_refused_however_it_arrives(loop: SimLoop) -> None:
    machine = Machine(loop, socket_request_max_bytes="2000")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("orders")
    await client.produce(topic, b"first")
    assert {response.error_code for response in await send_together(client, topic)} == {0}
    with pytest.raises(EOFError):
        await client.produce(topic, b"v" * 3000)
    await machine.stop()
