"""What a ShareFetch reads of several share partitions and batches: their order, the limits they share, what is sent."""

from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.record_state import ACK_ACCEPT, ACK_RELEASE
from tests.simulator.loop import SimLoop
from tests.support.hosting import run_scheduled
from tests.support.share_partition_hosting import Member, Shares, acquired_of, parts_of, spans

RECORD_LIMIT = 1
KILOBYTE = b"x" * 1000
BATCH_BYTES = 1080
"""More than a batch of one such record takes, less than two."""


async def joined(shares: Shares, partition_count: int) -> Member:
    """Return a member with a session, whose share partitions are loaded."""
    member = shares.member()
    await member.fetch(*range(partition_count))
    await run_scheduled()
    return member


def acquired_by_partition(response: Any) -> dict[int, list[tuple[int, int, int]]]:
    return {
        part.partition_index: [
            (each.first_offset, each.last_offset, each.delivery_count) for each in part.acquired_records
        ]
        for part in parts_of(response)
    }


async def test_each_request_begins_with_another_one(loop: SimLoop) -> None:
    """With the epoch's, that is: the first request and the seventh of seven with the first."""
    shares = Shares(loop)
    member = shares.member()
    unknown = range(10, 17)
    responses = [await member.fetch(*unknown), *[await member.fetch(max_wait_ms=100) for _ in range(12)]]
    orders = [[part.partition_index for part in parts_of(response)] for response in responses]
    firsts = [order[0] - 10 for order in orders]
    assert firsts == [0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 3, 4, 5]
    assert orders[3] == [13, 14, 15, 16, 10, 11, 12]


@pytest.mark.parametrize(
    ("with_records", "batches_of_each"), [((0, 1, 2), 1), ((1,), 3)], ids=["all have records", "one has"]
)
async def test_bytes_are_divided_among_those_with_records(
    loop: SimLoop, with_records: tuple[int, ...], batches_of_each: int
) -> None:
    shares = Shares(loop, partition_count=3)
    member = await joined(shares, 3)
    for partition in with_records:
        for _ in range(5):
            shares.produce(KILOBYTE, partition=partition)
    response = await member.fetch(max_bytes=3 * BATCH_BYTES, min_bytes=3 * BATCH_BYTES)
    found = {part.partition_index: len(spans(part)) for part in parts_of(response)}
    assert found == dict.fromkeys(with_records, batches_of_each)


async def test_the_first_one_gets_a_batch_even_if_it_is_larger_than_its_part(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=3)
    member = await joined(shares, 3)
    for partition in range(3):
        shares.produce(KILOBYTE, partition=partition)
    response = await member.fetch(max_bytes=BATCH_BYTES, min_bytes=BATCH_BYTES)
    assert acquired_by_partition(response) == {1: [(0, 0, 1)]}, "the epoch's is the first one"


async def test_records_are_what_those_before_have_left(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=3)
    member = await joined(shares, 3)
    for partition in range(3):
        shares.produce(b"a", b"b", partition=partition)
    limits = {"max_records": 3, "share_acquire_mode": RECORD_LIMIT, "min_bytes": 1000}
    assert acquired_by_partition(await member.fetch(**limits)) == {1: [(0, 1, 1)], 2: [(0, 0, 1)]}


@pytest.mark.parametrize(
    ("released", "sent"),
    [
        ([(0, 8)], [(0, 2), (3, 4), (5, 8)]),
        ([(1, 1)], [(0, 2)]),
        ([(4, 4)], [(3, 4)]),
        ([(6, 7)], [(5, 8)]),
        ([(4, 6)], [(3, 4), (5, 8)]),
        ([(0, 2), (4, 4)], [(0, 2), (3, 4)]),
        ([(5, 5), (7, 7)], [(5, 8)]),
        ([(1, 1), (7, 7)], [(0, 2), (3, 4), (5, 8)]),
    ],
)
async def test_the_batches_with_acquired_records_are_sent_whole(
    loop: SimLoop, released: list[tuple[int, int]], sent: list[tuple[int, int]]
) -> None:
    """With those between them. Another member has acquired all, and releases some."""
    shares = Shares(loop)
    for record_count in (3, 2, 4):
        shares.produce(*[b"a"] * record_count)
    other, member = shares.member("m2", connection="c2"), shares.member()
    assert await other.acquire() == [(0, 8, 1)]
    await other.acknowledge({0: [(first, last, [ACK_RELEASE]) for first, last in released]})
    (part,) = parts_of(await member.fetch())
    assert [(each.first_offset, each.last_offset) for each in part.acquired_records] == released
    assert spans(part) == sent


async def test_at_the_limit_of_locks_nothing_is_acquired_from_one_and_the_rest_from_others(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=2, share_partition_max_record_locks="100")
    member = await joined(shares, 2)
    shares.produce(*[b"a"] * 100)
    shares.produce(b"b")
    assert acquired_of(await member.fetch()) == [(0, 99, 1)]
    began_ms = loop.now_ms()
    assert acquired_of(await member.fetch(max_wait_ms=500)) == []
    assert loop.now_ms() - began_ms == 500
    shares.produce(b"c", partition=1)
    assert acquired_by_partition(await member.fetch(max_wait_ms=500)) == {1: [(0, 0, 1)]}
    (part,) = parts_of(await member.acknowledge({0: [(0, 99, [ACK_ACCEPT])]}))
    assert part.error_code == ErrorCode.NONE
    assert acquired_by_partition(await member.fetch(max_wait_ms=500)) == {0: [(100, 100, 1)]}
