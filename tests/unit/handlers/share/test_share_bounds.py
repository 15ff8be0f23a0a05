"""What one request of a share group may take: turns of the event loop, and bytes of a quota."""

import asyncio
from itertools import pairwise

import pytest

from kafkapy.errors import ApiError
from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.share import share_fetch
from kafkapy.handlers.share.share_fetch import LOADED_AT_ONCE, STEPS_OF_LOAD
from kafkapy.handlers.share.share_fetch_wire import FetchedShare
from kafkapy.handlers.share.share_reading import HEADERS_AT_ONCE
from kafkapy.handlers.table import BROKER_APIS
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.runtime.share.session_ends import RELEASED_PER_TURN
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.security.quotas import ClientQuotas, user_of
from kafkapy.serving.quotas import Meter
from kafkapy.share.acknowledgement import OFFSETS_PER_STEP
from kafkapy.share.record_state import ACK_ACCEPT, ACK_RELEASE, RecordState
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS
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
    assert {(part.error_code, len(part.acquired_records)) for part in parts_of(response)} == {(0, 0)}
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


async def test_a_fetch_without_enough_leaves_the_loop_to_the_one_that_reads_the_rest(loop: SimLoop) -> None:
    """A failure: it read the same records again and again, and the other fetch never went on."""
    shares = Shares(loop, partition_count=2)
    member = shares.member()
    await member.fetch(0, 1)
    for number in range(2):
        shares.produce(b"x", partition=number)
    (other,) = (each for each in shares.partitions if each.partition.key.partition == 1)
    assert other.partition.maybe_hold_fetch(shares)
    fetching = asyncio.ensure_future(member.fetch(min_bytes=1 << 19, max_wait_ms=1000))
    await asyncio.sleep(0.1)
    assert not fetching.done()
    other.partition.release_fetch(shares)
    assert len(acquired_of(await fetching)) == 2


@pytest.mark.parametrize("min_bytes", [1, 0, -1])
async def test_offsets_without_records_are_not_read_again_and_again(loop: SimLoop, min_bytes: int) -> None:
    """A failure: with min_bytes 0 they were, until the time was over, for four fifths of the loop's time."""
    shares = Shares(loop)
    member = shares.member()
    shares.produce(b"x")
    assert await member.acquire() == [(0, 0, 1)]
    log = shares.hosted().log
    assert log is not None
    log.roll(NOW_MS)
    shares.produce(b"y")
    second = log.segments.active
    log.roll(NOW_MS)
    second.truncate_to(1, max_index_bytes=0, now_ms=NOW_MS)  # as compaction leaves it
    log.local_log.reader.known.clear()
    member.peer.is_held = False
    assert parts_of(await member.fetch(min_bytes=min_bytes, max_wait_ms=50)) == []
    assert not member.peer.is_held, "it was read in more than one turn"
    shares.produce(b"z")
    assert acquired_of(await member.fetch(min_bytes=min_bytes, max_wait_ms=50))


async def test_a_session_that_ends_while_headers_are_read_acquires_nothing(loop: SimLoop) -> None:
    shares = Shares(loop, share_partition_max_record_locks=str(MOST))
    members = [shares.member(name, connection=name) for name in ("m1", "m2")]
    for member in members:
        await member.fetch()
    for _ in range(STEPS_PER_TURN + HEADERS_AT_ONCE):
        shares.produce(b"x")
    (held,) = shares.partitions
    fetching = asyncio.ensure_future(members[0].fetch(max_records=MOST, max_wait_ms=60_000))
    await asyncio.sleep(0)
    assert not fetching.done()
    shares.partitions.connection_closed("m1")
    assert parts_of(await fetching) == []
    assert len(held.partition.records) == 0, "it is the other member's to acquire"


WIDE = 1_200
"""Share partitions that are looked at in two turns."""


async def with_a_wide_session(loop: SimLoop, count: int = WIDE) -> tuple[Shares, Member]:
    shares = Shares(loop, partition_count=count)
    member = shares.member()
    await member.fetch(*range(count))
    return shares, member


def waited_for(shares: Shares) -> int:
    return sum(bool(each.waiters) for each in shares.partitions)


async def test_looking_for_records_in_many_partitions_leaves_turns_to_others(loop: SimLoop) -> None:
    shares, member = await with_a_wide_session(loop)
    fetching = asyncio.ensure_future(member.fetch(max_wait_ms=1000))
    looked: list[int] = []
    while not looked or looked[-1] < WIDE:
        await asyncio.sleep(0.0005)
        looked.append(waited_for(shares))
    assert max(after - before for before, after in pairwise([0, *looked])) <= STEPS_PER_TURN
    assert parts_of(await fetching) == []
    assert waited_for(shares) == 0


async def test_records_that_come_between_two_turns_of_looking_are_read_at_once(loop: SimLoop) -> None:
    shares, member = await with_a_wide_session(loop)
    fetching = asyncio.ensure_future(member.fetch(max_wait_ms=60_000))
    while not 0 < waited_for(shares) < WIDE:
        await asyncio.sleep(0.0005)
    (passed, *_) = (each.partition.key.partition for each in shares.partitions if each.waiters)
    shares.produce(b"x", partition=passed)
    response = await asyncio.wait_for(fetching, 1)
    assert acquired_of(response) == [(0, 0, 1)]


async def test_a_partition_that_is_given_up_between_two_turns_of_looking_is_told_at_once(loop: SimLoop) -> None:
    shares, member = await with_a_wide_session(loop)
    fetching = asyncio.ensure_future(member.fetch(max_wait_ms=60_000))
    while not 0 < waited_for(shares) < WIDE:
        await asyncio.sleep(0.0005)
    passed = next(each for each in shares.partitions if each.waiters)
    passed.fence()
    (part,) = parts_of(await asyncio.wait_for(fetching, 1))
    assert part.partition_index == passed.partition.key.partition
    assert part.error_code


async def test_records_that_come_while_others_are_read_count_for_min_bytes(loop: SimLoop) -> None:
    count = 400  # read in two turns
    shares, member = await with_a_wide_session(loop, count)
    for number in range(count):
        shares.produce(b"x", partition=number)
    fetching = asyncio.ensure_future(member.fetch(min_bytes=100_000, max_wait_ms=60_000))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    for number in range(count):
        shares.produce(bytes(1_000), partition=number)
    response = await asyncio.wait_for(fetching, 1)
    assert acquired_of(response)


async def test_a_session_that_ends_while_its_partitions_are_read_acquires_no_more(loop: SimLoop) -> None:
    count = 400
    shares, member = await with_a_wide_session(loop, count)
    for number in range(count):
        shares.produce(b"x", partition=number)
    held = list(shares.partitions)
    fetching = asyncio.ensure_future(member.fetch(max_wait_ms=60_000))
    while not any(len(each.partition.records) for each in held):
        await asyncio.sleep(0.0005)
    shares.partitions.connection_closed("c1")
    before = sum(len(each.partition.records) for each in held)
    await fetching
    assert sum(len(each.partition.records) for each in held) <= before < count


async def test_what_was_read_is_released_if_the_fetch_is_cancelled_as_it_adds_new_partitions(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As at the end of a broker: a region keeps its file open."""
    shares, released = Shares(loop, partition_count=2), []

    async def cancelled(*_arguments: object) -> None:
        raise asyncio.CancelledError

    monkeypatch.setattr(share_fetch, "_add_new", cancelled)
    monkeypatch.setattr(FetchedShare, "release", lambda fetched: released.append(fetched.region))
    shares.produce(b"x")
    with pytest.raises(asyncio.CancelledError):
        await shares.member().fetch(0, 1, max_wait_ms=1000)
    assert [region is not None for region in released] == [True]


async def test_a_response_with_many_partitions_is_made_in_turns(loop: SimLoop) -> None:
    shares, member = await with_a_wide_session(loop)
    for number in range(WIDE):
        shares.produce(b"x", partition=number)
    fetching = asyncio.ensure_future(member.fetch(max_records=WIDE, max_wait_ms=60_000))
    passes = 0
    while not fetching.done():
        await asyncio.sleep(0.0005)
        acquired = sum(len(each.partition.records) for each in shares.partitions)
        passes += acquired == WIDE
    assert len(acquired_of(await fetching)) == WIDE
    assert passes > WIDE // STEPS_PER_TURN


async def with_a_wide_session_that_has_acquired(loop: SimLoop) -> tuple[Shares, Member]:
    shares, member = await with_a_wide_session(loop)
    for number in range(WIDE):
        shares.produce(b"x", partition=number)
    assert len(await member.acquire(max_records=WIDE)) == WIDE
    return shares, member


def acquired_now(shares: Shares) -> int:
    return sum(
        run.state is RecordState.ACQUIRED
        for each in shares.partitions
        for batch in each.partition.records
        for run in batch.runs
    )


async def test_what_a_wide_session_had_is_released_and_forgotten_in_turns(loop: SimLoop) -> None:
    shares, _ = await with_a_wide_session_that_has_acquired(loop)
    shares.partitions.connection_closed("c1")
    seen = [WIDE, acquired_now(shares)]
    kept = [WIDE]
    while kept[-1]:
        await asyncio.sleep(0.0005)
        seen.append(acquired_now(shares))
        kept.append(len(list(shares.partitions)))
    assert max(before - after for before, after in pairwise(seen)) <= RELEASED_PER_TURN
    assert max(before - after for before, after in pairwise(kept)) <= RELEASED_PER_TURN


async def test_a_member_that_begins_anew_keeps_what_it_acquires_while_its_last_session_is_released(
    loop: SimLoop,
) -> None:
    shares, _ = await with_a_wide_session_that_has_acquired(loop)
    shares.partitions.connection_closed("c1")
    assert 0 < acquired_now(shares) < WIDE
    anew = shares.member(connection="c2")
    assert len(await anew.acquire(*range(WIDE), max_records=WIDE)) == WIDE
    await asyncio.sleep(1)
    assert acquired_now(shares) == WIDE


async def test_a_group_that_has_a_session_again_is_not_forgotten(loop: SimLoop) -> None:
    shares, _ = await with_a_wide_session_that_has_acquired(loop)
    shares.partitions.connection_closed("c1")
    other = shares.member("m2", connection="c2")
    await other.fetch(*range(WIDE))
    assert acquired_of(await asyncio.wait_for(other.fetch(max_wait_ms=60_000, max_records=WIDE), 1))
    assert len(list(shares.partitions)) == WIDE


async def test_a_group_is_forgotten_once_all_its_members_are_released(loop: SimLoop) -> None:
    shares, _ = await with_a_wide_session_that_has_acquired(loop)
    await shares.member("m2", connection="c2").fetch()
    shares.partitions.connection_closed("c1")
    assert 0 < acquired_now(shares) < WIDE
    shares.partitions.connection_closed("c2")
    await asyncio.sleep(1)
    assert {write.partition for write in shares.persister.writes} == set(range(WIDE))
    assert list(shares.partitions) == []
