"""What parts of a broker cost, as CPU of this process: compare the interpreted kafkapy with the compiled one.

    python -m tests.simulator.part_costs raft recovery                           # microseconds an operation, as JSON
    cd .venv-compiled/checkout && ../bin/python -m tests.simulator.part_costs    # the same, compiled

In each load one part has most of the work: followers with their leader's responses to them, both kinds of groups, Raft,
timers, recovery. (The controller's is `python -m benchmarks.turns`.) Time is virtual, disk and network are simulated,
but recovery reads files, in the directory for temporary ones. The simulator stays interpreted and counts, so a part
gains more than its load shows.
"""

import argparse
import asyncio
import gc
import json
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from kafkapy import compiled
from kafkapy.config.log import LogConfig
from kafkapy.protocol.messages.consumer_group_heartbeat_request import ConsumerGroupHeartbeatRequest, TopicPartitions
from kafkapy.protocol.messages.consumer_protocol_assignment import ConsumerProtocolAssignment, TopicPartition
from kafkapy.protocol.messages.consumer_protocol_subscription import ConsumerProtocolSubscription
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.find_coordinator_request import FindCoordinatorRequest
from kafkapy.protocol.messages.heartbeat_request import HeartbeatRequest
from kafkapy.protocol.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from kafkapy.protocol.messages.sync_group_request import SyncGroupRequest, SyncGroupRequestAssignment
from kafkapy.raft import effects, events
from kafkapy.raft.config import RaftConfig
from kafkapy.raft.core import RaftCore
from kafkapy.raft.log_view import LogView
from kafkapy.raft.messages import LogBatch
from kafkapy.raft.voters import VoterHistory, VoterSet
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.storage.system_disk import SystemDisk
from kafkapy.timer.purgatory import DelayedOperation, Purgatory
from kafkapy.timer.wheel import TimerEntry, TimingWheel
from kafkapy.types import TopicPartition as PartitionName
from tests.simulator.broker_world import FETCH_VERSION, KafkaClient, Machine
from tests.simulator.loop import SimLoop, run
from tests.simulator.raft_cluster import key_of, voter_of
from tests.simulator.replicas import ReplicaWorld
from tests.support.batches import build_batch
from tests.support.wire import request_frame

NOW_MS = 1_700_000_000_000
GROUP, TOPIC = "group", "orders"
MEMBERS, PARTITIONS_EACH = 20, 10
SHORT, KIB = [b"v" * 100], [bytes(1024)] * 15
Figures = dict[str, float]
"""Microseconds of CPU, by operation."""


class Meter:
    """Measures blocks of operations. scale: how many operations there are, of those that a figure needs."""

    def __init__(self, scale: float) -> None:
        self._scale = scale
        self.figures: Figures = {}

    def times(self, count: int) -> int:
        return max(1, int(count * self._scale))

    @contextmanager
    def measure(self, name: str, count: int) -> Iterator[None]:
        """Add the CPU time of the block, of which each of `count` operations has its share."""
        gc.collect()
        start = time.process_time()
        yield
        self.figures[name] = (time.process_time() - start) / count * 1e6


# -- followers --------------------------------------------------------------------------------------------------------


async def followers(loop: SimLoop, meter: Meter) -> None:
    """Produce with acks=all on two nodes: the leader's append, the fetch that it wakes, the follower's append."""
    for name, partition_count, values in (
        ("a record in 1 partition", 1, SHORT),
        ("15 records of 1 KiB in each of 10 partitions", 10, KIB),
        ("a record in each of 200 partitions", 200, SHORT),
    ):
        world = ReplicaWorld(loop, 2)
        world.create_topic(partition_count, replicas=(1, 2))
        await world.pass_ms(3000)
        await _produce_to_all(world, partition_count, values)
        rounds = meter.times(600 // partition_count)
        with meter.measure(f"followers: {name}", rounds * partition_count):
            for _ in range(rounds):
                await _produce_to_all(world, partition_count, values)
        await world.stop()


async def _produce_to_all(world: ReplicaWorld, partition_count: int, values: Sequence[bytes]) -> None:
    responses = await asyncio.gather(*(world.produce(1, *values, number=number) for number in range(partition_count)))
    assert {error_code for error_code, _ in responses} == {0}


# -- groups -----------------------------------------------------------------------------------------------------------


async def _group_broker(loop: SimLoop) -> tuple[Machine, KafkaClient, bytes]:
    """Return a broker, a client that has found its groups, and the id of a topic."""
    machine = Machine(loop, offsets_topic_num_partitions="1", group_consumer_assignment_interval_ms="0")
    await machine.boot()
    client = machine.connect()
    topic = await client.create_topic(TOPIC, MEMBERS * PARTITIONS_EACH)
    await client.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP]), 5)
    return machine, client, topic.topic_id


async def _send_often(client: KafkaClient, frames: Sequence[bytes], times: int, *, error_at: int) -> None:
    """Send the frames together, again and again. error_at: where a response has its error code."""
    for _ in range(times):
        await client.link.send(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
        for _ in frames:
            assert (await client.link.receive_frame())[error_at : error_at + 2] == bytes(2)


async def consumer_groups(loop: SimLoop, meter: Meter) -> None:
    """Members of KIP-848 groups join until all have their part; heartbeats in which nothing is new."""
    machine, client, topic_id = await _group_broker(loop)
    await _join_all(client, "before", topic_id)
    rounds = meter.times(3)
    with meter.measure("consumer groups: a member joins", rounds * MEMBERS):
        for number in range(rounds):
            epochs = await _join_all(client, f"{GROUP}-{number}", topic_id)
    frames = [
        request_frame(
            ConsumerGroupHeartbeatRequest(f"{GROUP}-{rounds - 1}", member_id=member_id, member_epoch=epoch), 1
        )
        for member_id, epoch in epochs.items()
    ]
    rounds = meter.times(50)
    with meter.measure("consumer groups: a heartbeat", rounds * MEMBERS):
        await _send_often(client, frames, rounds, error_at=9)
    await machine.stop()


async def _join_all(client: KafkaClient, group_id: str, topic_id: bytes) -> dict[str, int]:
    """Let MEMBERS join and take what they are given; return their epochs once nothing changes."""
    epochs: dict[str, int] = {}
    owned: dict[str, set[int]] = {}

    async def beat(member_id: str, **fields: Any) -> bool:
        request = ConsumerGroupHeartbeatRequest(
            group_id, member_id=member_id, member_epoch=epochs.get(member_id, 0), **fields
        )
        response = await client.call(request, 1)
        assert response.error_code == 0, response
        is_new = response.assignment is not None or epochs.get(member_id) != response.member_epoch
        epochs[member_id] = response.member_epoch
        if response.assignment is not None:
            owned[member_id] = {number for each in response.assignment.topic_partitions for number in each.partitions}
        return is_new

    for number in range(MEMBERS):
        joining = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": [TOPIC], "topic_partitions": []}
        await beat(f"member-{number}", **joining)
    is_reconciled = False
    while not is_reconciled:
        is_reconciled = True
        for member_id in epochs:
            reported = [TopicPartitions(topic_id, partitions=sorted(owned.get(member_id, ())))]
            is_reconciled &= not await beat(member_id, topic_partitions=reported)
    assert [len(each) for each in owned.values()] == [PARTITIONS_EACH] * MEMBERS
    return epochs


async def classic_groups(loop: SimLoop, meter: Meter) -> None:
    """All members of a classic group join again and sync; heartbeats in which nothing is new."""
    machine, client, _ = await _group_broker(loop)
    clients = [machine.connect() for _ in range(MEMBERS)]
    member_ids = [""] * MEMBERS
    await _rebalance(clients, member_ids)
    rounds = meter.times(20)
    with meter.measure("classic groups: a member joins again", rounds * MEMBERS):
        for _ in range(rounds):
            generation = await _rebalance(clients, member_ids)
    frames = [
        request_frame(HeartbeatRequest(GROUP, generation_id=generation, member_id=member_id), 2)
        for member_id in member_ids
    ]
    rounds = meter.times(100)
    with meter.measure("classic groups: a heartbeat", rounds * MEMBERS):
        await _send_often(client, frames, rounds, error_at=8)
    await machine.stop()


async def _rebalance(clients: Sequence[KafkaClient], member_ids: list[str]) -> int:
    """Let all members join and sync; return the generation. member_ids: filled in."""
    subscription = (1).to_bytes(2, "big") + ConsumerProtocolSubscription([TOPIC]).encode(1)
    protocols = [JoinGroupRequestProtocol("range", metadata=subscription)]

    async def join(number: int) -> int:
        client = clients[number]
        joined = await client.call(
            JoinGroupRequest(
                GROUP,
                session_timeout_ms=45_000,
                rebalance_timeout_ms=60_000,
                member_id=member_ids[number],
                group_instance_id=None,
                protocol_type="consumer",
                protocols=protocols,
            ),
            3,
        )
        assert joined.error_code == 0, joined
        member_ids[number] = joined.member_id
        assigned = [
            SyncGroupRequestAssignment(each.member_id, assignment=_assignment(index))
            for index, each in enumerate(joined.members)
        ]
        request = SyncGroupRequest(
            GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=assigned
        )
        assert (await client.call(request, 2)).error_code == 0
        generation: int = joined.generation_id
        return generation

    return max(await asyncio.gather(*map(join, range(MEMBERS))))


def _assignment(index: int) -> bytes:
    numbers = range(index * PARTITIONS_EACH, (index + 1) * PARTITIONS_EACH)
    return (1).to_bytes(2, "big") + ConsumerProtocolAssignment(
        [TopicPartition(TOPIC, partitions=list(numbers))]
    ).encode(1)


# -- Raft -------------------------------------------------------------------------------------------------------------


class Quorum:
    """Three cores whose messages arrive at once, whose logs are lists and synced at once."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._events: deque[tuple[int, Any]] = deque()
        self._batches: dict[int, list[LogBatch]] = {1: [], 2: [], 3: []}
        voters = VoterSet(map(voter_of, self._batches))
        self.cores = {
            node_id: RaftCore(
                RaftConfig(
                    local=voter_of(node_id),
                    bootstrap_ids=tuple(other for other in self._batches if other != node_id),
                    append_linger_ms=0,
                ),
                LogView(),
                VoterHistory(voters),
                effects.ElectionState(),
                node_id,
            )
            for node_id in self._batches
        }
        assert key_of(1) in {voter.key for voter in voters}
        for node_id in self.cores:
            self.step(node_id, events.Started())
        while not any(core.is_leader and core.high_watermark > 0 for core in self.cores.values()):
            self.wake()

    def leader(self) -> RaftCore:
        return next(core for core in self.cores.values() if core.is_leader)

    def step(self, node_id: int, event: Any) -> None:
        """Step a core, and all that follows from it."""
        self._events.append((node_id, event))
        while self._events:
            stepped_id, next_event = self._events.popleft()
            for effect in self.cores[stepped_id].step(next_event, self.now_ms):
                self._apply_decision(stepped_id, effect)

    def wake(self) -> None:
        """Let time pass until the next deadline."""
        deadlines = {node_id: core.deadline_ms() for node_id, core in self.cores.items()}
        self.now_ms = max(self.now_ms, min(each for each in deadlines.values() if each is not None))
        for node_id, deadline_ms in deadlines.items():
            if deadline_ms is not None and deadline_ms <= self.now_ms:
                self.step(node_id, events.TimePassed())

    def append(self) -> None:
        self.now_ms += 1
        leader = self.leader()
        end_offset = leader.log.end_offset + 1
        self.step(leader.local.node_id, events.AppendRequested(leader.leader_epoch, 1, b"", 100))
        assert leader.high_watermark == end_offset, "a majority has it"

    def _apply_decision(self, node_id: int, effect: Any) -> None:
        batches = self._batches[node_id]
        if isinstance(effect, effects.AppendBatch):
            batches.append(effect.batch)
            del batches[:-100]
        elif isinstance(effect, effects.FlushLog):
            self._events.append((node_id, events.LogFlushed(effect.end_offset, effect.generation)))
        elif isinstance(effect, effects.SendRequest):
            request = effect

            def respond(response: Any) -> None:
                event = events.ResponseReceived(request.node_id, request.request_id, response)
                self._events.append((node_id, event))

            self._events.append((effect.node_id, events.RequestReceived(respond, effect.request)))
        elif isinstance(effect, effects.SendResponse | effects.SendResponseWithRecords):
            respond_to: Any = effect.respond_to
            response: Any = effect.response
            if isinstance(effect, effects.SendResponseWithRecords):
                sent = tuple(each for each in batches if each.last_offset >= effect.fetch_offset)
                response = replace(response, batches=sent)
            respond_to(response)


def raft(meter: Meter) -> None:
    """Three cores without a driver: a record appended on all, and the fetches of an idle quorum."""
    quorum = Quorum()
    quorum.append()
    count = meter.times(1000)
    with meter.measure("raft: a record appended on three nodes", count):
        for _ in range(count):
            quorum.append()
    with meter.measure("raft: a deadline of an idle quorum", count):
        for _ in range(count):
            quorum.wake()


# -- timers -----------------------------------------------------------------------------------------------------------


class Waiting(DelayedOperation):
    is_ready = False

    def try_complete(self) -> bool:
        return self.is_ready and self.complete()

    def on_complete(self) -> None:
        pass


def timers(meter: Meter) -> None:
    """Time-outs of which one in ten expires; operations that look once in vain and then complete."""
    count = meter.times(10_000)
    wheel = TimingWheel(start_ms=0)
    entries = [TimerEntry() for _ in range(count)]
    with meter.measure("timers: a time-out", count):
        for number, entry in enumerate(entries):
            wheel.add(entry, 500 + number * 7919 % 30_000)
        for number, entry in enumerate(entries):
            if number % 10:
                entry.cancel()
        expired = sum(len(wheel.advance(now_ms)) for now_ms in range(0, 31_000, 100))
    assert expired == (count + 9) // 10
    purgatory = Purgatory(wheel)
    operations = [Waiting() for _ in range(count)]
    with meter.measure("timers: a delayed operation", count):
        for number, operation in enumerate(operations):
            purgatory.try_complete_else_watch(operation, [number % 100], timeout_ms=30_000, now_ms=31_000)
        for is_ready in (False, True):
            for operation in operations:
                operation.is_ready = is_ready
            completed = sum(map(purgatory.check_and_complete, range(100)))
    assert completed == count


async def waiting_fetches(loop: SimLoop, meter: Meter) -> None:
    """A fetch at the end of a log waits, and is answered after the next append."""
    machine = Machine(loop)
    await machine.boot()
    producer, consumer = machine.connect(), machine.connect()
    topic = await producer.create_topic(TOPIC)
    count = meter.times(300)
    with meter.measure("timers: a fetch that waits, and a produce", count):
        for offset in range(count):
            requested = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1 << 20)
            topics = [FetchTopic(topic.name, topic_id=topic.topic_id, partitions=[requested])]
            request = FetchRequest(max_wait_ms=30_000, min_bytes=1, session_epoch=-1, topics=topics)
            await consumer.link.send_frame(request_frame(request, FETCH_VERSION))
            await producer.produce(topic, *SHORT)
            await consumer.link.receive_frame()
    await machine.stop()


# -- recovery ---------------------------------------------------------------------------------------------------------


def recovery(meter: Meter) -> None:
    """Open a log of one segment after an unclean stop: its batches are checked, its indexes rebuilt."""
    for name, value_bytes, most, fields in (
        ("100 B", 30, 40_000, {}),
        ("100 B of a producer", 30, 40_000, {"producer_id": 7, "producer_epoch": 0}),
        ("16 KiB", 16_000, 3_000, {}),
    ):
        count = meter.times(most)
        with tempfile.TemporaryDirectory() as directory:
            _write_segment(Path(directory), value_bytes, count, fields)
            with meter.measure(f"recovery: a batch of {name}", count):
                log = open_log(
                    SystemDisk(),
                    directory,
                    PartitionName(TOPIC, 0),
                    LogConfig(),
                    now_ms=NOW_MS,
                    last_stop=LastStop(was_clean=False),
                )
            assert log.log_end_offset == count
            log.close()


def _write_segment(directory: Path, value_bytes: int, count: int, fields: dict[str, int]) -> None:
    with open(directory / f"{0:020}.log", "wb") as file:
        for offset in range(count):
            sequence = {"base_sequence": offset} if fields else {}
            records = [(NOW_MS + offset, None, bytes(value_bytes), ())]
            file.write(build_batch(records, base_offset=offset, leader_epoch=0, **fields, **sequence))


# -- all --------------------------------------------------------------------------------------------------------------


def _simulated(load: Callable[[SimLoop, Meter], Coroutine[Any, Any, None]]) -> Callable[[Meter], None]:
    return lambda meter: run(lambda loop: load(loop, meter))


LOADS: dict[str, Callable[[Meter], None]] = {
    "followers": _simulated(followers),
    "consumer_groups": _simulated(consumer_groups),
    "classic_groups": _simulated(classic_groups),
    "raft": raft,
    "timers": timers,
    "waiting_fetches": _simulated(waiting_fetches),
    "recovery": recovery,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.part_costs")
    parser.add_argument("loads", nargs="*", choices=[[], *LOADS], help="all if none is named")
    parser.add_argument("--scale", type=float, default=1.0, help="of how many operations a figure is")
    arguments = parser.parse_args()
    meter = Meter(arguments.scale)
    for name in arguments.loads or LOADS:
        LOADS[name](meter)
    print(json.dumps({"run": compiled.description(), **meter.figures}))


if __name__ == "__main__":
    main()
