"""Producer ids: unique over blocks, one request for many who wait, failures passed on and forgotten."""

import asyncio

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.runtime.broker.producer_ids import ProducerIdManager


class Blocks:
    """A controller that hands out blocks of `size`, and counts them."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.count = 0
        self.failures = 0

    async def allocate(self) -> range:
        await asyncio.sleep(0)
        if self.failures:
            self.failures -= 1
            raise ApiError(41, "no controller")
        self.count += 1
        return range((self.count - 1) * self.size, self.count * self.size)


async def test_ids_are_unique_over_blocks():
    manager = ProducerIdManager(Blocks(10).allocate)
    ids = [await manager.next_id() for _ in range(95)]
    await manager.close()
    assert ids == list(range(95))


async def test_many_who_wait_share_a_block():
    blocks = Blocks(1000)
    manager = ProducerIdManager(blocks.allocate)
    ids = await asyncio.gather(*(manager.next_id() for _ in range(100)))
    assert sorted(ids) == list(range(100))
    assert blocks.count == 1


async def test_a_refused_block_is_requested_again():
    blocks = Blocks(10)
    blocks.failures = 1
    manager = ProducerIdManager(blocks.allocate)
    with pytest.raises(ApiError) as caught:
        await manager.next_id()
    assert caught.value.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "producers know nothing of controllers"
    assert await manager.next_id() == 0
