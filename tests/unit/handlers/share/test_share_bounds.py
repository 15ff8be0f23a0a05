"""What one request of a share group may take: turns of the event loop, and bytes of a quota."""

import asyncio
from itertools import pairwise

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.share.share_fetch import LOADED_AT_ONCE, STEPS_OF_LOAD
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.quotas import ClientQuotas, user_of
from kafkapy.serving.quotas import Meter
from kafkapy.share.acknowledgement import OFFSETS_PER_STEP
from kafkapy.share.record_state import ACK_ACCEPT, ACK_RELEASE
from tests.simulator.loop import SimLoop
from tests.support.share_partition_hosting import Member, Shares, acquired_of, parts_of

MOST = 4_000
ALL = [ACK_ACCEPT if offset % 2 else ACK_RELEASE for offset in range(MOST)]


async def with_the_most_in_flight(loop: SimLoop) -> tuple[Shares, Member]:
    shares = Shares(loop, share_partition_max_record_locks=str(MOST))
    shares.produce(*[b"x"] * MOST)
    member = shares.member()
    assert await member.acquire(max_records=MOST, batch_size=MOST) == [(0, MOST - 1, 1)]
    return shares, member


async def look(shares: Shares, seen: list[int]) -> None:
    """Add to `seen`, again and again, how many runs are being written."""
    while True:
        runs = (run for each in shares.partitions for batch in each.partition.records for run in batch.runs)
        seen.append(sum(run.transition is not None for run in runs))
        await asyncio.sleep(0.0005)


async def test_as_many_acknowledgements_as_can_be_leave_turns_to_others(loop: SimLoop) -> None:
    shares, member = await with_the_most_in_flight(loop)
    seen: list[int] = []
    looking = asyncio.ensure_future(look(shares, seen))
    (part,) = parts_of(await member.acknowledge({0: [(0, MOST - 1, ALL)]}))
    looking.cancel()
    assert part.error_code == ErrorCode.NONE
    steps = sorted(set(seen))
    assert len(steps) >= 4
    assert max(after - before for before, after in pairwise(steps)) <= 6 * OFFSETS_PER_STEP
    (write,) = shares.persister.writes
    assert len(write.state_batches) == MOST


async def test_the_written_states_of_many_partitions_leave_turns_to_others_together(loop: SimLoop) -> None:
    count, size = 10, 600  # each of them alone fits into a turn
    shares = Shares(loop, partition_count=count, share_partition_max_record_locks=str(size))
    member = shares.member()
    for number in range(count):
        shares.produce(*[b"x"] * size, partition=number)
    while len(await member.acquire(*range(count), max_records=count * size, batch_size=size)):
        pass
    seen: list[int] = []
    looking = asyncio.ensure_future(look(shares, seen))
    parts = parts_of(await member.acknowledge({number: [(0, size - 1, ALL[:size])] for number in range(count)}))
    looking.cancel()
    assert [part.error_code for part in parts] == [ErrorCode.NONE] * count
    assert max(seen) == count * size
    assert max(before - after for before, after in pairwise([*seen, 0])) <= count * size // 3


async def test_what_a_requester_that_is_gone_had_begun_is_acknowledged_to_its_end(loop: SimLoop) -> None:
    shares, member = await with_the_most_in_flight(loop)
    asking = asyncio.ensure_future(member.acknowledge({0: [(0, MOST - 1, ALL)]}))
    for _ in range(3):
        await asyncio.sleep(0)
    assert not asking.done()
    asking.cancel()
    await asyncio.sleep(1)
    (write,) = shares.persister.writes
    assert len(write.state_batches) == MOST
    assert not any(
        run.transition for each in shares.partitions for batch in each.partition.records for run in batch.runs
    )


class Metered(Member):
    def context(self, api_key: int, version: int) -> RequestContext:
        header = RequestHeader(api_key, version, 1, "tester")
        return Meter(self.services, header, self.peer, frame_bytes=100).new_context()


async def test_records_that_are_sent_with_a_throttle_time_count_for_the_quota(loop: SimLoop) -> None:
    shares = Shares(loop)
    for _ in range(4):
        shares.produce(b"x" * 1_000)
    quotas = shares.services.client_quotas = ClientQuotas(11, 1000)
    shares.services.apis = BROKER_APIS
    member = Metered(shares.services, shares.member().topic_id)
    quotas.set_entity((("user", user_of(member.peer.principal)),), {"consumer_byte_rate": 150.0})
    throttles = []
    for _ in range(4):
        response = await member.fetch(max_wait_ms=1000, max_records=1, batch_size=1)
        assert response.error_code == ErrorCode.NONE
        assert len(acquired_of(response)) == 1
        throttles.append(response.throttle_time_ms)
    ((_, rate),) = quotas.fetch.rates(shares.services.clock.monotonic_ms())
    assert rate * 11 > 4_000, "all four were sent"
    assert throttles == sorted(throttles)
    assert throttles[-1] > throttles[1] > 0


async def test_a_fetch_of_many_partitions_leaves_turns_to_others(loop: SimLoop) -> None:
    count = 400
    shares = Shares(loop, partition_count=count)
    member = shares.member()
    await member.fetch(*range(count))
    await asyncio.sleep(1)  # their states are loaded
    for number in range(count):
        shares.produce(b"x", partition=number)
    acquired: list[int] = []

    async def look() -> None:
        while True:
            acquired.append(sum(len(each.partition.records) for each in shares.partitions))
            await asyncio.sleep(0.0005)

    looking = asyncio.ensure_future(look())
    response = await member.fetch(max_records=count)
    looking.cancel()
    assert len(acquired_of(response)) == count
    assert max(after - before for before, after in pairwise([0, *acquired, count])) <= count // 3


async def test_the_loads_of_a_new_session_of_many_partitions_leave_turns_to_others(loop: SimLoop) -> None:
    count = 400
    shares = Shares(loop, partition_count=count)
    loaded: list[int] = []

    async def look() -> None:
        while True:
            loaded.append(shares.persister.read_count)
            await asyncio.sleep(0.0005)

    looking = asyncio.ensure_future(look())
    response = await shares.member().fetch(*range(count))
    looking.cancel()
    assert parts_of(response) == []  # no error, no records
    assert shares.persister.read_count == count
    assert max(after - before for before, after in pairwise([0, *loaded, count])) <= STEPS_PER_TURN // STEPS_OF_LOAD


async def test_the_loads_of_many_new_sessions_share_turns(loop: SimLoop) -> None:
    count, members = 100, 20
    shares = Shares(loop, partition_count=count, max_sessions=members)
    fetches = [
        asyncio.ensure_future(shares.member(group=f"g{number}", connection=f"c{number}").fetch(*range(count)))
        for number in range(members)
    ]
    await asyncio.sleep(0)
    assert shares.persister.read_count == members * LOADED_AT_ONCE
    loaded = [shares.persister.read_count]
    while not all(fetch.done() for fetch in fetches):
        await asyncio.sleep(0.0005)
        loaded.append(shares.persister.read_count)
    assert shares.persister.read_count == members * count
    assert max(after - before for before, after in pairwise(loaded)) <= STEPS_PER_TURN // STEPS_OF_LOAD


async def test_no_share_partition_is_loaded_once_its_session_has_ended(loop: SimLoop) -> None:
    count = 100
    shares = Shares(loop, partition_count=count)
    fetching = asyncio.ensure_future(shares.member().fetch(*range(count)))
    await asyncio.sleep(0.002)
    assert LOADED_AT_ONCE <= shares.persister.read_count < count
    shares.partitions.connection_closed("c1")
    await fetching
    assert list(shares.partitions) == []


async def test_nothing_is_loaded_for_a_session_that_ended_while_acknowledgements_took_turns(loop: SimLoop) -> None:
    shares, member = await with_the_most_in_flight(loop)
    fetching = asyncio.ensure_future(member.fetch(acks={0: [(0, MOST - 1, ALL)]}, max_records=MOST))
    await asyncio.sleep(0.001)
    assert not fetching.done()
    shares.partitions.connection_closed("c1")
    await fetching
    assert list(shares.partitions) == []


async def test_no_session_begins_for_a_connection_that_closed_while_its_request_was_decoded(loop: SimLoop) -> None:
    shares = Shares(loop)
    member = shares.member()
    member.peer.is_closed = True
    with pytest.raises(ApiError) as raised:
        await member.fetch()
    assert raised.value.code == ErrorCode.SHARE_SESSION_NOT_FOUND
    assert len(shares.partitions.sessions) == 0
    assert list(shares.partitions) == []
