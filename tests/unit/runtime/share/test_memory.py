"""Memory of share partitions in use: the issue wants less than 2 KB for an idle one, and 64 MiB for all sessions."""

import asyncio
import gc
import tracemalloc

from kafkapy.share.persister import TopicIdPartition
from kafkapy.share.session import MAX_PARTITIONS
from tests.simulator.loop import SimLoop
from tests.support.hosting import topic_id
from tests.support.share_partition_hosting import Shares

COUNT = 500


async def test_an_idle_share_partition_takes_less_than_two_kib(loop: SimLoop) -> None:
    shares = Shares(loop)
    partition = TopicIdPartition(topic_id("orders"), 0)
    settings = shares.partitions.settings("g").partition
    shares.partitions.use("g", partition, shares.hosted(), settings)
    await asyncio.sleep(1)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(COUNT):
            shares.partitions.use(f"g{number}", partition, shares.hosted(), settings)
        await asyncio.sleep(1)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / COUNT < 2048
    finally:
        tracemalloc.stop()
    assert len(list(shares.partitions)) == COUNT + 1


async def test_sessions_of_as_many_share_partitions_as_there_may_be_take_less_than_64_mib(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=COUNT)
    await shares.member(group="warm").fetch(*range(COUNT))
    members = [shares.member(group=f"g{number}", connection=f"c{number}") for number in range(4)]
    gc.collect()
    tracemalloc.start()
    try:
        for member in members:
            await member.fetch(*range(COUNT))
        waiting = [asyncio.ensure_future(member.fetch(max_wait_ms=60_000)) for member in members]
        await asyncio.sleep(1)
        gc.collect()
        assert tracemalloc.get_traced_memory()[0] / len(members) / COUNT * MAX_PARTITIONS < 64 << 20
    finally:
        tracemalloc.stop()
    assert not any(each.done() for each in waiting)
    for each in waiting:
        each.cancel()
