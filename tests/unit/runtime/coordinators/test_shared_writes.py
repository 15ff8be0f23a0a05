"""Commits of offsets that are made in one pass of the event loop: one batch, one write, and each its own response."""

import errno
from collections.abc import Coroutine
from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision
from kafkapy.group.offsets import offset_record
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.batches import batches
from kafkapy.runtime.coordinators.shared_write import WRITTEN_AT_ONCE, WRITTEN_AT_ONCE_AFTER_LONE
from kafkapy.runtime.coordinators.writer import TransactionalWrite
from tests.simulator.loop import SimLoop
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import NOW_MS, run_scheduled, topic_id

Commit = Coroutine[Any, Any, list[int]]
PRODUCER_ID = 7


async def with_group(loop: SimLoop, *, linger_ms: int = -1, broker_count: int = 1, **topic: Any) -> GroupHosting:
    """Return a coordinator whose group exists, with so many commits in this millisecond that the next one waits."""
    hosting = GroupHosting(loop, broker_count=broker_count, group_coordinator_append_linger_ms=str(linger_ms))
    hosting.create_offsets_topic(**topic)
    for offset in range(1 + WRITTEN_AT_ONCE):
        assert await hosting.commit_offset(offset) == [0]
    return hosting


def begin(commit: Commit) -> Commit:
    """Run a commit until it waits for others."""
    assert commit.send(None) is None
    return commit


def end(commit: Commit) -> list[int]:
    """Resume a commit as the loop's next pass does; return its error codes."""
    with pytest.raises(StopIteration) as ended:
        commit.send(None)
    codes: list[int] = ended.value.value
    return codes


def error_of(commit: Commit) -> int:
    with pytest.raises(ApiError) as caught:
        commit.send(None)
    return caught.value.code


def record_counts(hosting: GroupHosting, first_offset: int) -> list[int]:
    """Return how many records each batch has, from an offset on."""
    region = hosting.log(OFFSETS_TOPIC).read(first_offset, 1 << 20, wait=True).region
    if region is None:
        return []
    data = region.read()
    region.release()
    return [batch.record_count for batch in batches(data)]


async def test_commits_of_one_pass_are_one_batch(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    commits = [hosting.start(hosting.commit_offset(number, partition=number)) for number in range(10, 20)]
    await run_scheduled()
    assert [commit.result() for commit in commits] == [[0]] * 10
    assert record_counts(hosting, 0) == [1] * (1 + WRITTEN_AT_ONCE) + [10]
    assert [await hosting.committed_offset(partition=number) for number in range(10, 20)] == list(range(10, 20))


async def test_they_are_one_write(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    writes: list[str] = []
    hosting.disk.hook = lambda operation, path: writes.append(path) if operation == "write" else None
    commits = [hosting.start(hosting.commit_offset(number, partition=number)) for number in range(10)]
    await run_scheduled()
    assert all(commit.done() for commit in commits)
    assert writes == ["/data/__consumer_offsets-0/00000000000000000000.log"]


async def test_nothing_is_answered_before_it_is_written(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    end_offset = hosting.log(OFFSETS_TOPIC).log_end_offset
    first, second = begin(hosting.commit_offset(7)), begin(hosting.commit_offset(8))
    assert hosting.log(OFFSETS_TOPIC).log_end_offset == end_offset
    assert end(first) == [0]
    assert hosting.log(OFFSETS_TOPIC).log_end_offset == end_offset + 2
    assert end(second) == [0]
    assert await hosting.committed_offset() == 8


async def test_who_reads_offsets_sees_the_commits_that_wait(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    commit = begin(hosting.commit_offset(7))
    assert await hosting.committed_offset() == 7
    assert end(commit) == [0]


async def test_other_decisions_about_groups_come_after_the_commits_that_wait(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    commit = begin(hosting.commit_offset(7, partition=5))
    deleted = await hosting.groups.call(GROUP, lambda shard, token, now_ms: shard.delete_group(GROUP))
    assert deleted
    assert end(commit) == [0]
    assert await hosting.committed_offset(partition=5) == -1, "its tombstone was decided with it in the group"


async def test_a_commit_in_a_transaction_is_a_batch_of_its_own_after_those_that_wait(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    end_offset = hosting.log(OFFSETS_TOPIC).log_end_offset
    waiting = [begin(hosting.commit_offset(number)) for number in (7, 8)]
    guard = hosting.log(OFFSETS_TOPIC).producer_state.start_verification(
        PRODUCER_ID, 0, 3, supports_epoch_bump=True, now_ms=NOW_MS
    )
    record = offset_record(GROUP, "orders", 0, OffsetCommitValue(9))
    await hosting.groups.call(
        GROUP, lambda shard, token, now_ms: GroupDecision("done", [record]), TransactionalWrite(PRODUCER_ID, 3, guard)
    )
    assert [end(commit) for commit in waiting] == [[0], [0]]
    assert record_counts(hosting, end_offset) == [2, 1]


async def test_each_fails_if_the_write_fails_and_nothing_has_changed(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    before = await hosting.committed_offset()
    end_offset = hosting.log(OFFSETS_TOPIC).log_end_offset
    commits = [begin(hosting.commit_offset(70 + number)) for number in range(3)]
    hosting.disk.fail("write", errno.ENOSPC, path="__consumer_offsets-0")
    assert [error_of(commit) for commit in commits] == [ErrorCode.NOT_COORDINATOR] * 3
    assert hosting.log(OFFSETS_TOPIC).log_end_offset == end_offset
    assert await hosting.committed_offset() == before
    assert await hosting.commit_offset(80) == [0]
    assert await hosting.committed_offset() == 80


async def test_each_fails_if_the_partition_is_lost_before_the_write(loop: SimLoop) -> None:
    hosting = await with_group(loop, broker_count=2, replicas=[1, 2], isr=[1])
    end_offset = hosting.log(OFFSETS_TOPIC).log_end_offset
    commits = [begin(hosting.commit_offset(70 + number)) for number in range(2)]
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id(OFFSETS_TOPIC), leader=2))
    assert [error_of(commit) for commit in commits] == [ErrorCode.NOT_COORDINATOR] * 2
    assert hosting.log(OFFSETS_TOPIC).log_end_offset == end_offset


async def test_a_stop_refuses_those_that_wait(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    commit = begin(hosting.commit_offset(7))
    await hosting.groups.close()
    assert error_of(commit) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_a_request_that_is_given_up_leaves_its_commit_to_the_others(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    given_up, other = begin(hosting.commit_offset(7, partition=1)), begin(hosting.commit_offset(8))
    given_up.close()
    assert end(other) == [0]
    assert await hosting.committed_offset(partition=1) == 7


async def test_the_responses_wait_for_the_replicas(loop: SimLoop) -> None:
    hosting = GroupHosting(loop, broker_count=2)
    partition = hosting.create_offsets_topic(replicas=[1, 2])
    commits = [hosting.start(hosting.commit_offset(5))]
    await run_scheduled()
    commits += [hosting.start(hosting.commit_offset(number)) for number in range(10)]
    await run_scheduled()
    assert not any(commit.done() for commit in commits)
    partition.record_follower_fetch(2, fetch_offset=11, log_start_offset=0, now_ms=NOW_MS)
    hosting.manager.complete_waiting(partition)
    assert [await commit for commit in commits] == [[0]] * 11


async def test_a_shared_batch_is_as_large_as_the_topic_allows(loop: SimLoop) -> None:
    hosting = await with_group(loop, configs={"max.message.bytes": "1000"})
    end_offset = hosting.log(OFFSETS_TOPIC).log_end_offset
    commits = [begin(hosting.commit_offset(number, metadata="x" * 200)) for number in range(10)]
    assert [end(commit) for commit in commits] == [[0]] * 10
    counts = record_counts(hosting, end_offset)
    assert sum(counts) == 10
    assert 3 <= len(counts) <= 5


async def test_commits_that_fit_alone_fit_whatever_the_topic_allows(loop: SimLoop) -> None:
    """With a limit of 480 bytes, two of them make a batch of 481: their lengths take two bytes each."""
    names: Any = {"group_id": "g" * 60, "metadata": "x" * 100}
    for limit in range(475, 485):
        hosting = await with_group(loop, configs={"max.message.bytes": str(limit)})
        assert await hosting.commit_offset(1, **names) == [0]
        commits = [begin(hosting.commit_offset(number, **names)) for number in range(4)]
        assert [end(commit) for commit in commits] == [[0]] * 4, limit


async def test_the_commit_that_makes_a_group_waits_for_no_other(loop: SimLoop) -> None:
    """The next one for the group is decided by what it made."""
    hosting = await with_group(loop)
    with pytest.raises(StopIteration):
        hosting.commit_offset(5, group_id="new").send(None)
    begin(hosting.commit_offset(6, group_id="new")).close()


async def test_after_one_that_waited_in_vain_the_next_ones_do_not_wait(loop: SimLoop) -> None:
    hosting = await with_group(loop)
    assert end(begin(hosting.commit_offset(7))) == [0]
    for number in range(WRITTEN_AT_ONCE_AFTER_LONE):
        with pytest.raises(StopIteration):
            hosting.commit_offset(number).send(None)
    assert end(begin(hosting.commit_offset(8))) == [0]


async def test_without_a_linger_no_commit_waits(loop: SimLoop) -> None:
    hosting = await with_group(loop, linger_ms=0)
    for number in range(10):
        with pytest.raises(StopIteration):
            hosting.commit_offset(number).send(None)
