"""The seam between handlers and a partition's producers: verification asked for, its guard brought, markers written."""

import pytest

from kafkapy.errors import ApiError
from kafkapy.protocol.error_code import ErrorCode
from kafkapy.protocol.messages.partition_change_record import PartitionChangeRecord
from kafkapy.record.control import EndTxnMarker, build_end_txn_marker
from kafkapy.record.validate import AppendOrigin
from kafkapy.replication.delayed_produce import PartitionAppend
from kafkapy.replication.hosted_partitions import HostedPartition
from kafkapy.storage.producers.entry import VerificationGuard
from tests.simulator.loop import SimLoop
from tests.support.hosting import NOW_MS, Hosting, batch, topic_id

PRODUCER_ID = 7
HEAVY_BYTES = 5 << 20


def verified(hosting: Hosting, partition: HostedPartition, sequence: int = 0, epoch: int = 0) -> VerificationGuard:
    guard = hosting.manager.start_verification(
        partition,
        producer_id=PRODUCER_ID,
        producer_epoch=epoch,
        base_sequence=sequence,
        supports_epoch_bump=True,
    )
    assert guard is not None
    return guard


def new_append(
    partition: HostedPartition, *, guard: VerificationGuard | None, value: bytes = b"x", sequence: int = 0
) -> PartitionAppend:
    records = batch(value, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=sequence, is_transactional=True)
    return PartitionAppend(partition, records, verification=guard)


def end(hosting: Hosting, partition: HostedPartition, *markers: tuple[int, int, int], version: int = 2) -> int:
    """Append markers of (producer id, producer epoch, coordinator epoch) as one write; return the error code."""
    records = b"".join(
        build_end_txn_marker(
            EndTxnMarker(is_commit=False, coordinator_epoch=coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=NOW_MS,
        )
        for producer_id, producer_epoch, coordinator_epoch in markers
    )
    append = PartitionAppend(partition, records, transaction_version=version)
    assert hosting.manager.append_records([append], required_acks=-1, origin=AppendOrigin.COORDINATOR)
    return append.error_code


async def test_a_guard_reaches_the_log(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    guard = verified(hosting, partition)
    unverified = new_append(partition, guard=None)
    hosting.manager.append_records([unverified], required_acks=1)
    assert unverified.error_code == ErrorCode.INVALID_TXN_STATE
    append = new_append(partition, guard=guard)
    hosting.manager.append_records([append], required_acks=1)
    assert (append.error_code, append.base_offset) == (0, 0)


async def test_a_guard_reaches_the_log_with_a_heavy_batch(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic(configs={"max.message.bytes": str(2 * HEAVY_BYTES)})
    append = new_append(partition, guard=verified(hosting, partition), value=bytes(HEAVY_BYTES))
    assert not hosting.manager.append_records([append], required_acks=1)
    assert append.worker_check is not None
    append.checked = append.worker_check.check()
    assert hosting.manager.append_records([append], required_acks=1)
    assert (append.error_code, append.base_offset) == (0, 0)


async def test_no_verification_is_needed_while_the_transaction_is_open(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.manager.append_records([new_append(partition, guard=verified(hosting, partition))], required_acks=1)
    requested = {"producer_id": PRODUCER_ID, "base_sequence": 1, "supports_epoch_bump": True}
    assert hosting.manager.start_verification(partition, producer_epoch=0, **requested) is None
    with pytest.raises(ApiError) as refused:
        hosting.manager.start_verification(partition, producer_epoch=-1, **requested)
    assert refused.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


async def test_a_marker_between_verification_and_append_ends_the_verification(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    guard = verified(hosting, partition)
    assert end(hosting, partition, (PRODUCER_ID, 1, 0)) == 0
    append = new_append(partition, guard=guard)
    hosting.manager.append_records([append], required_acks=1)
    assert append.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert append.base_offset == -1


async def test_a_new_leader_between_verification_and_append_takes_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    guard = verified(hosting, partition)
    hosting.commit(
        PartitionChangeRecord(partition_id=0, topic_id=topic_id("orders"), leader=2, isr=[2], replicas=[1, 2])
    )
    append = new_append(partition, guard=guard)
    hosting.manager.append_records([append], required_acks=1)
    assert (append.error_code, append.base_offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
    assert partition.log is not None
    assert partition.log.log_end_offset == 0


async def test_who_does_not_lead_verifies_nothing(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.delete_topic()
    with pytest.raises(ApiError) as refused:
        verified(hosting, partition)
    assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_an_abandoned_verification_is_over(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    guard = verified(hosting, partition)
    hosting.manager.abandon_verification(partition, producer_id=PRODUCER_ID, producer_epoch=0, guard=guard)
    append = new_append(partition, guard=guard)
    hosting.manager.append_records([append], required_acks=1)
    assert append.error_code == ErrorCode.INVALID_TXN_STATE
    assert verified(hosting, partition) is not guard


@pytest.mark.parametrize(
    ("version", "producer_epoch", "code"),
    [(0, 0, 0), (1, 0, 0), (2, 0, ErrorCode.INVALID_PRODUCER_EPOCH), (2, 1, 0), (0, 1, 0)],
)
async def test_a_marker_is_checked_by_its_transaction_version(
    loop: SimLoop, version: int, producer_epoch: int, code: int
) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.manager.append_records([new_append(partition, guard=verified(hosting, partition))], required_acks=1)
    assert end(hosting, partition, (PRODUCER_ID, producer_epoch, 3), version=version) == code
    assert partition.log is not None
    assert partition.log.last_stable_offset == (0 if code else 2)


async def test_a_marker_written_again_is_taken_and_one_of_an_older_coordinator_is_not(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.manager.append_records([new_append(partition, guard=verified(hosting, partition))], required_acks=1)
    assert [end(hosting, partition, (PRODUCER_ID, 1, 3)) for _ in range(2)] == [0, 0]
    assert end(hosting, partition, (PRODUCER_ID, 1, 2)) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert end(hosting, partition, (99, 0, 0)) == 0, "a producer that nobody knows"


async def test_the_markers_of_one_write_stand_or_fall_together(loop: SimLoop) -> None:
    hosting = Hosting(loop)
    partition = hosting.create_topic()
    hosting.manager.append_records([new_append(partition, guard=verified(hosting, partition))], required_acks=1)
    assert end(hosting, partition, (99, 0, 0), (PRODUCER_ID, 0, 0)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.log is not None
    assert partition.log.log_end_offset == 1
    assert end(hosting, partition, (99, 0, 0), (PRODUCER_ID, 1, 0)) == 0
    assert partition.log.log_end_offset == 3
    assert partition.log.last_stable_offset == 3
