"""Batches of transactions served together are served as one by one: the same answers, files and producers.

As test_small_produces.py: two brokers on virtual time get the same bytes at the same moments, of clients of transaction
version 2 (Produce 12 and later adds partitions) and of others (AddPartitionsToTxn does), with mistakes among them.
"""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.partial_frame import MAX_COALESCED_FRAME_BYTES
from kafkapy.protocol.serving import coalesce_nothing
from kafkapy.storage.log.coalesced_append import CoalescedAppend
from tests.property.test_small_produces import LAST, LAST_RESPONSE, described
from tests.sim.test_broker_requests import on_machine
from tests.simulator.broker_world import KafkaClient, Machine, Topic
from tests.simulator.hot_paths import new_transactions
from tests.simulator.loop import SimLoop, run
from tests.support.interpreter import needs_interpreter
from tests.support.wire import request_frame

PARTITIONS = 2
RECORD_BYTES = (0, 1, 90, 90, 90, 1000)
RECORD_COUNTS = (1, 1, 1, 2, 10, 150, 170, 400)
LARGEST = (MAX_COALESCED_FRAME_BYTES - 500, MAX_COALESCED_FRAME_BYTES - 110, MAX_COALESCED_FRAME_BYTES + 1)
"""Values of one record: some fit into the largest frames that are served together, some do not."""
MISTAKES = ("gap", "repeated", "old epoch", "new epoch", "not transactional", "no id", "another id", "no producer")


@dataclass
class Transactional:
    """A producer under a transactional id; what it sends follows from what it has sent, mistakes apart."""

    transactional_id: str
    producer_id: int
    version: int
    producer_epoch: int = 0

    def __post_init__(self) -> None:
        self._sequences = [0] * PARTITIONS
        self._added: set[int] = set()

    def frames(self, random: Random, client: KafkaClient, topic: Topic) -> list[bytes]:
        """Return what it sends next: a batch, with what adds its partition, or the end of its transaction."""
        if random.random() < 0.08:
            return [self._end(random)]
        partition = random.choice((0, 0, 0, 1))
        frames = []
        if self.version < 12 and partition not in self._added and random.random() < 0.9:
            frames.append(self._add(topic, partition))
        self._added.add(partition)
        mistake = random.choice(MISTAKES) if random.random() < 0.04 else ""
        return [*frames, self._produce(random, client, topic, partition, mistake)]

    def _end(self, random: Random) -> bytes:
        is_committed, epoch = random.random() < 0.7, self.producer_epoch
        self._added.clear()
        request = EndTxnRequest(
            self.transactional_id, producer_id=self.producer_id, producer_epoch=epoch, committed=is_committed
        )
        if self.version < 12:
            return request_frame(request, 3)
        self.producer_epoch += 1
        self._sequences = [0] * PARTITIONS
        return request_frame(request, 5)

    def _add(self, topic: Topic, partition: int) -> bytes:
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id,
            v3_and_below_producer_id=self.producer_id,
            v3_and_below_producer_epoch=self.producer_epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(topic.name, partitions=[partition])],
        )
        return request_frame(adding, 3)

    def _produce(self, random: Random, client: KafkaClient, topic: Topic, partition: int, mistake: str) -> bytes:
        if random.random() < 0.03:
            values = [b"v" * random.choice(LARGEST)]
        else:
            values = [b"v" * random.choice(RECORD_BYTES)] * random.choice(RECORD_COUNTS)
        sequence = self._sequences[partition]
        if mistake == "repeated":
            sequence = max(sequence - len(values), 0)
        elif mistake != "gap":
            self._sequences[partition] += len(values)
        batch = client.batch(
            values,
            producer_id=-1 if mistake == "no producer" else self.producer_id,
            producer_epoch=self.producer_epoch + {"old epoch": -1, "new epoch": 1}.get(mistake, 0),
            base_sequence=sequence + (mistake == "gap"),
            is_transactional=mistake != "not transactional",
        )
        transactional_id = {"no id": None, "another id": "x" * 130}.get(mistake, self.transactional_id)
        data = TopicProduceData(
            topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(partition, records=batch)]
        )
        request = ProduceRequest(transactional_id, acks=-1, timeout_ms=1000, topic_data=[data])
        return request_frame(request, self.version)


async def serve(loop: SimLoop, seed: int, config: dict[str, str], is_together: bool) -> Any:
    """Return all that clients and the disk see of what three producers send over one connection, in pieces."""
    random = Random(seed)
    machine = Machine(loop, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    await machine.boot()
    if not is_together:
        for processor in machine.server._reactor.processors:
            processor.serving = replace(processor.serving, coalesce=coalesce_nothing)
    client = machine.connect()
    topic = await client.create_topic("ticks", PARTITIONS, **config)
    producers = [
        Transactional(name, (await new_transactions(client, topic, name))._producer_id, version)
        for name, version in (("new", 13), ("newer", 12), ("old", 10))
    ]
    link, seen = machine.connect().link, []
    for _ in range(60):
        frames: list[bytes] = []
        for producer in random.choices(producers, k=random.choice((1, 1, 2))):
            for _ in range(random.randint(1, 8)):
                frames += producer.frames(random, client, topic)
        await link.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames) + LAST)
        while LAST_RESPONSE not in link.received and not link.is_ended:
            await link._wait_change()
        assert not link.is_ended
        seen.append(bytes(link.received))
        link.received.clear()
    logs = {str(each): described(log) for each, log in machine.logs().items() if each.topic != "__cluster_metadata"}
    await machine.stop()
    return seen, logs


@pytest.mark.parametrize(
    ("seed", "config"),
    [
        (0, {}),
        (1, {}),
        (2, {"index_interval_bytes": "100", "segment_index_bytes": "48"}),
        (3, {"segment_bytes": "1048576", "max_message_bytes": "60000"}),
    ],
    ids=str,
)
def test_transactions_served_together_have_the_outcome_of_each_request_alone(seed: int, config: dict[str, str]) -> None:
    together, alone = (run(lambda loop, way=way: serve(loop, seed, config, way)) for way in (True, False))
    assert together == alone


@needs_interpreter("it replaces a method of a compiled class")
def test_many_of_them_are_served_together(monkeypatch: pytest.MonkeyPatch) -> None:
    written: list[int] = []
    write = CoalescedAppend.write

    def counted(coalesced: CoalescedAppend) -> bool:
        if coalesced._attributes:
            written.append(len(coalesced.base_offsets))
        return write(coalesced)

    monkeypatch.setattr(CoalescedAppend, "write", counted)
    run(lambda loop: serve(loop, 0, {}, is_together=True))
    assert len(written) > 20
    assert max(written) > 1


@on_machine
async def test_further_batches_of_a_transaction_are_one_write(machine: Machine) -> None:
    client = machine.connect()
    topic = await client.create_topic("orders")
    opened = await new_transactions(client, topic, "id")
    writes: list[str] = []
    machine.disk.hook = lambda operation, path: writes.append(path) if operation == "write" else None
    for count in (1, 3):
        writes.clear()
        frames = [opened.next_of_open_one() for _ in range(count)]
        await client.link.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        for _ in frames:
            await client.link.receive_frame()
        assert len([path for path in writes if path.endswith("orders-0/00000000000000000000.log")]) == 1
