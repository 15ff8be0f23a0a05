"""Reading near (KIP-392): followers serve consumers, and leaders name a replica in the consumer's rack."""

from typing import Any

import pytest

from kafkapy.handlers.data import fetch
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batches import batches
from kafkapy.replication.replica_selector import RACK_AWARE
from kafkapy.seams import FileRegion
from tests.simulator.loop import SimLoop
from tests.support.controllers import Cluster
from tests.support.hosting import NOW_MS, Hosting, batch, run_scheduled, topic_id

RACKS = {1: "a", 2: "b", 3: "b", 4: "c"}


class Context:
    listener_name = "PLAINTEXT"
    client_id = "consumer"
    meter = None
    is_long = False

    def __init__(self, version: int) -> None:
        self.api_version = version
        self.connection = ConnectionInfo("", "PLAINTEXT", "PLAINTEXT", "127.0.0.1", 0)


def new_hosting(loop: SimLoop, **properties: str) -> Hosting:
    cluster = Cluster()
    for broker_id, rack in RACKS.items():
        cluster.start_broker(broker_id, rack=rack)
    return Hosting(loop, cluster=cluster, **properties)


async def consume(
    hosting: Hosting, offset: int, *, rack: str = "", version: int = 18, max_wait_ms: int = 0, leader_epoch: int = -1
) -> Any:
    part = FetchPartition(0, fetch_offset=offset, partition_max_bytes=1000, current_leader_epoch=leader_epoch)
    topic = (
        FetchTopic("orders", topic_id=bytes(16), partitions=[part])
        if version < 13
        else FetchTopic("", topic_id=topic_id("orders"), partitions=[part])
    )
    request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=10_000, topics=[topic], rack_id=rack)
    context: Any = Context(version)
    response = await fetch.handle(hosting.services(), context, request)
    (read,) = response.responses[0].partitions
    return read


def offsets(response: Any) -> list[int]:
    if not isinstance(response.records, FileRegion):
        return []
    data = response.records.read()
    response.records.release()
    return [each.base_offset for each in batches(data)]


def follow(hosting: Hosting, count: int, high_watermark: int) -> Any:
    """Let this node follow, with so many records of which so many are committed."""
    partition = hosting.create_topic(replicas=(2, 1))
    log = partition.log
    assert log is not None
    for _ in range(count):
        log.append_as_leader(batch(b"v"), leader_epoch=0, now_ms=NOW_MS)
    log.update_high_watermark(high_watermark)
    return partition


async def test_a_follower_serves_consumers_up_to_its_high_watermark(loop: SimLoop) -> None:
    hosting = new_hosting(loop)
    follow(hosting, 3, 2)
    response = await consume(hosting, 0)
    assert (response.error_code, response.high_watermark, offsets(response)) == (0, 2, [0, 1])
    response = await consume(hosting, 3)
    assert (response.error_code, offsets(response)) == (0, [])
    response = await consume(hosting, 4)
    assert response.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_a_new_leader_answers_what_is_not_committed_yet_with_nothing(loop: SimLoop) -> None:
    """Its high watermark has not reached the start of its epoch: only ListOffsets is told so (KIP-207)."""
    hosting = new_hosting(loop)
    partition = follow(hosting, 3, 1)
    lead = PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1)
    hosting.commit(lead)
    assert partition.leader_epoch_start_offset == 3
    response = await consume(hosting, 2)
    assert (response.error_code, response.high_watermark, offsets(response)) == (0, 1, [])


@pytest.mark.parametrize(("version", "code"), [(10, ErrorCode.NOT_LEADER_OR_FOLLOWER), (11, ErrorCode.NONE)])
async def test_followers_serve_the_versions_that_can_be_sent_to_them(
    loop: SimLoop, version: int, code: ErrorCode
) -> None:
    hosting = new_hosting(loop)
    follow(hosting, 1, 1)
    assert (await consume(hosting, 0, version=version)).error_code == code


async def test_a_follower_checks_the_leader_epoch(loop: SimLoop) -> None:
    hosting = new_hosting(loop)
    follow(hosting, 1, 1)
    assert (await consume(hosting, 0, leader_epoch=1)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert (await consume(hosting, 0, leader_epoch=0)).error_code == ErrorCode.NONE


async def test_a_consumer_waits_at_a_follower_for_what_is_committed(loop: SimLoop) -> None:
    hosting = new_hosting(loop)
    partition = follow(hosting, 2, 1)
    waiting = hosting.start(consume(hosting, 1, max_wait_ms=500))
    await run_scheduled()
    assert not waiting.done()
    partition.log.update_high_watermark(2)
    hosting.manager.complete_waiting(partition)
    assert offsets(await waiting) == [1]
    assert loop.now_ms() == 0


def lead(hosting: Hosting, **ends: int) -> Any:
    """Let this node lead three records; `_2=3` says how far follower 2 has got."""
    partition = hosting.create_topic(replicas=(1, 2, 3, 4))
    log = partition.log
    assert log is not None
    for _ in range(3):
        log.append_as_leader(batch(b"v"), leader_epoch=0, now_ms=NOW_MS)
    for name, end in ends.items():
        partition.record_follower_fetch(int(name[1:]), fetch_offset=end, log_start_offset=0, now_ms=0)
    return partition


@pytest.mark.parametrize(
    ("rack", "offset", "expected"),
    [("b", 0, 3), ("b", 3, -1), ("c", 0, 4), ("a", 0, -1), ("elsewhere", 0, -1), ("", 0, -1)],
)
async def test_the_leader_names_the_most_caught_up_replica_in_the_rack(
    loop: SimLoop, rack: str, offset: int, expected: int
) -> None:
    hosting = new_hosting(loop, replica_selector_class=RACK_AWARE)
    lead(hosting, _2=1, _3=2, _4=3)
    response = await consume(hosting, offset, rack=rack, max_wait_ms=0)
    assert (response.error_code, response.preferred_read_replica) == (0, expected)
    assert bool(offsets(response)) == (expected < 0 and offset < 1)


async def test_a_named_replica_is_listed_at_once(loop: SimLoop) -> None:
    hosting = new_hosting(loop, replica_selector_class=RACK_AWARE)
    partition = lead(hosting, _2=3, _3=3, _4=3)
    response = await consume(hosting, 3, rack="c", max_wait_ms=500)
    assert (response.preferred_read_replica, response.high_watermark, loop.now_ms()) == (4, 3, 0)
    assert partition.log.high_watermark == 3


async def test_without_a_selector_everybody_reads_from_the_leader(loop: SimLoop) -> None:
    hosting = new_hosting(loop)
    lead(hosting, _2=3, _3=3, _4=3)
    response = await consume(hosting, 0, rack="b")
    assert (response.preferred_read_replica, offsets(response)) == (-1, [0, 1, 2])
