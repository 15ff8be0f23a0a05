"""How the load of a share partition ends: where it begins without a start offset, and what a failure leaves."""

import asyncio
from typing import Any

import pytest

from kafkapy.protocol.error_code import ErrorCode
from kafkapy.share.persister import StateReadResult
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS
from tests.support.share_partition_hosting import Member, Shares, acquired_of, parts_of

HOUR_MS = 3_600_000
RESET = "share.auto.offset.reset"


@pytest.mark.parametrize(
    ("reset", "expected"),
    [("earliest", 0), ("latest", 3), (None, 3), ("by_duration:PT1H", 1), ("by_duration:PT3H", 0)],
)
async def test_begins_where_the_group_says(loop: SimLoop, reset: str | None, expected: int) -> None:
    """Records of two hours ago, of half an hour ago, and of now. Without a word of the group it is the end."""
    shares = Shares(loop)
    del shares.own[RESET]
    if reset is not None:
        shares.own[RESET] = reset
    for age_ms in (2 * HOUR_MS, HOUR_MS // 2, 0):
        shares.produce(b"a", timestamp_ms=NOW_MS - age_ms)
    await shares.member().fetch(max_wait_ms=100)
    (in_use,) = shares.partitions
    assert in_use.partition.records.start_offset == expected


async def error_of(member: Member) -> tuple[int, str | None]:
    (part,) = parts_of(await member.fetch(max_wait_ms=1000))
    return part.error_code, part.error_message


async def test_a_time_that_no_record_has_fails_the_load_until_one_has(loop: SimLoop) -> None:
    shares = Shares(loop, share_auto_offset_reset="by_duration:PT1H")
    shares.produce(b"a", timestamp_ms=NOW_MS - 2 * HOUR_MS)
    member = shares.member()
    assert (await error_of(member))[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert list(shares.partitions) == []
    shares.produce(b"b")
    assert await member.acquire() == [(1, 1, 1)]


async def test_the_end_of_a_leader_that_lags_behind_its_epoch_fails_the_load(loop: SimLoop) -> None:
    shares = Shares(loop, share_auto_offset_reset="latest")
    hosted = shares.hosted()
    shares.produce(b"a")
    hosted.leader_epoch_start_offset = 2
    assert (await error_of(shares.member()))[0] == ErrorCode.OFFSET_NOT_AVAILABLE


async def test_a_state_that_is_read_serves_all_fetches(loop: SimLoop) -> None:
    shares = Shares(loop)
    shares.produce(b"a")
    members = [shares.member(f"m{number}", connection=f"c{number}") for number in range(10)]
    responses = await asyncio.gather(*(member.fetch(max_wait_ms=100) for member in members))
    assert [acquired_of(response) for response in responses].count([(0, 0, 1)]) == 1
    assert shares.persister.read_count == 1


async def test_all_who_wait_for_a_load_are_told_that_it_failed(loop: SimLoop) -> None:
    shares = Shares(loop)
    shares.persister.errors = [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    read = shares.persister.read

    async def late_read(group_id: str, reads: Any) -> list[StateReadResult]:
        await asyncio.sleep(0.1)
        return await read(group_id, reads)

    shares.persister.read = late_read  # type: ignore[method-assign]
    members = [shares.member(f"m{number}", connection=f"c{number}") for number in range(3)]
    codes = [each[0] for each in await asyncio.gather(*map(error_of, members))]
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE] * 3
    shares.produce(b"a")
    assert await members[0].acquire() == [(0, 0, 1)]


async def test_a_load_that_breaks_is_an_unknown_error_and_is_tried_again(
    loop: SimLoop, caplog: pytest.LogCaptureFixture
) -> None:
    shares = Shares(loop)
    shares.produce(b"a")
    broken: list[Exception] = [RuntimeError("broken")]
    read = shares.persister.read

    async def breaking_read(group_id: str, reads: Any) -> list[StateReadResult]:
        if broken:
            raise broken.pop()
        return await read(group_id, reads)

    shares.persister.read = breaking_read  # type: ignore[method-assign]
    member = shares.member()
    assert (await error_of(member))[0] == ErrorCode.UNKNOWN_SERVER_ERROR
    assert "Loading share partition" in caplog.text
    assert await member.acquire() == [(0, 0, 1)]


async def test_one_that_cannot_be_loaded_leaves_the_others_alone(loop: SimLoop) -> None:
    shares = Shares(loop, partition_count=2)
    shares.produce(b"a", partition=1)
    shares.persister.errors = [ErrorCode.FENCED_STATE_EPOCH]  # of the first one that is read
    response = await shares.member().fetch(0, 1, max_wait_ms=1000)
    assert [(part.partition_index, part.error_code) for part in parts_of(response)] == [
        (0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (1, ErrorCode.NONE),
    ]
    assert acquired_of(response) == [(0, 0, 1)]
