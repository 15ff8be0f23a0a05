"""Memory of share partitions that are in use and idle: the issue wants less than 2 KB, with all that belongs to one."""

import asyncio
import gc
import tracemalloc

from kafkapy.share.persister import TopicIdPartition
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
