"""Fetch on a simulated disk: what is read, what waits and for how long, sessions, and who may read."""

from dataclasses import replace
from typing import Any

import pytest

from kafkapy.handlers.context import RequestContext
from kafkapy.handlers.data import fetch, wide_fetch
from kafkapy.handlers.data.fetch_wire import FEW_REFUSED
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.headers import RequestHeader
from kafkapy.protocol.messages.fetch_request import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.protocol.serving import ConnectionInfo
from kafkapy.record.batches import batches
from kafkapy.record.compression import ZSTD
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.runtime.turns import STEPS_PER_TURN
from kafkapy.seams import FileRegion
from kafkapy.security.authorizer import AclOperation
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, CountedTurns, Hosting, batch, run_scheduled, topic_id
from tests.support.metadata_services import Deny

VERSIONS = range(4, 19)
MIB = 1 << 20


PEER = ConnectionInfo("10.0.0.1:9092-10.0.0.3:4000-0", "PLAINTEXT", "PLAINTEXT", "10.0.0.3", 4000)


def context(version: int = 18, peer: ConnectionInfo = PEER) -> Any:
    return RequestContext(RequestHeader(1, version, 1, "tester"), replace(peer))


def request(version: int, *offsets: int, topic: str = "orders", generation: int = 1, **fields: Any) -> FetchRequest:
    """Ask for partitions 0, 1, ... at these offsets; no waiting and no session unless told."""
    part_fields = {name: fields.pop(name) for name in list(fields) if name in FetchPartition.field_names()}
    part_fields.setdefault("partition_max_bytes", MIB)
    parts = [FetchPartition(number, fetch_offset=offset, **part_fields) for number, offset in enumerate(offsets)]
    named = (
        FetchTopic(topic, topic_id=bytes(16), partitions=parts)
        if version < 13
        else FetchTopic("", topic_id=topic_id(topic, generation), partitions=parts)
    )
    defaults = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 * MIB, "topics": [named] if parts else []}
    return FetchRequest(**{**defaults, **fields})  # type: ignore[arg-type]


async def send(hosting: Hosting, requested: FetchRequest, version: int = 18, authorizer: Any = None) -> Any:
    """Return the response as a client reads it, its regions read and released."""
    response = await fetch.handle(hosting.services(authorizer), context(version), requested)
    for topic in response.responses:
        for part in topic.partitions:
            if isinstance(part.records, FileRegion):
                region, part.records = part.records, part.records.read()
                region.release()
    return type(response).decode(response.encode(version), version)


async def parts_of(hosting: Hosting, requested: FetchRequest, version: int = 18, authorizer: Any = None) -> list[Any]:
    response = await send(hosting, requested, version, authorizer)
    return [part for topic in response.responses for part in topic.partitions]


def append(partition: HostedPartition, *values: bytes, hosting: Hosting | None = None, **fields: Any) -> None:
    partition.log.append_as_leader(batch(*values, **fields), leader_epoch=partition.leader_epoch, now_ms=NOW_MS)
    partition.maybe_advance_high_watermark(0)
    if hosting is not None:
        hosting.manager.complete_waiting(partition)


def spans(part: Any) -> list[tuple[int, int]]:
    """The base and last offsets of the batches of a response."""
    return [(each.base_offset, each.last_offset) for each in batches(part.records)]


# -- what is read


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_version_reads(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop)
    append(hosting.create_topic(), b"a", b"b")
    (part,) = await parts_of(hosting, request(version, 0), version)
    assert (part.error_code, part.high_watermark, part.last_stable_offset) == (0, 2, 2)
    assert part.log_start_offset == (0 if version >= 5 else -1)
    assert (part.preferred_read_replica, part.aborted_transactions) == (-1, None)
    assert spans(part) == [(0, 1)]


async def test_the_whole_batch_that_holds_the_offset_is_returned(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(partition, b"a", b"b", b"c")
    append(partition, b"d")
    (part,) = await parts_of(hosting, request(18, 1))
    assert spans(part) == [(0, 2), (3, 3)]


async def test_one_batch_is_returned_however_large_but_only_of_the_first_partition_that_has_any(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic(partition_count=3)
    for number in (1, 2):
        append(hosting.manager.partitions.find("orders", number), b"x" * 1_000)
    empty, full, later = await parts_of(hosting, request(18, 0, 0, 0, partition_max_bytes=10))
    assert (spans(empty), spans(full), spans(later)) == ([], [(0, 0)], [])
    assert later.high_watermark == 1
    _, full, later = await parts_of(hosting, request(18, 0, 0, 0, max_bytes=10))
    assert (spans(full), spans(later)) == ([(0, 0)], [])


async def test_the_limits_hold_behind_the_first_batch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(partition_count=2)
    other = hosting.manager.partitions.find("orders", 1)
    for _ in range(4):
        append(partition, b"x" * 100)
        append(other, b"x" * 100)
    size = len(batch(b"x" * 100))
    part, _ = await parts_of(hosting, request(18, 0, 0, partition_max_bytes=2 * size + 10))
    assert spans(part) == [(0, 0), (1, 1)]
    first, second = await parts_of(hosting, request(18, 0, 0, max_bytes=5 * size))
    assert (len(spans(first)), len(spans(second))) == (4, 1)


async def test_fetch_max_bytes_of_the_broker_holds_for_all(loop: SimLoop) -> None:
    hosting = Hosting(loop, fetch_max_bytes="1024")
    partition = hosting.create_topic()
    for _ in range(4):
        append(partition, b"x" * 400)
    (part,) = await parts_of(hosting, request(18, 0))
    assert spans(part) == [(0, 0), (1, 1)]


async def test_records_leave_as_regions_of_the_file(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(partition, b"a")
    response = await fetch.handle(hosting.services(), context(), request(18, 0))
    records = response.responses[0].partitions[0].records
    assert isinstance(records, FileRegion)
    assert len(records) == len(records.read()) == partition.log.size_bytes
    records.release()


async def test_cold_pages_are_warmed_by_a_worker(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    for number in range(300):
        append(partition, b"x" * 100, timestamp_ms=NOW_MS + number)
    hosting.restart()
    hosting.disk.chill()
    (part,) = await parts_of(hosting, request(18, 150))
    assert spans(part)[0] == (150, 150)
    assert hosting.io_pool.finished_count > 0


async def test_a_disk_that_fails_while_warming_is_a_storage_error(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    for _ in range(300):
        append(partition, b"x" * 100)
    hosting.restart()
    hosting.disk.chill()
    hosting.disk.fail("read", times=5)
    (part,) = await parts_of(hosting, request(18, 150))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (part,) = await parts_of(hosting, request(18, 0))
    assert part.error_code == ErrorCode.KAFKA_STORAGE_ERROR
    (part,) = await parts_of(hosting, request(5, 0), 5)
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


# -- errors


async def test_errors_are_returned_partition_by_partition(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    append(hosting.create_topic(), b"a")
    hosting.create_topic("elsewhere", replicas=(2,))
    for version, topic, offset, code in (
        (18, "orders", 2, ErrorCode.OFFSET_OUT_OF_RANGE),
        (18, "orders", -1, ErrorCode.OFFSET_OUT_OF_RANGE),
        (18, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_ID),
        (12, "nowhere", 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (18, "elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (12, "elsewhere", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ):
        (part,) = await parts_of(hosting, request(version, offset, topic=topic, max_wait_ms=500), version)
        assert (part.error_code, part.high_watermark, part.log_start_offset) == (code, -1, -1), (version, topic)
        assert part.records == b""
    assert loop.now_ms() == 0
    good, unknown = await parts_of(hosting, request(18, 0, 0))
    assert (good.error_code, spans(good)) == (0, [(0, 0)])
    assert unknown.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_leader_epochs_fence(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    append(hosting.create_topic(), b"a")
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    for epoch, code in ((0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH), (1, 0), (-1, 0)):
        (part,) = await parts_of(hosting, request(18, 0, current_leader_epoch=epoch))
        assert part.error_code == code


@pytest.mark.parametrize("version", [15, 16])
async def test_the_leader_and_its_endpoint_are_returned(loop: SimLoop, version: int) -> None:
    hosting = Hosting(loop, broker_count=2)
    hosting.create_topic("elsewhere", replicas=(2,))
    response = await send(hosting, request(version, 0, topic="elsewhere"), version)
    leader = response.responses[0].partitions[0].current_leader
    endpoints = [(each.node_id, each.host) for each in response.node_endpoints]
    assert ((leader.leader_id, leader.leader_epoch), endpoints) == (
        ((-1, -1), []) if version < 16 else ((2, 0), [(2, "host2")])
    )


async def test_a_diverging_log_gets_the_offset_of_the_divergence(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(partition, b"a", b"b")
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    append(partition, b"c")
    (part,) = await parts_of(hosting, request(18, 3, last_fetched_epoch=0, max_wait_ms=500))
    assert (part.error_code, part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (0, 0, 2)
    (part,) = await parts_of(hosting, request(18, 2, last_fetched_epoch=0))
    assert (part.diverging_epoch.epoch, spans(part)) == (-1, [(2, 2)])
    (part,) = await parts_of(hosting, request(18, 3, last_fetched_epoch=9))
    assert part.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


async def test_zstd_is_sent_to_every_version(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(partition, b"a")
    append(partition, b"b", compression=ZSTD)
    for version in (4, 9, 10):
        (part,) = await parts_of(hosting, request(version, 0), version)
        assert (part.error_code, spans(part)) == (0, [(0, 0), (1, 1)])


# -- waiting


async def test_an_empty_response_comes_at_max_wait(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    (part,) = await parts_of(hosting, request(18, 0, max_wait_ms=500))
    assert (loop.now_ms(), part.error_code, part.records) == (500, 0, b"")
    assert hosting.manager.waiting_count == 0


async def test_an_append_wakes_a_waiting_fetch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    task = hosting.start(parts_of(hosting, request(18, 0, max_wait_ms=500)))
    await run_scheduled()
    assert hosting.manager.waiting_count == 1
    append(partition, b"a", hosting=hosting)
    (part,) = await task
    assert (loop.now_ms(), spans(part)) == (0, [(0, 0)])


async def test_min_bytes_counts_over_all_partitions(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    first = hosting.create_topic(partition_count=2)
    second = hosting.manager.partitions.find("orders", 1)
    size = len(batch(b"x" * 100))
    task = hosting.start(parts_of(hosting, request(18, 0, 0, min_bytes=2 * size, max_wait_ms=500)))
    await run_scheduled()
    append(first, b"x" * 100, hosting=hosting)
    await run_scheduled()
    assert not task.done()
    append(second, b"x" * 100, hosting=hosting)
    assert [spans(part) for part in await task] == [[(0, 0)], [(0, 0)]]
    assert loop.now_ms() == 0


async def test_too_little_is_sent_at_max_wait(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    append(hosting.create_topic(), b"a")
    (part,) = await parts_of(hosting, request(18, 0, min_bytes=10_000, max_wait_ms=300))
    assert (loop.now_ms(), spans(part)) == (300, [(0, 0)])


async def test_what_ends_with_its_segment_is_not_waited_for(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append(partition, b"a")
    partition.log.roll(NOW_MS)
    append(partition, b"b")
    (part,) = await parts_of(hosting, request(18, 0, min_bytes=10_000, max_wait_ms=300))
    assert (loop.now_ms(), spans(part)) == (0, [(0, 0)])


async def test_a_deleted_topic_wakes_a_waiting_fetch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    task = hosting.start(parts_of(hosting, request(18, 0, max_wait_ms=500)))
    await run_scheduled()
    hosting.delete_topic()
    (part,) = await task
    assert (loop.now_ms(), part.error_code) == (0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


async def test_a_new_leader_epoch_wakes_a_waiting_fetch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    task = hosting.start(parts_of(hosting, request(18, 0, current_leader_epoch=0, max_wait_ms=500)))
    await run_scheduled()
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    (part,) = await task
    assert (loop.now_ms(), part.error_code) == (0, ErrorCode.FENCED_LEADER_EPOCH)


async def test_a_request_that_goes_away_waits_no_more(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    task = hosting.start(parts_of(hosting, request(18, 0, max_wait_ms=500)))
    await run_scheduled()
    task.cancel()
    await run_scheduled()
    assert hosting.manager.waiting_count == 0


# -- isolation


def append_transactional(partition: HostedPartition, value: bytes, producer_id: int) -> None:
    log = partition.log
    guard = log.producer_state.start_verification(producer_id, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    records = batch(value, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, verification=guard)
    partition.maybe_advance_high_watermark(0)


def end_transaction(hosting: Hosting, partition: HostedPartition, producer_id: int, *, commit: bool) -> None:
    marker = build_end_txn_marker(
        EndTxnMarker(commit, coordinator_epoch=0), producer_id=producer_id, producer_epoch=0, timestamp_ms=NOW_MS
    )
    partition.log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    partition.maybe_advance_high_watermark(0)
    hosting.manager.complete_waiting(partition)


async def test_read_committed_waits_for_the_commit(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    append_transactional(partition, b"a", 7)
    (part,) = await parts_of(hosting, request(18, 0))
    assert (spans(part), part.last_stable_offset, part.high_watermark) == ([(0, 0)], 0, 1)
    task = hosting.start(parts_of(hosting, request(18, 0, isolation_level=1, max_wait_ms=500)))
    await run_scheduled()
    assert not task.done()
    end_transaction(hosting, partition, 7, commit=True)
    (part,) = await task
    assert (loop.now_ms(), spans(part), part.aborted_transactions) == (0, [(0, 0), (1, 1)], [])


async def test_aborted_transactions_are_sorted_by_their_first_offset(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    for producer_id in (9, 8, 7):
        append_transactional(partition, b"a", producer_id)
    for producer_id in (7, 9, 8):
        end_transaction(hosting, partition, producer_id, commit=producer_id == 8)
    (part,) = await parts_of(hosting, request(18, 0, isolation_level=1))
    assert [(each.producer_id, each.first_offset) for each in part.aborted_transactions] == [(9, 0), (7, 2)]
    (part,) = await parts_of(hosting, request(18, 0))
    assert part.aborted_transactions is None


# -- sessions


async def test_a_session_answers_what_is_new_and_remembers_the_rest(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(partition_count=3)
    opened = await send(hosting, request(18, 0, 0, 0, session_epoch=0))
    assert (opened.session_id, len(opened.responses[0].partitions)) == (1, 3)
    idle = await send(hosting, request(18, session_id=1, session_epoch=1))
    assert (idle.error_code, idle.session_id, idle.responses) == (0, 1, [])
    append(partition, b"a")
    reported = await send(hosting, request(18, session_id=1, session_epoch=2))
    assert [(part.partition_index, spans(part)) for part in reported.responses[0].partitions] == [(0, [(0, 0)])]
    again = await send(hosting, request(18, session_id=1, session_epoch=2))
    assert (again.error_code, again.session_id, again.responses) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0, [])
    unknown = await send(hosting, request(18, session_id=5, session_epoch=1))
    assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND


async def test_a_session_notices_that_its_topic_was_recreated(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    await send(hosting, request(18, 0, session_epoch=0))
    hosting.delete_topic()
    hosting.create_topic(generation=2)
    reported = await send(hosting, request(18, session_id=1, session_epoch=1))
    (part,) = reported.responses[0].partitions
    assert (reported.responses[0].topic_id, part.error_code) == (topic_id("orders"), ErrorCode.INCONSISTENT_TOPIC_ID)


async def test_leader_epochs_fence_inside_sessions(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    await send(hosting, request(18, 0, session_epoch=0, current_leader_epoch=0))
    hosting.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=1))
    reported = await send(hosting, request(18, session_id=1, session_epoch=1))
    assert reported.responses[0].partitions[0].error_code == ErrorCode.FENCED_LEADER_EPOCH


# -- rights


async def test_a_topic_needs_the_right_to_read(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    append(hosting.create_topic(), b"a")
    denied = Deny((AclOperation.READ, "orders"))
    for version in (12, 18):
        (part,) = await parts_of(hosting, request(version, 0), version, denied)
        assert (part.error_code, part.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")


async def test_whoever_claims_to_be_a_replica_without_the_right_or_the_assignment_gets_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=3)
    partition = hosting.create_topic(replicas=(1, 2))
    append(partition, b"beyond the high watermark")
    denied = Deny((AclOperation.CLUSTER_ACTION, "kafka-cluster"))
    for version, fields in (
        (14, {"replica_id": 2}),
        (18, {"replica_state": ReplicaState(replica_id=2, replica_epoch=1)}),
    ):
        (part,) = await parts_of(hosting, request(version, 1, **fields), version, denied)
        assert (part.error_code, part.records) == (ErrorCode.TOPIC_AUTHORIZATION_FAILED, b"")
    stranger = {"replica_state": ReplicaState(replica_id=3, replica_epoch=1)}
    (part,) = await parts_of(hosting, request(18, 1, **stranger))
    assert (part.error_code, part.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    (part,) = await parts_of(hosting, request(18, 1, current_leader_epoch=partition.leader_epoch, **stranger))
    assert (part.error_code, part.records) == (ErrorCode.UNKNOWN_LEADER_EPOCH, b"")
    assert partition.log.high_watermark == 0


def epoch_of(hosting: Hosting, broker_id: int) -> int:
    return hosting.cluster.image.cluster.brokers[broker_id].epoch


async def test_a_follower_reads_to_the_end_of_the_log_and_commits_what_it_has(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(partition, b"a")
    state = ReplicaState(replica_id=2, replica_epoch=epoch_of(hosting, 2))
    for version, fields in ((14, {"replica_id": 2}), (18, {"replica_state": state})):
        (part,) = await parts_of(hosting, request(version, 0, **fields), version)
        assert (part.error_code, part.high_watermark, spans(part)) == (0, 0, [(0, 0)])
    await parts_of(hosting, request(18, 1, replica_state=state, max_wait_ms=0))
    assert partition.log.high_watermark == 1
    assert partition.followers[2].broker_epoch == state.replica_epoch


async def test_a_fetch_of_an_earlier_life_of_a_follower_commits_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(partition, b"a")
    (part,) = await parts_of(
        hosting, request(18, 1, replica_state=ReplicaState(replica_id=2, replica_epoch=epoch_of(hosting, 2) - 1))
    )
    assert (part.error_code, part.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")
    assert (partition.log.high_watermark, partition.followers[2].log_end_offset) == (0, -1)


async def test_a_follower_that_waited_is_noted_as_of_when_its_fetch_came(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    await parts_of(
        hosting,
        request(18, 0, replica_state=ReplicaState(replica_id=2, replica_epoch=epoch_of(hosting, 2)), max_wait_ms=500),
    )
    assert loop.now_ms() == 500
    assert partition.followers[2].last_fetch_ms == 0


async def test_an_unassigned_replica_gets_not_leader_first(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(2, 1))
    stranger = {
        "replica_state": ReplicaState(replica_id=3, replica_epoch=1),
        "current_leader_epoch": partition.leader_epoch,
    }
    (part,) = await parts_of(hosting, request(18, 0, **stranger))
    assert part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


async def test_a_follower_with_a_diverging_log_gets_the_diverging_epoch_and_commits_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(partition, b"a")
    epoch = partition.leader_epoch
    fields = {
        "replica_state": ReplicaState(replica_id=2, replica_epoch=1),
        "last_fetched_epoch": epoch,
        "current_leader_epoch": epoch,
    }
    (part,) = await parts_of(hosting, request(18, 5, **fields))
    assert (part.diverging_epoch.epoch, part.diverging_epoch.end_offset) == (epoch, 1)
    assert partition.log.high_watermark == 0


async def test_nothing_beyond_the_high_watermark_is_read(loop: SimLoop) -> None:
    hosting = Hosting(loop, broker_count=2)
    partition = hosting.create_topic(replicas=(1, 2))
    append(partition, b"a")
    (part,) = await parts_of(hosting, request(18, 0))
    assert (part.error_code, part.high_watermark, part.records) == (0, 0, b"")
    partition.record_follower_fetch(2, fetch_offset=1, log_start_offset=0, now_ms=0)
    (part,) = await parts_of(hosting, request(18, 0))
    assert spans(part) == [(0, 0)]


# -- many partitions


async def test_a_fetch_of_many_partitions_is_handled_in_turns(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    names = [
        FetchTopic(f"t{number}", topic_id=bytes(16), partitions=[FetchPartition(0)])
        for number in range(5 * STEPS_PER_TURN)
    ]
    requested = FetchRequest(max_wait_ms=100, max_bytes=MIB, topics=names)
    services = hosting.services(Deny((AclOperation.READ, "")))
    services.turns = turns = CountedTurns()
    large = context(12)
    large.is_long = True  # as of any frame of 8 KiB
    response = await fetch.handle(services, large, requested)
    assert {part.error_code for topic in response.responses for part in topic.partitions} == {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED
    }
    assert len(response.responses) == len(names)
    steps = 4  # read, count, authorize, respond
    assert turns.count >= steps * (len(names) // STEPS_PER_TURN - 1)


async def test_a_fetch_of_many_partitions_waits_for_the_data_of_one(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partitions = [hosting.create_topic(f"topic-{number}") for number in range(wide_fetch.WIDE + 1)]
    names = [
        FetchTopic(f"topic-{number}", topic_id=bytes(16), partitions=[FetchPartition(0)])
        for number in range(len(partitions))
    ]
    for topic in names:
        topic.partitions[0].partition_max_bytes = MIB
    requested = FetchRequest(max_wait_ms=5_000, min_bytes=1, max_bytes=MIB, topics=names, session_epoch=0)
    waiting = loop.create_task(send(hosting, requested, 12))
    await run_scheduled()
    assert not waiting.done()
    append(partitions[-1], b"late", hosting=hosting)
    response = await waiting
    assert loop.now_ms() < 5_000
    assert [topic.topic for topic in response.responses if topic.partitions[0].records] == [f"topic-{wide_fetch.WIDE}"]
    assert len(response.responses) == len(names)
    empty = FetchRequest(session_id=response.session_id, session_epoch=1, max_wait_ms=300, min_bytes=MIB, max_bytes=MIB)
    empty.topics = [names[-1]]
    names[-1].partitions[0].fetch_offset = 1
    began_ms = loop.now_ms()
    assert (await send(hosting, empty, 12)).responses == []
    assert loop.now_ms() - began_ms >= 300


async def test_many_partitions_that_are_unknown_or_denied_are_kept_by_no_session(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    hosting.create_topic()
    opened = await send(hosting, request(12, 0, session_epoch=0), 12)
    assert opened.session_id > 0
    many = [0] * (FEW_REFUSED + 1)
    few = request(12, *many[1:], topic="deleted", session_id=opened.session_id, session_epoch=1)
    assert (await send(hosting, few, 12)).session_id == opened.session_id
    unknown = request(12, *many, topic="made-up", session_id=opened.session_id, session_epoch=2)
    response = await send(hosting, unknown, 12)
    assert (response.error_code, response.session_id) == (0, 0), "the client goes on with a full fetch"
    assert len(hosting.sessions) == 0
    denied = await send(hosting, request(12, *many, session_epoch=0), 12, Deny((AclOperation.READ, "")))
    assert (denied.session_id, len(hosting.sessions)) == (0, 0)
