"""Queues (share groups): how many records a second members accept, how soon, and what those cost who wait.

Members are librdkafka's share consumers, a process each, or Java's in one JVM; each accepts all that a poll returns. A
group's pace counts from its first to its last record, so that joining is left out. Beside it the same is read by a
consumer group (family `consume`).
"""

import asyncio
import json
import queue
import statistics
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.group_client import Peer
from benchmarks.groups import measured
from benchmarks.topics import create_topic, delete_topic
from benchmarks.wire import fill
from benchmarks.workload import Cost, Figures, Workload
from harness.servers import Server, java
from kafkapy.protocol.messages import share_fetch_request as fetching
from kafkapy.protocol.messages.describe_topic_partitions_request import DescribeTopicPartitionsRequest, TopicRequest
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kafkapy.protocol.messages.initialize_share_group_state_request import (
    InitializeShareGroupStateRequest,
    InitializeStateData,
    PartitionData,
)
from kafkapy.types import uuid_to_string

if TYPE_CHECKING:
    from confluent_kafka import Message, ShareConsumer

SIZE_BYTES, VALUE_BYTES = 64 << 20, 100
MEMBERS, PARTITIONS = (1, 4, 16), (1, 16)
RATE, SECONDS = 500, 15
WAITING, WAIT_S = 100, 10
LOADED_PARTITIONS = 10_000
PER_REQUEST = 1_000
RECORDS_OF_A_POLL = 500
BROKER_RESOURCE, GROUP_RESOURCE = 4, 32
GROUP_COORDINATOR, SHARE_COORDINATOR = 0, 2
EXPLICIT = "explicit"
SENT_NS = struct.Struct(">q")
TIMEOUT_S = 300
DELETED_S = 200
"""Apache Kafka looks for what it has to delete once a minute, by the value from before the change."""


async def prepare_group(server: Server, group: str) -> None:
    """Have the group begin with the first record, and its coordinator be there."""
    peer = await Peer.connect(server.bootstrap)
    await _alter(peer, GROUP_RESOURCE, group, "share.auto.offset.reset", "earliest")
    await _find_coordinator(peer, GROUP_COORDINATOR, group)
    peer.close()


async def _alter(peer: Peer, resource_type: int, name: str, key: str, value: str) -> None:
    resource = AlterConfigsResource(resource_type, resource_name=name, configs=[AlterableConfig(key, value=value)])
    (altered,) = (await peer.call(IncrementalAlterConfigsRequest(resources=[resource]), 1)).responses
    assert not altered.error_code, altered


async def _find_coordinator(peer: Peer, key_type: int, key: str) -> None:
    """Wait until a group, or a share partition, has a coordinator."""
    find = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
    while (await peer.call(find, 6)).coordinators[0].error_code:
        await asyncio.sleep(0.1)


def produce_one(server: Server, topic: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": server.bootstrap, "log_level": 0})
    producer.produce(topic, b"x" * VALUE_BYTES)
    assert producer.flush(TIMEOUT_S) == 0


def _new_consumer(bootstrap: str, topic: str, acknowledgement_mode: str = "implicit") -> "ShareConsumer":
    from confluent_kafka import ShareConsumer

    settings = {"share.acknowledgement.mode": acknowledgement_mode, "log_level": 0}
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": topic, **settings})
    consumer.subscribe([topic])
    return consumer


def _poll(consumer: "ShareConsumer") -> "list[Message]":
    return [each for each in consumer.poll(0.5) or () if each.error() is None]


# -- pace -----------------------------------------------------------------------------------------------------------


def accept_all(
    server: Server, topic: str, scale: float, *, members: int, partitions: int, role: str = "accept"
) -> Figures:
    """Have members of librdkafka read and accept all records of a topic; in the role "read", as a consumer group."""
    create_topic(server, topic, partitions)
    asyncio.run(prepare_group(server, topic))
    count = fill(server, topic, int(SIZE_BYTES * scale), partitions=partitions, value_bytes=VALUE_BYTES)
    command = [sys.executable, "-m", "benchmarks.queues", role, server.bootstrap, topic]
    with Cost(server) as cost:
        times, found = run_members(command, members, count)
    delete_topic(server, topic)
    figures = cost.figures(records=count, size_bytes=count * VALUE_BYTES, seconds=max(times) - min(times))
    return {**figures, "delivered_twice": float(found - count)}


def run_members(command: list[str], members: int, count: int) -> tuple[list[float], int]:
    """Run members until they have accepted so many records together; return when, and how many they were given.

    Raises queue.Empty if that takes longer than TIMEOUT_S.
    """
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(members)]
    readers = [threading.Thread(target=_read_lines, args=(process, lines)) for process in running]
    for reader in readers:
        reader.start()
    times: list[float] = []
    accepted = 0
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while accepted < count:
            first_s, last_s, number = json.loads(lines.get(timeout=max(deadline_s - time.monotonic(), 0)))
            times += (first_s, last_s)
            accepted += number
    finally:
        for process in running:
            process.kill()
            process.wait()
        for reader in readers:
            reader.join()
    return times, accepted


def _read_lines(process: "subprocess.Popen[str]", lines: "queue.SimpleQueue[str]") -> None:
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            lines.put(line)


def _accept(bootstrap: str, topic: str) -> None:
    """Poll, which accepts what the poll before returned; print when records came, and how many, once for each poll."""
    consumer = _new_consumer(bootstrap, topic)
    while True:
        messages = _poll(consumer)
        if messages:
            at_s = time.monotonic()
            consumer.commit_async()
            print(json.dumps([at_s, time.monotonic(), len(messages)]), flush=True)


def _read(bootstrap: str, topic: str) -> None:
    """Read as a member of a consumer group, which commits by itself; print as `_accept` does."""
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    while True:
        messages = [each for each in consumer.consume(RECORDS_OF_A_POLL, 0.5) if each.error() is None]
        if messages:
            at_s = time.monotonic()
            print(json.dumps([at_s, at_s, len(messages)]), flush=True)


def accept_all_with_java(server: Server, topic: str, scale: float, *, members: int, partitions: int) -> Figures:
    """Have ShareConsumerPerformance read and accept all records of a topic, with a thread a member."""
    create_topic(server, topic, partitions)
    asyncio.run(prepare_group(server, topic))
    count = fill(server, topic, int(SIZE_BYTES * scale), partitions=partitions, value_bytes=VALUE_BYTES)
    tool = java("org.apache.kafka.tools.ShareConsumerPerformance")
    arguments = ["--bootstrap-server", server.bootstrap, "--topic", topic, "--group", topic, "--hide-header"]
    arguments += ["--num-records", str(count), "--threads", str(members), "--timeout", "60000"]
    with Cost(server) as cost:
        done = subprocess.run([*tool, *arguments], check=True, capture_output=True, text=True, timeout=TIMEOUT_S)
    delete_topic(server, topic)
    # start, end, MB, MB/s, records/s, records, rebalance or fetch time ...
    fields = [field.strip() for field in done.stdout.strip().splitlines()[-1].split(",")]
    numbers = [float(field) for field in fields[2:]]
    figures = cost.figures(records=count, size_bytes=count * VALUE_BYTES)
    return {**figures, "mb_per_s": numbers[1], "records_per_s": numbers[2]}


# -- latency --------------------------------------------------------------------------------------------------------


def produce_to_acknowledgement(server: Server, topic: str, scale: float) -> Figures:
    """A record is produced, received, accepted, and that is answered: 500 of them a second, one member."""
    create_topic(server, topic)
    asyncio.run(prepare_group(server, topic))
    count = int(RATE * max(SECONDS * scale, 3))
    command = [sys.executable, "-m", "benchmarks.queues"]
    member = subprocess.Popen(
        [*command, "acknowledge", server.bootstrap, topic, str(count)], stdout=subprocess.PIPE, text=True
    )
    try:
        with Cost(server) as cost:
            producing = [*command, "produce", server.bootstrap, topic, str(count)]
            subprocess.run(producing, check=True, timeout=TIMEOUT_S)
            found: Figures = json.loads(member.communicate(timeout=TIMEOUT_S)[0])
    finally:
        member.kill()
        member.wait()
    delete_topic(server, topic)
    figures = cost.figures(records=count, size_bytes=count * VALUE_BYTES)
    return {**found, "broker_cpu_s_per_million": figures["broker_cpu_s_per_million"]}


def _produce(bootstrap: str, topic: str, count: str) -> None:
    """Produce at the rate."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    started = time.monotonic()
    for number in range(int(count)):
        time.sleep(max(started + number / RATE - time.monotonic(), 0))
        producer.produce(topic, SENT_NS.pack(time.monotonic_ns()))
        producer.poll(0)
    producer.flush(TIMEOUT_S)


def _acknowledge(bootstrap: str, topic: str, count: str) -> None:
    from confluent_kafka import AcknowledgeType

    consumer = _new_consumer(bootstrap, topic, EXPLICIT)
    latencies: list[float] = []
    while len(latencies) < int(count):
        messages = _poll(consumer)
        for each in messages:
            consumer.acknowledge(each, AcknowledgeType.ACCEPT)
        if messages:
            consumer.commit_sync(30.0)
        now_ns = time.monotonic_ns()
        latencies += [(now_ns - SENT_NS.unpack(each.value() or b"")[0]) / 1e6 for each in messages]
    counted = sorted(latencies[len(latencies) // 2 :])  # what came while the member joined has waited for that
    print(json.dumps({"p50_ms": statistics.median(counted), "p99_ms": counted[int(len(counted) * 0.99)]}))


# -- those who wait -------------------------------------------------------------------------------------------------


async def _initialize(server: Server, topic: str, partitions: int) -> bytes:
    """Create the states of share partitions, as a group's coordinator would; return the topic's id."""
    peer = await Peer.connect(server.bootstrap)
    (described,) = (await peer.call(DescribeTopicPartitionsRequest([TopicRequest(topic)]), 0)).topics
    await _find_coordinator(peer, SHARE_COORDINATOR, f"{topic}:{uuid_to_string(described.topic_id)}:0")
    for start in range(0, partitions, PER_REQUEST):
        some = range(start, min(start + PER_REQUEST, partitions))
        data = InitializeStateData(
            described.topic_id,
            partitions=[PartitionData(partition=each, state_epoch=0, start_offset=0) for each in some],
        )
        while True:
            response = await peer.call(InitializeShareGroupStateRequest(topic, topics=[data]), 0)
            if not any(part.error_code for result in response.results for part in result.partitions):
                break
            await asyncio.sleep(0.2)
    peer.close()
    topic_id: bytes = described.topic_id
    return topic_id


def _fetch(topic: str, topic_id: bytes, member: str, epoch: int, partitions: range, wait_ms: int) -> object:
    named = [fetching.FetchPartition(each) for each in partitions]
    return fetching.ShareFetchRequest(
        group_id=topic,
        member_id=member,
        share_session_epoch=epoch,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=1 << 20,
        max_records=1,
        batch_size=1,
        share_acquire_mode=1,
        topics=[fetching.FetchTopic(topic_id, partitions=named)] if named else [],
    )


def wait_together(server: Server, topic: str, scale: float) -> Figures:
    """A hundred members wait for one share partition; ten records a second come, each for one of them."""
    create_topic(server, topic)

    async def run() -> Figures:
        await prepare_group(server, topic)
        topic_id = await _initialize(server, topic, 1)
        peers = [await Peer.connect(server.bootstrap) for _ in range(WAITING)]
        acquired = 0

        async def member(number: int, peer: Peer) -> None:
            nonlocal acquired
            epoch, named = 0, range(1)
            while True:
                response = await peer.call(_fetch(topic, topic_id, f"m{number}", epoch, named, 5_000), 2)
                assert not response.error_code, response
                acquired += sum(len(part.acquired_records) for each in response.responses for part in each.partitions)
                epoch, named = epoch + 1, range(0)

        tasks = [asyncio.ensure_future(member(number, peer)) for number, peer in enumerate(peers)]
        await asyncio.sleep(1)
        cpu_s, before, started = server.cpu_s(), acquired, time.monotonic()
        for _ in range(int(10 * max(WAIT_S * scale, 2))):
            await asyncio.to_thread(produce_one, server, topic)
            await asyncio.sleep(0.1)
        seconds = time.monotonic() - started
        figures = {"broker_cpu_s": (server.cpu_s() - cpu_s) / seconds, "acquired_per_s": (acquired - before) / seconds}
        for task in tasks:
            task.cancel()
        for peer in peers:
            peer.close()
        return figures

    figures = measured(run)
    delete_topic(server, topic)
    return figures


def load_many(server: Server, topic: str, scale: float) -> Figures:
    """The states of 10,000 share partitions are read at their first fetch, 1,000 in a request."""
    partitions = max(1_000, int(LOADED_PARTITIONS * scale))
    create_topic(server, topic, partitions)

    async def run() -> Figures:
        await prepare_group(server, topic)
        topic_id = await _initialize(server, topic, partitions)
        memory_mb, cpu_s, started = server.memory_mb(), server.cpu_s(), time.monotonic()
        peers = []
        for start in range(0, partitions, PER_REQUEST):
            peer = await Peer.connect(server.bootstrap)
            peers.append(peer)
            some = range(start, min(start + PER_REQUEST, partitions))
            response = await peer.call(_fetch(topic, topic_id, f"m{start}", 0, some, 1), 2)
            assert not response.error_code, response
        figures = {
            "loaded_s": time.monotonic() - started,
            "broker_cpu_s": server.cpu_s() - cpu_s,
            "memory_kb_per_partition": (server.memory_mb() - memory_mb) * 1024 / partitions,
        }
        for peer in peers:
            peer.close()
        return figures

    figures = measured(run)
    delete_topic(server, topic)
    asyncio.run(_forget_files(server))
    return figures


async def _forget_files(server: Server) -> None:
    """Wait until the files of deleted partitions are gone.

    Apache Kafka maps two of each into its memory until then, and ends beyond vm.max_map_count, 65,530 as a rule.
    """
    peer = await Peer.connect(server.bootstrap)
    await _alter(peer, BROKER_RESOURCE, "", "log.segment.delete.delay.ms", "1000")
    until = time.monotonic() + DELETED_S
    while any(server.directory.glob("*-delete")):
        assert time.monotonic() < until, "partitions that were deleted have files still"
        await asyncio.sleep(0.5)
    await _alter(peer, BROKER_RESOURCE, "", "log.segment.delete.delay.ms", "60000")
    peer.close()


# -- the first record -----------------------------------------------------------------------------------------------


def first_record(server: Server, topic: str, scale: float) -> Figures:
    """How long a member waits for its first record: one that joins an empty group, and one that takes over.

    The second joins while the first has the only record; the first is killed, and its record comes to the second.
    """
    create_topic(server, topic)
    asyncio.run(prepare_group(server, topic))
    produce_one(server, topic)
    command = [sys.executable, "-m", "benchmarks.queues", "hold", server.bootstrap, topic]
    started = time.monotonic()
    first = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    second = None
    try:
        assert first.stdout is not None
        assert first.stdout.readline()
        joined_s = time.monotonic() - started
        second = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        time.sleep(8)
        killed = time.monotonic()
        first.kill()
        assert second.stdout is not None
        assert second.stdout.readline()
        taken_s = time.monotonic() - killed
    finally:
        for each in (first, second):
            if each is not None:
                each.kill()
                each.wait()
    delete_topic(server, topic)
    return {"first_record_s": joined_s, "first_record_after_kill_s": taken_s}


def _hold(bootstrap: str, topic: str) -> None:
    """Print a line for each poll with records, and never acknowledge them."""
    consumer = _new_consumer(bootstrap, topic, EXPLICIT)
    while not _poll(consumer):
        pass
    print("a record", flush=True)
    time.sleep(TIMEOUT_S)


WORKLOADS = [
    *(
        Workload(
            f"queue, {members} share consumers (librdkafka), {partitions} partitions",
            partial(accept_all, members=members, partitions=partitions),
            family="queues",
            quick_rounds=int(members == 4),
        )
        for members in MEMBERS
        for partitions in PARTITIONS
    ),
    *(
        Workload(
            f"queue, {members} share consumers (Java), {partitions} partitions",
            partial(accept_all_with_java, members=members, partitions=partitions),
            family="queues",
            quick_rounds=int(members == 4),
        )
        for members in MEMBERS
        for partitions in PARTITIONS
    ),
    *(
        Workload(
            f"queue, beside it a consumer group of {members} (librdkafka), {partitions} partitions",
            partial(accept_all, members=members, partitions=partitions, role="read"),
            family="queues",
            quick_rounds=int(members == 4),
        )
        for members in MEMBERS
        for partitions in PARTITIONS
    ),
    Workload("queue, produce to acknowledgement, 500 a second", produce_to_acknowledgement, family="queues"),
    Workload("queue, 100 members wait", wait_together, family="queues"),
    Workload("queue, 10000 share partitions loaded", load_many, family="queues", quick_rounds=0, rounds=2),
    Workload("queue, first record", first_record, family="queues", quick_rounds=1, rounds=2, warms_up=False),
]

ROLES: dict[str, Callable[..., None]] = {
    "accept": _accept,
    "read": _read,
    "produce": _produce,
    "acknowledge": _acknowledge,
    "hold": _hold,
}

if __name__ == "__main__":
    ROLES[sys.argv[1]](*sys.argv[2:])
