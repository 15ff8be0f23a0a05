"""Followers that have to catch up with many partitions: a fetch costs the same however many there are."""

import asyncio
import sys
from typing import Any

import pytest

from kafkapy.handlers.data import follower_fetch
from kafkapy.handlers.data.follower_fetch import READ_PER_TURN
from kafkapy.protocol.messages.fetch_request import FetchRequest
from kafkapy.protocol.messages.fetch_response import FetchResponse
from kafkapy.replication import follower_watch
from kafkapy.runtime.turns import PAUSE_MS
from tests.simulator.hot_paths import Counter
from tests.simulator.loop import SimLoop, run
from tests.simulator.replicas import ReplicaWorld
from tests.support.interpreter import needs_interpreter

FEW, MANY = 50, 150
MORE = 1.3
VALUE = bytes(1000)


async def behind(
    loop: SimLoop, partition_count: int, *, response_bytes: int, record_count: int = 1, **others: str
) -> ReplicaWorld:
    """Return a world in which node 2 is about to fetch from partitions that have `record_count` records each."""
    properties = {"replica_fetch_response_max_bytes": str(response_bytes), "replica_fetch_backoff_ms": "100", **others}
    world = ReplicaWorld(loop, 2, **properties)
    world.create_topic(partition_count, replicas=(1, 2), isr=(1,))
    world.isolate(2)
    for _ in range(record_count):
        await asyncio.gather(*(world.produce(1, VALUE, number=number) for number in range(partition_count)))
    await world.pass_ms(1500)
    return world


def costliest_response(partition_count: int) -> int:
    """Return the instructions between two responses to a follower that catches up, at most."""

    async def main(loop: SimLoop) -> int:
        world = await behind(loop, partition_count, response_bytes=5000)
        costs: list[int] = []
        counter = Counter()

        def note(_sender: int, _receiver: int, response: Any) -> Any:
            counter.__exit__(None, None, None)
            costs.append(counter.instructions)
            counter.instructions = 0
            counter.__enter__()
            return response

        world.tamper = note
        world.heal()
        counter.__enter__()
        await world.until(lambda: len(costs) > 12)
        counter.__exit__(None, None, None)
        await world.stop()
        return max(costs[4:])

    return run(main)


@needs_interpreter("instructions are counted")
@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="bytecode is counted on CPython 3.11")
def test_a_fetch_costs_the_same_however_many_partitions_are_behind() -> None:
    few, many = costliest_response(FEW), costliest_response(MANY)
    assert many <= MORE * few, f"{few} instructions with {FEW} partitions, {many} with {MANY}"


@pytest.mark.parametrize("response_bytes", [1, 5000, 1_000_000])
async def test_each_partition_gets_its_turn_and_its_place_in_the_isr(loop: SimLoop, response_bytes: int) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch, "READ_AT_ONCE", 3)
        world = await behind(loop, 20, response_bytes=response_bytes)
        world.heal()
        for number in range(20):
            world.nodes[1].run(world.produce(1, VALUE, number=number))
        await world.until(lambda: all(world.registration(number).isr == (1, 2) for number in range(20)))
        assert all(world.nodes[2].log(number=number).log_end_offset == 2 for number in range(20))
        assert (await world.produce(1, VALUE, number=13))[0] == 0
        await world.stop()


async def test_no_partition_gets_a_second_turn_before_all_others_had_their_first(loop: SimLoop) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch, "READ_AT_ONCE", 6)
        world = await behind(loop, 20, response_bytes=4500, record_count=10, replica_fetch_max_bytes="1000")
        leads: list[int] = []

        def note(_sender: int, _receiver: int, response: Any) -> Any:
            ends = [world.nodes[2].log(number=number).log_end_offset for number in range(20)]
            leads.append(max(ends) - min(ends))
            return response

        world.tamper = note
        world.heal()
        await world.until(lambda: all(world.nodes[2].log(number=number).log_end_offset == 10 for number in range(20)))
        assert len(leads) > 50
        assert max(leads) <= 2, "one turn, and what the first request of the session brought"
        await world.stop()


async def test_a_fetch_ends_though_its_session_is_closed_while_it_gives_way(loop: SimLoop) -> None:
    partition_count = READ_PER_TURN + 1
    world = ReplicaWorld(loop, 2, replica_fetch_backoff_ms="100")
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    session_id = next(each.session_id for *_, each in reversed(world.requests) if isinstance(each, FetchRequest))
    sessions = world.nodes[1].sessions

    def close_session() -> None:
        assert len(sessions) == 1
        sessions.open(session_id, 0, [], [], uses_topic_ids=True, now_ms=0)
        assert len(sessions) == 0

    produces = [world.nodes[1].run(world.produce(1, VALUE, number=number)) for number in range(partition_count)]
    loop.call_later(PAUSE_MS / 2000, close_session)
    assert [code for code, _ in await asyncio.gather(*produces)] == [0] * partition_count
    await world.stop()


async def test_a_fetch_notes_no_progress_once_its_session_is_closed(loop: SimLoop) -> None:
    """The follower may have another session by then, which would not name these partitions again."""
    partition_count = 2 * READ_PER_TURN + 1
    world = ReplicaWorld(loop, 2, replica_fetch_backoff_ms="100")
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    session_id = next(each.session_id for *_, each in reversed(world.requests) if isinstance(each, FetchRequest))
    partitions = list(world.nodes[1].manager.partitions)

    def noted_count() -> int:
        return sum(partition.followers[2].log_end_offset == 1 for partition in partitions)

    produces = [world.nodes[1].run(world.produce(1, VALUE, number=number)) for number in range(partition_count)]
    while noted_count() == 0:
        await asyncio.sleep(PAUSE_MS / 4000)
    before = noted_count()
    assert before < partition_count, "the request gives way"
    counts: list[int] = []

    def count(_sender: int, _receiver: int, response: Any) -> Any:
        counts.append(noted_count())
        return response

    world.tamper = count
    world.nodes[1].sessions.open(session_id, 0, [], [], uses_topic_ids=True, now_ms=0)
    await world.until(lambda: bool(counts))
    assert counts[0] == before
    assert [code for code, _ in await asyncio.gather(*produces)] == [0] * partition_count
    await world.stop()


async def test_a_fetch_does_not_give_way_before_its_turn_is_over(loop: SimLoop) -> None:
    partition_count = 4 * follower_watch.READ_AT_ONCE
    world = ReplicaWorld(loop, 2)
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    began_ms = loop.now_ms()
    produces = [world.nodes[1].run(world.produce(1, VALUE, number=number)) for number in range(partition_count)]
    assert [code for code, _ in await asyncio.gather(*produces)] == [0] * partition_count
    response_ms = request_ms = 1
    assert loop.now_ms() - began_ms <= response_ms + request_ms, "the clock stands still while the leader reads"
    await world.stop()


@needs_interpreter("it sets a constant")
async def test_a_fetch_that_names_many_partitions_gives_way_between_them(
    loop: SimLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition_count, turn_count = 2 * READ_PER_TURN + 1, 3
    world = ReplicaWorld(loop, 2)
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    acknowledged_at_ms: set[int] = set()

    def one_turn_is_over(_sender: int, _receiver: int, response: Any) -> Any:
        monkeypatch.setattr(follower_fetch, "READ_PER_TURN", READ_PER_TURN)
        return response

    async def produce(number: int) -> None:
        assert (await world.produce(1, VALUE, number=number))[0] == 0
        acknowledged_at_ms.add(loop.now_ms())

    # so that all records leave in one response, and the next request names all partitions
    monkeypatch.setattr(follower_fetch, "READ_PER_TURN", 2 * partition_count)
    world.tamper = one_turn_is_over
    await asyncio.gather(*(world.nodes[1].run(produce(number)) for number in range(partition_count)))
    named = [each for *_, each in world.requests if isinstance(each, FetchRequest)]
    assert max(sum(len(topic.partitions) for topic in each.topics) for each in named) == partition_count
    assert len(acknowledged_at_ms) >= turn_count, "the request that names all takes more than one turn"
    await world.stop()


async def test_partitions_in_sync_are_served_while_others_cannot_join(loop: SimLoop) -> None:
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch, "READ_AT_ONCE", 3)
        world = await behind(loop, 20, response_bytes=1_000_000)
        world.controller_timeout_ms = 100_000
        world.cut = {(1, 0)}
        for link in ((2, 1), (1, 2)):
            world.cut.discard(link)
        await world.until(lambda: all(world.nodes[2].log(number=number).log_end_offset for number in range(20)))
        for number in range(20):
            world.nodes[1].run(world.produce(1, VALUE, number=number))
        await world.until(lambda: all(world.nodes[2].log(number=number).log_end_offset == 2 for number in range(20)))
        await world.stop()


async def test_a_response_has_a_bounded_number_of_partitions_and_the_next_one_follows_at_once(loop: SimLoop) -> None:
    partition_count, most = 5 * follower_watch.READ_AT_ONCE, 2 * follower_watch.READ_AT_ONCE
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch, "MAX_CHANGED", most)
        world = ReplicaWorld(loop, 2, replica_fetch_wait_max_ms="5000", replica_socket_timeout_ms="9000")
        world.create_topic(partition_count, replicas=(1, 2))
        await world.pass_ms(8000)
        sizes: list[int] = []

        def note(_sender: int, _receiver: int, response: Any) -> Any:
            if isinstance(response, FetchResponse):
                sizes.append(sum(len(topic.partitions) for topic in response.responses))
            return response

        world.tamper = note
        began_ms = loop.now_ms()
        produces = [world.nodes[1].run(world.produce(1, VALUE, number=number)) for number in range(partition_count)]
        assert [code for code, _ in await asyncio.gather(*produces)] == [0] * partition_count
        assert loop.now_ms() - began_ms < 1000, "the rest waits for no long poll"
        assert most <= max(sizes) < most + follower_watch.READ_AT_ONCE
        assert sum(sizes) >= partition_count
        await world.stop()


async def test_many_partitions_without_news_are_settled_in_turns(loop: SimLoop) -> None:
    partition_count = 3 * READ_PER_TURN
    world = ReplicaWorld(loop, 2)
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    counts: list[int] = []
    requeue = follower_watch.FollowerWatch.requeue

    def note(watch: follower_watch.FollowerWatch, responses: Any) -> None:
        counts.append(len(responses))
        requeue(watch, responses)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(follower_watch.FollowerWatch, "requeue", note)
        for partition in world.nodes[1].manager.partitions:
            world.nodes[1].manager.watches.notify(partition)
        assert (await world.produce(1, VALUE))[0] == 0
    assert 0 < max(counts) <= 2, "one has records and then another high watermark"
    await world.stop()


async def test_records_do_not_wait_for_partitions_without_news(loop: SimLoop) -> None:
    """A change of metadata marks thousands of partitions; a producer waits for the one with a record among them."""
    partition_count = 8 * READ_PER_TURN
    world = ReplicaWorld(loop, 2)
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    sent: list[tuple[int, bool]] = []

    def note(_sender: int, _receiver: int, response: Any) -> Any:
        if isinstance(response, FetchResponse):
            has_records = any(part.records for topic in response.responses for part in topic.partitions)
            sent.append((loop.now_ms(), has_records))
        return response

    world.tamper = note
    began_ms = loop.now_ms()
    produced = world.nodes[1].run(world.produce(1, VALUE))
    await asyncio.sleep(0)
    for partition in world.nodes[1].manager.partitions:
        world.nodes[1].manager.watches.notify(partition)
    assert (await produced)[0] == 0
    one_turn_ms = 2 * PAUSE_MS
    assert next(at_ms for at_ms, has_records in sent if has_records) - began_ms <= one_turn_ms
    watches = world.nodes[1].manager.watches
    watch = next(iter(watches._by_partition[world.nodes[1].partition(0)]))
    await world.until(lambda: watch.unread_count == 0)
    assert len(sent) <= 2, "those without news are read, and not answered"
    await world.stop()


@needs_interpreter("it sets a constant")
async def test_busy_partitions_do_not_keep_the_others_waiting(loop: SimLoop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each fetch names the busy ones, which take several turns, and finds records: it looks at as many others."""
    monkeypatch.setattr(follower_fetch, "READ_PER_TURN", 2 * follower_watch.READ_AT_ONCE)  # as by the clock
    partition_count, busy_count = 5 * READ_PER_TURN, READ_PER_TURN - follower_watch.READ_AT_ONCE
    world = ReplicaWorld(loop, 2)
    world.create_topic(partition_count, replicas=(1, 2))
    await world.pass_ms(3000)
    leader, last = world.nodes[1], partition_count - 1
    sent: list[bool] = []

    def note(_sender: int, _receiver: int, response: Any) -> Any:
        if isinstance(response, FetchResponse):
            with_records = [part for topic in response.responses for part in topic.partitions if part.records]
            sent.append(any(part.partition_index == last for part in with_records))
        return response

    async def keep_busy(number: int) -> None:
        while True:
            leader.run(world.produce(1, VALUE, number=number))
            await asyncio.sleep(0.001)

    for number in range(busy_count):
        leader.run(keep_busy(number))
    await world.pass_ms(50)
    world.tamper = note
    for partition in leader.manager.partitions:
        leader.manager.watches.notify(partition)
    assert (await leader.run(world.produce(1, VALUE, number=last)))[0] == 0
    assert sent.index(True) <= partition_count / busy_count
    for task in list(leader.tasks):
        task.cancel()
    await world.stop()
