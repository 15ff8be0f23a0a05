"""What the hot paths cost, counted: bytecode instructions and calls of kafkapy's own code for a request of each kind.

calls: of functions of Python and of C by kafkapy's code; functions: kafkapy's own of these; modules: of how many
modules. docs/chains.md tells the last two.

A whole broker in virtual time serves the request, so that a count is the same on every machine; it is that of one
CPython minor version (COUNTED_ON). The counts are kept in hot_path_counts.json:

    python -m tests.simulator.hot_paths            # show the counts beside those kept
    python -m tests.simulator.hot_paths --update   # keep them: the diff of the file is then part of the change

C code costs what it costs: an instruction that sorts a million values counts as one. `make bench` sees that.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Self

from kafkapy.protocol.messages.add_partitions_to_txn_request import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest
from kafkapy.protocol.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from kafkapy.protocol.messages.end_txn_request import EndTxnRequest
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.init_producer_id_request import InitProducerIdRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.metadata_request import MetadataRequest, MetadataRequestTopic
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.produce_request import PartitionProduceData, ProduceRequest, TopicProduceData
from kafkapy.protocol.messages.streams_group_heartbeat_request import (
    StreamsGroupHeartbeatRequest,
    Subtopology,
    Topology,
)
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from tests.simulator.broker_world import (
    FETCH_VERSION,
    INIT_PRODUCER_ID_VERSION,
    PRODUCE_VERSION,
    KafkaClient,
    Machine,
    Topic,
)
from tests.simulator.loop import SimLoop, run
from tests.simulator.share_hot_paths import ShareMember, done_count, initialize_share_states
from tests.support.wire import request_frame

COUNTED_ON = (3, 11)
COUNTS = Path(__file__).with_name("hot_path_counts.json")
REPEATS = 8
"""Requests counted, after as many that warm up; the count of one is their mean, as not every append writes an index."""
PARTITIONS = 3
SMALL, MEDIUM, LARGE = 1, 150, 580
"""Records of 100 bytes in a batch: one, too many for the small ones' way (as full ones of Java's), and 64 KiB."""
WIDE, FEW = 16, 10
"""Partitions and records in the batch of each, as Java's producer sends to many partitions."""
METADATA_VERSION, OFFSET_COMMIT_VERSION = 13, 9
JOIN_VERSION, SYNC_VERSION, HEARTBEAT_VERSION, MODERN_HEARTBEAT_VERSION = 9, 5, 4, 1
CREATE_TOPICS_VERSION = 4
"""The last whose response has no configs: of kafka-python and of old clients."""

Sent = bytes | list[bytes] | tuple[bytes, bytes]
Frames = Callable[[], Sent]
"""Makes a request's frame, or those of several sent together, or of two of which only the second is counted."""
Counts = dict[str, dict[str, float]]


class Counter:
    """Counts what runs in modules of kafkapy from `with` to its end."""

    def __init__(self) -> None:
        self.instructions = self.calls = self.functions = 0
        self.modules: set[str] = set()
        self._is_ours: dict[CodeType, bool] = {}

    def __enter__(self) -> Self:
        sys.settrace(self._trace)
        sys.setprofile(self._profile)
        return self

    def __exit__(self, *_error: object) -> None:
        sys.setprofile(None)
        sys.settrace(None)

    def _counts(self, frame: FrameType) -> bool:
        is_ours = self._is_ours.get(frame.f_code)
        if is_ours is None:
            is_ours = str(frame.f_globals.get("__name__", "")).startswith("kafkapy.")
            self._is_ours[frame.f_code] = is_ours
        return is_ours

    def _trace(self, frame: FrameType, event: str, _argument: object) -> Any:
        if event == "opcode":
            self.instructions += 1
        elif event == "call":
            if not self._counts(frame):
                return None
            frame.f_trace_opcodes = True
            frame.f_trace_lines = False
        return self._trace

    def _profile(self, frame: FrameType, event: str, _argument: object) -> None:
        if event in ("call", "c_call") and self._counts(frame):
            self.calls += 1
            if event == "call":
                self.functions += 1
                self.modules.add(frame.f_code.co_filename)


def count_all() -> Counts:
    """Return instructions and calls for one request of each hot path."""
    found: Counts = {}
    run(lambda loop: _count_on(loop, found))
    run(lambda loop: _count_shares(loop, found))  # on a machine of its own: share groups change no other count
    return found


async def _count_on(loop: SimLoop, found: Counts) -> None:
    machine = Machine(loop, offsets_topic_num_partitions="1", transaction_state_log_num_partitions="1")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic("hot", PARTITIONS)
    for number in range(20):
        await client.create_topic(f"other-{number}", PARTITIONS)
    group = FindCoordinatorRequest(key_type=0, coordinator_keys=["group"])
    await client.call(group, 5)
    await client.produce(topic, *_values(LARGE), partition=1)
    producer_id, producer_epoch = await client.init_producer_id()
    sequence = iter(range(1_000_000))

    def idempotent() -> bytes:
        fields = {"producer_id": producer_id, "producer_epoch": producer_epoch, "base_sequence": next(sequence)}
        return _produce(topic, client.batch(_values(SMALL), **fields), partition=2)

    wide = await client.create_topic("wide", WIDE)
    for partition in range(WIDE):
        await client.produce(wide, *_values(SMALL), partition=partition)
    beside = await client.init_producer_id()
    of_java = new_batches(client, *beside)
    joined, modern = await join_classic(client), await join_modern(client)
    streams = await join_streams(client)
    names = count()
    opened = await new_transactions(client, topic, "open", partition=2)

    paths: dict[str, Frames] = {
        "produce of one record": lambda: _produce(topic, client.batch(_values(SMALL))),
        "produce of one record, idempotent": idempotent,
        "five produces of one record together": lambda: [_produce(topic, client.batch(_values(SMALL)))] * 5,
        "produce of 17 KiB, idempotent": lambda: _produce(topic, next(of_java), partition=2),
        "produce of 17 KiB in an open transaction": opened.next_of_open_one,
        "produce of 64 KiB": lambda: _produce(topic, client.batch(_values(LARGE))),
        "fetch of 64 KiB": lambda: _fetch(topic, FetchPartition(1, fetch_offset=0, partition_max_bytes=1 << 20)),
        "fetch of nothing": lambda: _fetch(topic, FetchPartition(1, fetch_offset=LARGE, partition_max_bytes=1 << 20)),
        "metadata of one topic": lambda: _metadata([topic.name]),
        "metadata of all topics": lambda: _metadata(None),
        "offset commit": lambda: _commit(topic),
        "heartbeat": lambda: request_frame(joined, HEARTBEAT_VERSION),
        "heartbeat, KIP-848": lambda: request_frame(modern, MODERN_HEARTBEAT_VERSION),
        "heartbeat, KIP-1071": lambda: request_frame(streams, MODERN_HEARTBEAT_VERSION),
        "creation of a topic, version 4": lambda: _create_topic(f"new-{next(names)}"),
        "creation of a topic of one partition, version 4": lambda: _create_topic(f"new-{next(names)}", 1),
        "transaction of one record, version 2": (await new_transactions(client, topic, "new")).next_of_version_2,
        "transaction of one record, librdkafka": (await new_transactions(client, topic, "old")).next_of_librdkafka,
        "end of a transaction of one partition": (await new_transactions(client, topic, "ended")).next_end,
        "produce of 1 KiB to each of 16 partitions": lambda: _produce_to_all(wide, client.batch(_values(FEW))),
    }
    for name, new_frame in paths.items():
        found[name] = await _count(client, new_frame)
    await machine.stop()


async def _count_shares(loop: SimLoop, found: Counts) -> None:
    machine = Machine(loop, offsets_topic_num_partitions="1")
    await machine.boot()
    client = machine.connect()

    async def new_member(name: str, partition_count: int, records_per_fetch: int) -> tuple[Topic, ShareMember]:
        topic = await client.create_topic(name, partition_count)
        await initialize_share_states(client, topic, partition_count)
        return topic, ShareMember(topic, partition_count, records_per_fetch=records_per_fetch)

    narrow, of_narrow = await new_member("narrow", 1, FEW)
    wide, of_wide = await new_member("wide", WIDE, FEW)
    full, of_full = await new_member("full", WIDE, LARGE)
    for partition in range(WIDE):
        for _ in range(REPEATS):
            await client.produce(full, *_values(LARGE), partition=partition)
    paths: dict[str, Frames] = {
        "share fetch of 1 KiB": lambda: (_produce(narrow, client.batch(_values(FEW))), of_narrow.next_of_all()),
        "share fetch of 1 KiB of each of 16 partitions": lambda: (
            _produce_to_all(wide, client.batch(_values(FEW))),
            of_wide.next_of_all(),
        ),
        "share fetch of 64 KiB of one of 16 partitions": of_full.next_of_one,
    }
    for name, new_frame in paths.items():
        found[name] = await _count(client, new_frame)
    for topic, member, partition_count in ((narrow, of_narrow, 1), (wide, of_wide, WIDE), (full, of_full, WIDE)):
        assert await done_count(client, topic, partition_count) == member.accepted_count > 0, topic.name
    await machine.stop()


class Transactions:
    """One transactional id's transactions of one record: the frames of each, sent together.

    No other transaction is open in the partition; if one is, a marker costs some 500 instructions more.
    """

    def __init__(
        self, client: KafkaClient, topic: Topic, transactional_id: str, producer_id: int, partition: int
    ) -> None:
        self._client = client
        self._topic = topic
        self._id = transactional_id
        self._producer_id = producer_id
        self._partition = partition
        self._count = 0

    def next_of_version_2(self) -> list[bytes]:
        """Produce adds the partition, EndTxn raises the epoch, sequence numbers begin anew."""
        epoch, self._count = self._count, self._count + 1
        return [self._produce(PRODUCE_VERSION, epoch=epoch, sequence=0), self._end(5, epoch=epoch)]

    def next_end(self) -> tuple[bytes, bytes]:
        """As version 2, of which only the end is counted."""
        produce, end = self.next_of_version_2()
        return produce, end

    def next_of_librdkafka(self) -> list[bytes]:
        """The partition is added by a request, the epoch stays."""
        sequence, self._count = self._count, self._count + 1
        topics = [AddPartitionsToTxnTopic(self._topic.name, partitions=[self._partition])]
        adding = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self._id,
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=topics,
        )
        return [request_frame(adding, 0), self._produce(10, epoch=0, sequence=sequence), self._end(1, epoch=0)]

    def next_of_open_one(self) -> bytes:
        """A further batch of one transaction; the first one adds the partition."""
        sequence, self._count = self._count, self._count + MEDIUM
        return self._produce(PRODUCE_VERSION, epoch=0, sequence=sequence, record_count=MEDIUM)

    def _produce(self, version: int, *, epoch: int, sequence: int, record_count: int = SMALL) -> bytes:
        fields = {"producer_id": self._producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        batch = self._client.batch(_values(record_count), is_transactional=True, **fields)
        data = TopicProduceData(
            self._topic.name,
            topic_id=self._topic.topic_id,
            partition_data=[PartitionProduceData(self._partition, records=batch)],
        )
        request = ProduceRequest(transactional_id=self._id, acks=-1, timeout_ms=30_000, topic_data=[data])
        return request_frame(request, version)

    def _end(self, version: int, *, epoch: int) -> bytes:
        return request_frame(
            EndTxnRequest(self._id, producer_id=self._producer_id, producer_epoch=epoch, committed=True), version
        )


async def new_transactions(
    client: KafkaClient, topic: Topic, transactional_id: str, *, partition: int = 0
) -> Transactions:
    await client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[transactional_id]), 5)
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
    response = await client.call(request, INIT_PRODUCER_ID_VERSION)
    assert (response.error_code, response.producer_epoch) == (0, 0), response
    return Transactions(client, topic, transactional_id, response.producer_id, partition)


def new_batches(client: KafkaClient, producer_id: int, producer_epoch: int) -> Iterator[bytes]:
    """Yield an idempotent producer's batches of MEDIUM records."""
    for sequence in count(step=MEDIUM):
        yield client.batch(
            _values(MEDIUM), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence
        )


async def join_classic(client: KafkaClient) -> HeartbeatRequest:
    """Let a member join a classic group; return its heartbeat."""
    protocols = [JoinGroupRequestProtocol("range", metadata=b"")]
    request = JoinGroupRequest("classic", protocol_type="consumer", protocols=protocols, session_timeout_ms=45_000)
    request.rebalance_timeout_ms = 60_000
    request.member_id = (await client.call(request, JOIN_VERSION)).member_id
    joined = await client.call(request, JOIN_VERSION)
    assert joined.error_code == 0, joined
    assignment = SyncGroupRequestAssignment(joined.member_id, assignment=b"all")
    sync = SyncGroupRequest(
        "classic", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
    )
    sync.protocol_type, sync.protocol_name = "consumer", "range"
    assert (await client.call(sync, SYNC_VERSION)).error_code == 0
    return HeartbeatRequest("classic", generation_id=joined.generation_id, member_id=joined.member_id)


async def join_modern(client: KafkaClient) -> ConsumerGroupHeartbeatRequest:
    """Let a member join a KIP-848 group; return its heartbeat that changes nothing."""
    request = ConsumerGroupHeartbeatRequest("modern", member_id="member", member_epoch=0, rebalance_timeout_ms=60_000)
    request.subscribed_topic_names, request.topic_partitions = ["hot"], []
    joined = await client.call(request, MODERN_HEARTBEAT_VERSION)
    assert joined.error_code == 0, joined
    return ConsumerGroupHeartbeatRequest("modern", member_id="member", member_epoch=joined.member_epoch)


async def join_streams(client: KafkaClient) -> StreamsGroupHeartbeatRequest:
    """Let a member join a streams group and run its tasks; return its heartbeat that changes nothing."""
    reads = Topology(0, subtopologies=[Subtopology("0", source_topics=["hot"])])
    nothing = {"active_tasks": [], "standby_tasks": [], "warmup_tasks": []}
    request = StreamsGroupHeartbeatRequest(
        "streams", member_id="member", process_id="process", topology=reads, **nothing
    )
    request.rebalance_timeout_ms = 60_000
    response = await client.call(request, MODERN_HEARTBEAT_VERSION)
    while not response.active_tasks:
        assert response.error_code == 0, response
        await asyncio.sleep(response.heartbeat_interval_ms / 1000)
        request = StreamsGroupHeartbeatRequest("streams", member_id="member", member_epoch=response.member_epoch)
        response = await client.call(request, MODERN_HEARTBEAT_VERSION)
    request.member_epoch = response.member_epoch
    request.endpoint_information_epoch = response.endpoint_information_epoch
    return request


async def _count(client: KafkaClient, new_frame: Frames) -> dict[str, float]:
    """Serve REPEATS requests to warm up and REPEATS that count; all frames are made beforehand."""
    frames = [new_frame() for _ in range(2 * REPEATS)]
    counter = Counter()
    for number, frame in enumerate(frames):
        counted: bytes | list[bytes]
        if isinstance(frame, tuple):
            before, counted = frame
            await _serve(client, before)
        else:
            counted = frame
        with counter if number >= REPEATS else nullcontext():
            responses = await _serve(client, counted)
        assert all(responses), "every request is answered"
    return {
        "instructions": counter.instructions / REPEATS,
        "calls": counter.calls / REPEATS,
        "functions": counter.functions / REPEATS,
        "modules": len(counter.modules),
    }


async def _serve(client: KafkaClient, requested: bytes | list[bytes]) -> list[bytes]:
    frames = requested if isinstance(requested, list) else [requested]
    await client.link.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    return [await client.link.receive_frame() for _ in frames]


def _values(count: int) -> list[bytes]:
    return [b"%0100d" % number for number in range(count)]


def _produce(topic: Topic, batch: bytes, partition: int = 0) -> bytes:
    data = TopicProduceData(
        topic.name, topic_id=topic.topic_id, partition_data=[PartitionProduceData(partition, records=batch)]
    )
    return request_frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), PRODUCE_VERSION)


def _produce_to_all(topic: Topic, batch: bytes) -> bytes:
    data = [PartitionProduceData(partition, records=batch) for partition in range(WIDE)]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[TopicProduceData(topic.name, topic_id=topic.topic_id, partition_data=data)],
    )
    return request_frame(request, PRODUCE_VERSION)


def _fetch(topic: Topic, *requested: FetchPartition) -> bytes:
    topics = [FetchTopic(topic.name, topic_id=topic.topic_id, partitions=list(requested))]
    return request_frame(FetchRequest(max_wait_ms=0, min_bytes=1, session_epoch=-1, topics=topics), FETCH_VERSION)


def _metadata(names: Iterable[str] | None) -> bytes:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return request_frame(MetadataRequest(topics=topics), METADATA_VERSION)


def _create_topic(name: str, partition_count: int = PARTITIONS) -> bytes:
    topic = CreatableTopic(name, num_partitions=partition_count, replication_factor=1)
    return request_frame(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), CREATE_TOPICS_VERSION)


def _commit(topic: Topic) -> bytes:
    requested = [OffsetCommitRequestPartition(partition, committed_offset=1) for partition in range(PARTITIONS)]
    topics = [OffsetCommitRequestTopic(name=topic.name, partitions=requested)]
    return request_frame(OffsetCommitRequest(group_id="group", topics=topics), OFFSET_COMMIT_VERSION)


def kept() -> Counts:
    counts: Counts = json.loads(COUNTS.read_text())
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.hot_paths")
    parser.add_argument("--update", action="store_true", help="keep what was counted")
    parser.add_argument("--json", action="store_true", help="print the counts and nothing else")
    arguments = parser.parse_args()
    if arguments.json:
        print(json.dumps(count_all()))
        return 0
    if sys.version_info[:2] != COUNTED_ON:
        print(f"counts are those of Python {'.'.join(map(str, COUNTED_ON))}")
        return 1
    before = kept() if COUNTS.exists() else {}
    counts = count_all()
    for name, figures in counts.items():
        for figure, value in figures.items():
            was = before.get(name, {}).get(figure, 0)
            print(f"{name:47} {figure:13} {value:10.1f}  was {was:10.1f}  {value / was - 1 if was else 0:+.1%}")
    if arguments.update:
        COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
