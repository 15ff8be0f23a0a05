"""What does not end the wait of a ShareFetch, loads that take longer than it, and partitions that cannot be read."""

import asyncio
from typing import Any

import pytest

from kafkapy.metrics.histogram import bucket_of
from kafkapy.metrics.shares import MS, ShareCounts
from kafkapy.metrics.traffic import BrokerTraffic
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import StateReadResult
from kafkapy.share.record_state import ACK_ACCEPT, ACK_REJECT, ACK_RELEASE
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, run_scheduled
from tests.support.share_partition_hosting import Shares, acquired_of, parts_of


@pytest.mark.parametrize("is_by_session", [False, True])
async def test_what_is_released_of_another_partition_ends_no_wait(loop: SimLoop, is_by_session: bool) -> None:
    shares = Shares(loop, partition_count=2)
    shares.produce(b"a")
    one, other = shares.member(), shares.member("m2", connection="c2")
    assert await one.acquire(0) == [(0, 0, 1)]
    waiting = shares.hosting.start(other.fetch(1, max_wait_ms=10_000))
    await asyncio.sleep(1)
    if is_by_session:
        shares.partitions.connection_closed("c1")
    else:
        await one.acknowledge({0: [(0, 0, [ACK_RELEASE])]})
    await asyncio.sleep(1)
    assert not waiting.done()
    shares.produce(b"b", partition=1)
    assert acquired_of(await waiting) == [(0, 0, 1)]


def delay_reads(shares: Shares, delay_s: float) -> None:
    read = shares.persister.read

    async def late_read(group_id: str, reads: Any) -> list[StateReadResult]:
        await asyncio.sleep(delay_s)
        return await read(group_id, reads)

    shares.persister.read = late_read  # type: ignore[method-assign]


async def test_a_load_may_take_longer_than_the_wait(loop: SimLoop) -> None:
    shares = Shares(loop)
    shares.produce(b"a")
    delay_reads(shares, 1)
    member = shares.member()
    assert acquired_of(await member.fetch(max_wait_ms=400)) == []
    assert loop.now_ms() == 400
    assert acquired_of(await member.fetch(max_wait_ms=10_000)) == [(0, 0, 1)]
    assert (loop.now_ms(), shares.persister.read_count) == (1000, 1)


async def test_the_end_of_a_load_ends_the_waits(loop: SimLoop) -> None:
    shares = Shares(loop)
    shares.produce(b"a", b"b", b"c")
    delay_reads(shares, 1)
    members = [shares.member(f"m{number}", connection=f"c{number}") for number in range(3)]
    waiting = [member.fetch(max_wait_ms=10_000, max_records=1, share_acquire_mode=1) for member in members]
    acquired = [acquired_of(response) for response in await asyncio.gather(*waiting)]
    assert sorted(acquired) == [[(0, 0, 1)], [(1, 1, 1)], [(2, 2, 1)]]
    assert loop.now_ms() == 1000


async def test_loads_are_timed(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=2)
    counts = shares.partitions.counts = ShareCounts(lambda: loop.now_ms() * MS)
    for delay_s, partition in ((0.06, 0), (0.03, 1)):  # the second read is delayed by both
        delay_reads(shares, delay_s)
        await shares.member(f"m{partition}").fetch(partition, max_wait_ms=200)
    assert {ms: counts.load_ms[bucket_of(ms)] for ms in (30, 60, 90)} == {30: 0, 60: 1, 90: 1}


async def test_a_group_without_its_own_limit_any_more_has_the_broker_s(loop: SimLoop) -> None:
    shares = Shares(loop, share_partition_max_record_locks="100")
    shares.produce(*[b"a"] * 100)
    shares.produce(b"b")
    member = shares.member()
    assert await member.acquire() == [(0, 99, 1)]
    assert acquired_of(await member.fetch()) == []
    del shares.own["share.partition.max.record.locks"]
    assert acquired_of(await member.fetch()) == [(100, 100, 1)]


async def test_acknowledgements_of_several_partitions_are_counted_by_their_types(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=3)
    counts = shares.partitions.counts = ShareCounts(lambda: loop.now_ms() * MS)
    for partition in range(3):
        shares.produce(*[b"a"] * 10, partition=partition)
    member = shares.member()
    assert len(await member.acquire(0, 1, 2, min_bytes=500)) == 3
    acks = {
        0: [(0, 3, [ACK_ACCEPT]), (4, 9, [ACK_ACCEPT])],
        1: [(0, 7, [ACK_RELEASE])],
        2: [(0, 2, [ACK_REJECT]), (3, 4, [ACK_ACCEPT, ACK_RELEASE])],
    }
    assert {part.error_code for part in parts_of(await member.acknowledge(acks))} == {ErrorCode.NONE}
    assert counts.acknowledgements == [0, 11, 9, 3, 0]
    await member.acknowledge({0: [(0, 9, [ACK_ACCEPT])], 1: [(0, 7, [ACK_ACCEPT])]})
    assert counts.acknowledgements == [0, 21, 9, 3, 0], "below the start it is no error, released it is one"


@pytest.mark.parametrize("acquired_before", [0, 150], ids=["its headers", "the place of its offset"])
async def test_if_one_log_cannot_be_read_the_others_are_answered(loop: SimLoop, acquired_before: int) -> None:
    """Its pages are cold, and the disk fails under the worker that is to read them."""
    shares = Shares(loop, partition_count=2, properties={"log_dirs": "/data,/other"})
    for _ in range(300):
        shares.produce(b"x" * 100)
    member = shares.member()
    await member.fetch(0, max_wait_ms=100, max_records=acquired_before)
    await member.fetch(1, forgotten=[0])
    await run_scheduled()
    shares.produce(b"b", partition=1)
    shares.hosting.disk.chill()
    shares.hosting.disk.fail("read", path="/data/orders-0")
    response = await member.fetch(0, max_wait_ms=1000, min_bytes=1000)
    found = {part.partition_index: (part.error_code, len(part.acquired_records)) for part in parts_of(response)}
    assert found == {0: (ErrorCode.KAFKA_STORAGE_ERROR, 0), 1: (ErrorCode.NONE, 1)}
    assert shares.hosting.disk.effects["read"] == 1
    states = [directory.state.is_offline for directory in shares.hosting.log_manager.directories]
    assert states == [True, False]


async def test_a_request_fails_for_each_topic_once(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=3)
    shares.hosting.manager.traffic = BrokerTraffic()
    counts = shares.hosting.manager.traffic.of("orders")
    shares.produce(b"a")
    member = shares.member()
    assert len(await member.acquire(0)) == 1
    assert (counts.share_fetches, counts.failed_share_fetches) == (1, 0)
    response = await member.fetch(7, 8, max_wait_ms=100)
    assert [part.error_code for part in parts_of(response)] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2
    assert (counts.share_fetches, counts.failed_share_fetches) == (2, 1)


async def test_a_load_whose_first_offset_cannot_be_read(loop: SimLoop) -> None:
    shares = Shares(loop, share_auto_offset_reset="by_duration:PT1H")
    for number in range(300):
        shares.produce(b"x" * 100, timestamp_ms=NOW_MS - 300 + number)
    shares.hosting.disk.chill()
    shares.hosting.disk.fail("read", path="/data/orders-0")
    (part,) = parts_of(await shares.member().fetch(max_wait_ms=1000))
    assert part.error_code in (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert shares.hosting.log_manager.directories[0].state.is_offline


async def test_of_a_partition_whose_directory_failed(loop: SimLoop) -> None:
    shares = Shares(loop)
    shares.produce(b"a")
    member = shares.member()
    assert await member.acquire() == [(0, 0, 1)]
    waiting = shares.hosting.start(member.fetch(max_wait_ms=10_000))
    await asyncio.sleep(1)
    shares.hosting.log_manager.directories[0].state.go_offline("test")
    assert len(parts_of(await waiting)) == 1
    (part,) = parts_of(await member.fetch(max_wait_ms=1000))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    assert list(shares.partitions) == []


async def test_a_stop_ends_all(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=2)
    shares.produce(b"a")
    await shares.member().acquire(0)
    delay_reads(shares, 100)
    loading = shares.hosting.start(shares.member("m2", connection="c2").fetch(1, max_wait_ms=1000))
    await asyncio.sleep(0.1)
    in_use = list(shares.partitions)
    await shares.partitions.close()
    assert (list(shares.partitions), len(shares.partitions.sessions)) == ([], 0)
    assert [each.has_failed for each in in_use] == [True, True]
    await loading
