"""The coordinator's runtime: decide, append, replay, answer once committed; loading, losing and leaving partitions."""

import asyncio
import errno
import itertools

import pytest

from kafkapy.errors import ApiError
from kafkapy.group.decision import GroupDecision, ParkedResponse
from kafkapy.group.offsets import offset_record
from kafkapy.group.records import encode_record
from kafkapy.group.settings import OFFSETS_TOPIC
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kafkapy.protocol.messages.offset_commit_value import OffsetCommitValue
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.batches import batches
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.runtime.coordinators.coordinator import java_hash
from kafkapy.runtime.coordinators.group_host import STEPS_PER_SLICE
from kafkapy.runtime.coordinators.shard_host import HostState
from tests.simulator.loop import SimLoop
from tests.support.batches import build_batch
from tests.support.group_hosting import GROUP, GroupHosting
from tests.support.hosting import NOW_MS, new_walk, run_scheduled, topic_id


def records_of(hosting: GroupHosting) -> list[tuple[bytes | None, bytes | None]]:
    """Return keys and values in partition 0 of the offsets topic."""
    log = hosting.manager.partitions.find(OFFSETS_TOPIC, 0).log
    region = log.read(log.log_start_offset, 1 << 20, wait=True).region
    if region is None:
        return []
    data = region.read()
    region.release()
    return [(record.key, record.value) for batch in batches(data) for record in batch.records()]


async def code_of(awaitable) -> int:
    with pytest.raises(ApiError) as caught:
        await awaitable
    return caught.value.code


async def loaded(hosting: GroupHosting) -> None:
    """Wait until no partition is being read."""
    while any(host.is_loading() for host in hosting.groups._hosts.values()):
        await asyncio.sleep(0.001)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("", 0),
        ("g1", 3242),
        ("a", 97),
        ("hello", 99162322),
        ("polygenelubricants", 0),
        ("\U0001f600", 1772899),
    ],
)
def test_a_group_is_placed_by_javas_hash(text, code):
    assert java_hash(text) == code


async def test_what_is_committed_is_there_at_once_and_after_a_restart(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    assert await hosting.committed_offset() == 5
    hosting.restart()
    await loaded(hosting)
    assert await hosting.committed_offset() == 5


async def test_a_commit_never_suspends_with_nobody_else_in_the_isr(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    with pytest.raises(StopIteration) as ended:
        hosting.commit_offset(5).send(None)
    assert ended.value.value == [0]


async def test_a_request_is_one_batch(loop: SimLoop):
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic()
    records = [offset_record(GROUP, "orders", number, OffsetCommitValue(number)) for number in range(3)]
    await hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision("done", records))
    data = partition.log.read(0, 1 << 20, wait=True).region.read()
    assert [batch.record_count for batch in batches(data)] == [3]


async def test_groups_without_a_partition_here_are_refused(loop: SimLoop):
    hosting = GroupHosting(loop)
    assert await code_of(hosting.commit_offset(5)) == ErrorCode.NOT_COORDINATOR


async def test_requests_are_put_off_while_the_log_is_read(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    await hosting.commit_offset(5)
    hosting.restart()
    assert await code_of(hosting.commit_offset(6)) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert (
        await code_of(hosting.groups.read_all(lambda shard: [], new_walk(hosting.clock)))
        == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    )
    await loaded(hosting)
    assert await hosting.commit_offset(6) == [0]


async def test_a_large_log_is_read_in_pieces(loop: SimLoop):
    hosting = GroupHosting(loop, offsets_load_buffer_size="2000")
    hosting.create_offsets_topic()
    for number in range(300):
        await hosting.commit_offset(number, partition=number % 7)
    hosting.restart()
    reads_before = hosting.io_pool.finished_count
    await loaded(hosting)
    assert hosting.io_pool.finished_count - reads_before > 10
    assert await hosting.committed_offset(partition=299 % 7) == 299


def lead_by(partition_id: int, leader: int) -> PartitionChangeRecord:
    return PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id(OFFSETS_TOPIC), leader=leader)


async def test_a_partition_that_is_lost_takes_its_groups_along_and_waiting_requests_hear_of_it(loop: SimLoop):
    hosting = GroupHosting(loop, broker_count=2)
    hosting.create_offsets_topic(replicas=[1, 2], isr=[1])
    await hosting.commit_offset(5)
    waiting = hosting.start(hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision()))
    await run_scheduled()
    assert not waiting.done()
    hosting.commit(lead_by(0, 2))
    assert await code_of(waiting) == ErrorCode.NOT_COORDINATOR
    assert await code_of(hosting.commit_offset(6)) == ErrorCode.NOT_COORDINATOR
    hosting.commit(lead_by(0, 1))
    await loaded(hosting)
    assert await hosting.committed_offset() == 5


async def test_responses_wait_for_the_replicas(loop: SimLoop):
    hosting = GroupHosting(loop, broker_count=2)
    partition = hosting.create_offsets_topic(replicas=[1, 2])
    commit = hosting.start(hosting.commit_offset(5))
    fetch = hosting.start(hosting.committed_offset())
    await run_scheduled()
    assert not commit.done()
    assert not fetch.done(), "a failover could take back what it would tell"
    partition.record_follower_fetch(2, fetch_offset=1, log_start_offset=0, now_ms=NOW_MS)
    hosting.manager.complete_waiting(partition)
    assert await commit == [0]
    assert await fetch == 5


async def test_replicas_that_take_too_long_make_the_coordinator_unavailable(loop: SimLoop):
    hosting = GroupHosting(loop, broker_count=2)
    hosting.create_offsets_topic(replicas=[1, 2])
    started_ms = hosting.clock.monotonic_ms()
    assert await code_of(hosting.commit_offset(5)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert 5000 <= hosting.clock.monotonic_ms() - started_ms <= 5010


async def test_too_few_replicas_refuse_a_commit_and_nothing_changes(loop: SimLoop):
    hosting = GroupHosting(loop, broker_count=2)
    hosting.create_offsets_topic(replicas=[1, 2], isr=[1], configs={"min.insync.replicas": "2"})
    assert await code_of(hosting.commit_offset(5)) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert records_of(hosting) == []


async def test_a_record_larger_than_a_batch_may_be_is_refused(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic(configs={"max.message.bytes": "200"})
    assert await code_of(hosting.commit_offset(5, metadata="x" * 300)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await hosting.commit_offset(6) == [0]
    assert await hosting.committed_offset() == 6


async def test_a_failed_append_answers_waiting_requests_as_its_decision_says(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    first = hosting.start(hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision()))
    second = hosting.start(hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision()))
    await run_scheduled()
    too_large = [offset_record(GROUP, "orders", 0, OffsetCommitValue(1, metadata="x" * 30_000))] * 50

    def decide(shard, token, now_ms):
        parked_responses = [ParkedResponse(0, "first"), ParkedResponse(1, "second")]
        failed = [ParkedResponse(0, ApiError(ErrorCode.REBALANCE_IN_PROGRESS)), ParkedResponse(1, "taken back")]
        return GroupDecision("third", too_large, parked_responses, on_failed=lambda code: failed)

    assert await code_of(hosting.groups.call(GROUP, decide)) == ErrorCode.UNKNOWN_SERVER_ERROR
    assert await code_of(first) == ErrorCode.REBALANCE_IN_PROGRESS
    assert await second == "taken back"


async def test_a_later_decision_answers_a_request_that_waits(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    tokens: list[int] = []

    def join(shard, token, now_ms):
        tokens.append(token)
        return GroupDecision()

    waiting = hosting.start(hosting.groups.call(GROUP, join))
    await run_scheduled()
    decision = GroupDecision("mine", parked_responses=[ParkedResponse(tokens[0], "yours")])
    assert await hosting.groups.call(GROUP, lambda shard, token, now_ms: decision) == "mine"
    assert await waiting == "yours"


async def test_a_decision_may_answer_its_own_request_by_token(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()

    def decide(shard, token, now_ms):
        return GroupDecision(parked_responses=[ParkedResponse(token, "done")])

    assert await hosting.groups.call(GROUP, decide) == "done"


async def test_a_request_that_is_given_up_leaves_nothing_behind(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    waiting = hosting.start(hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision()))
    await run_scheduled()
    waiting.cancel()
    await run_scheduled()
    assert hosting.groups._hosts[0]._waiting == {}


async def test_a_stop_answers_what_waits_and_refuses_what_comes(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    waiting = hosting.start(hosting.groups.call(GROUP, lambda shard, token, now_ms: GroupDecision()))
    await run_scheduled()
    await hosting.groups.close()
    assert await code_of(waiting) == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert await code_of(hosting.commit_offset(5)) == ErrorCode.COORDINATOR_NOT_AVAILABLE


async def test_offsets_expire_by_themselves(loop: SimLoop):
    hosting = GroupHosting(loop, offsets_retention_minutes="10", offsets_retention_check_interval_ms="60000")
    hosting.create_offsets_topic()
    hosting.groups.start()
    await hosting.commit_offset(5)
    await asyncio.sleep(9 * 60)
    await hosting.commit_offset(7, partition=1)
    assert await hosting.committed_offset() == 5
    await asyncio.sleep(2 * 60)
    assert await hosting.committed_offset() == -1
    assert await hosting.committed_offset(partition=1) == 7
    await asyncio.sleep(11 * 60)
    assert await hosting.groups.read_all(lambda shard: shard.list_groups([], []), new_walk(hosting.clock)) == []
    assert [value for _, value in records_of(hosting)][-2:] == [None, None]
    await hosting.groups.close()


async def test_many_offsets_expire_in_batches_that_the_topic_takes(loop: SimLoop):
    hosting = GroupHosting(loop, offsets_retention_minutes="10")
    partition = hosting.create_offsets_topic(configs={"max.message.bytes": "1000"})
    for number in range(100):
        await hosting.commit_offset(1, partition=number)
    await asyncio.sleep(601)
    await hosting.groups.expire_offsets()
    assert await hosting.groups.read_all(lambda shard: list(shard.groups), new_walk(hosting.clock)) == []
    data = partition.log.read(100, 1 << 20, wait=True).region.read()
    found = list(batches(data))
    assert len(found) > 3
    assert all(batch.size_bytes <= 1000 for batch in found)


async def test_the_offsets_of_one_group_expire_in_several_turns(loop: SimLoop):
    hosting = GroupHosting(loop, offsets_retention_minutes="10")
    partition = hosting.create_offsets_topic()
    topics = [OffsetCommitRequestTopic("orders", partitions=[commit_of(number) for number in range(5_000)])]
    request = OffsetCommitRequest(GROUP, topics=topics)
    await hosting.groups.call(GROUP, lambda shard, token, now_ms: shard.offsets.commit(request, 9, now_ms))
    await asyncio.sleep(601)
    expiring = asyncio.ensure_future(hosting.groups.expire_offsets())
    written: list[int] = []
    while not expiring.done():
        written.append(partition.log.log_end_offset)
        await asyncio.sleep(0)
    assert partition.log.log_end_offset == 5_000 + 5_000 + 1, "a tombstone each, and that of the group"
    assert max(after - before for before, after in itertools.pairwise(written)) <= STEPS_PER_SLICE + 1
    assert await hosting.committed_offset() == -1


def commit_of(partition: int) -> OffsetCommitRequestPartition:
    return OffsetCommitRequestPartition(partition, committed_offset=1, committed_metadata="")


async def test_offsets_go_with_their_topic(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    await hosting.commit_offset(5, topic_id=topic_id("orders"))
    await hosting.commit_offset(6, topic="other")
    hosting.delete_topic("orders")
    assert await hosting.committed_offset() == -1
    assert await hosting.committed_offset(topic="other") == 6


async def test_offsets_go_with_a_topic_that_is_deleted_while_they_are_loaded(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    hosting.create_topic("orders")
    await hosting.commit_offset(5)
    hosting.groups.reload(GROUP)
    assert await code_of(hosting.start(hosting.commit_offset(6))) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    hosting.delete_topic("orders")
    while hosting.groups.loading_count:
        await asyncio.sleep(0.01)
    assert await hosting.committed_offset() == -1


async def test_a_commit_to_a_topic_that_was_deleted_and_made_again_during_a_load_stays(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    names = ["orders", "trades", "bars"]
    for name in names:
        hosting.create_topic(name)
        await hosting.commit_offset(5, topic=name, partition=1)
    hosting.groups.reload(GROUP)
    for name in names:
        hosting.delete_topic(name)
        hosting.create_topic(name, generation=2)
    await loaded(hosting)
    assert await hosting.commit_offset(7) == [0]
    await asyncio.sleep(1)
    assert await hosting.committed_offset() == 7
    assert [await hosting.committed_offset(topic=name, partition=1) for name in names] == [-1, -1, -1]


async def test_offsets_of_a_transaction_count_once_it_is_committed(loop: SimLoop):
    """As Apache Kafka leaves them in the log; read at a load."""
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic()
    await hosting.commit_offset(1)
    for producer_id, offset, is_commit in ((7, 10, True), (8, 20, False), (9, 30, None)):
        key, value = offset_record(GROUP, "orders", producer_id, OffsetCommitValue(offset)), None
        append_transactional(partition, key, producer_id)
        if is_commit is not None:
            marker = EndTxnMarker(is_commit=is_commit, coordinator_epoch=0)
            value = build_end_txn_marker(marker, producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS)
            partition.log.append_as_leader(
                bytearray(value), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
            )
    partition.maybe_advance_high_watermark(0)
    hosting.restart()
    await loaded(hosting)
    assert await hosting.committed_offset(partition=0) == 1
    assert await hosting.committed_offset(partition=7) == 10
    assert await hosting.committed_offset(partition=8) == -1
    assert await hosting.committed_offset(partition=9) == -1


def append_transactional(partition, record, producer_id):
    batch = build_batch(
        [encode_record(record, NOW_MS)],
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    guard = partition.log.producer_state.start_verification(producer_id, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    partition.log.append_as_leader(
        bytearray(batch), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR, verification=guard
    )


async def test_damaged_records_fail_the_load_and_unknown_ones_do_not(loop: SimLoop):
    hosting = GroupHosting(loop)
    partition = hosting.create_offsets_topic(2)
    await hosting.commit_offset(5)
    unknown_type = (NOW_MS, b"\x7f\x00later", b"\x00\x00", ())
    append(partition, unknown_type)
    damaged = hosting.manager.partitions.find(OFFSETS_TOPIC, 1)
    append(damaged, (NOW_MS, b"\x00\x01\x00\x05ab", b"", ()))
    hosting.restart()
    await loaded(hosting)
    states = {number: host.state for number, host in hosting.groups._hosts.items()}
    assert states == {0: HostState.ACTIVE, 1: HostState.FAILED}


async def test_a_load_that_fails_unexpectedly_fails_no_other(loop: SimLoop):
    hosting = GroupHosting(loop)
    for partition in (hosting.create_offsets_topic(3), hosting.manager.partitions.find(OFFSETS_TOPIC, 2)):
        append(partition, encode_record(offset_record(GROUP, "orders", 0, OffsetCommitValue(1)), NOW_MS))

    def run_out_of_memory(operation: str, path: str) -> None:
        if operation == "read" and path.startswith("/data/__consumer_offsets-0/"):
            raise MemoryError("of this test")

    hosting.restart()
    hosting.disk.hook = run_out_of_memory
    await loaded(hosting)
    states = [hosting.groups._hosts[number].state for number in range(3)]
    assert states == [HostState.FAILED, HostState.ACTIVE, HostState.ACTIVE]
    hosting.disk.hook = None
    hosting.restart()
    await loaded(hosting)
    assert hosting.groups._hosts[0].state is HostState.ACTIVE


def append(partition, record) -> None:
    batch = bytearray(build_batch([record]))
    partition.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    partition.maybe_advance_high_watermark(0)


async def test_a_log_is_loaded_whose_last_records_compaction_has_removed(loop: SimLoop):
    """As a truncation to the start of the last segment leaves it, whose records before were tombstones at their end."""
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    log = hosting.log(OFFSETS_TOPIC)
    log.roll(NOW_MS)
    assert await hosting.commit_offset(6) == [0]
    second = log.segments.active
    log.roll(NOW_MS)
    second.truncate_to(second.base_offset, max_index_bytes=0, now_ms=NOW_MS)
    log.local_log.reader.known.clear()
    hosting.groups.reload(GROUP)
    await loaded(hosting)
    assert await hosting.committed_offset() == 5
    assert await hosting.commit_offset(7) == [0]


async def test_records_may_be_deleted_before_their_log_is_loaded(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert [await hosting.commit_offset(offset) for offset in (5, 6)] == [[0], [0]]
    hosting.groups.reload(GROUP)
    hosting.log(OFFSETS_TOPIC).maybe_increment_log_start_offset(1)
    await loaded(hosting)
    assert await hosting.committed_offset() == 6


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOMEM])
async def test_a_load_that_meets_a_shortage_goes_on_after_it(loop: SimLoop, code: int):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    hosting.log(OFFSETS_TOPIC).local_log.close_files()
    hosting.disk.fail("open", code, path=OFFSETS_TOPIC, times=3)
    hosting.groups.reload(GROUP)
    await asyncio.sleep(0.5)
    assert await code_of(hosting.committed_offset()) == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    await loaded(hosting)
    assert await hosting.committed_offset() == 5


async def test_a_load_that_meets_a_failed_disk_takes_the_directory_offline(loop: SimLoop):
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    hosting.disk.fail("read", errno.EIO, path=OFFSETS_TOPIC)
    hosting.groups.reload(GROUP)
    await loaded(hosting)
    assert hosting.log(OFFSETS_TOPIC).is_offline


async def test_a_load_that_meets_a_damaged_index_fails(loop: SimLoop):
    """It is no shortage that ends: only a start makes the index anew."""
    hosting = GroupHosting(loop)
    hosting.create_offsets_topic()
    assert await hosting.commit_offset(5) == [0]
    log = hosting.log(OFFSETS_TOPIC)
    log.roll(NOW_MS)
    index = log.segments.floor(0).offset_index
    file = hosting.disk.open(index.handle.path)
    file.pwrite((b"???",), file.size())
    index._entry_count = -1  # as after a start, which does not read it
    log.local_log.reader.known.clear()
    hosting.groups.reload(GROUP)
    await asyncio.wait_for(loaded(hosting), 10)
    assert hosting.groups._hosts[0].state is HostState.FAILED
