from typing import Any

import pytest

from kafkapy.errors import ApiError
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.errors import (
    INVALID_PRODUCER_EPOCH,
    INVALID_TXN_STATE,
    OUT_OF_ORDER_SEQUENCE_NUMBER,
    TRANSACTION_COORDINATOR_FENCED,
    CorruptSnapshotError,
)
from kafkapy.storage.producers.entry import VerificationGuard
from kafkapy.storage.producers.state import (
    VERIFICATION_EXPIRATION_MS,
    BatchMetadata,
    ProducerBatch,
    ProducerState,
    TransactionMarker,
    decode_snapshot,
)
from kafkapy.types import INT32_MAX

NOW_MS = 1_700_000_000_000
CLIENT, COORDINATOR, REPLICATION = AppendOrigin.CLIENT, AppendOrigin.COORDINATOR, AppendOrigin.REPLICATION


class Partition:
    """A producer state that is fed as a log feeds it."""

    def __init__(self, **options: Any) -> None:
        self.state = ProducerState(is_verification_enabled=False, **options)
        self.end_offset = 0

    def write(
        self,
        sequence: int,
        *,
        count: int = 1,
        epoch: int = 0,
        producer_id: int = 7,
        origin: AppendOrigin = CLIENT,
        transactional: bool = False,
        verification: Any = None,
    ) -> BatchMetadata | None:
        last_sequence = (sequence + count - 1) & INT32_MAX
        last_offset = self.end_offset + count - 1
        batch = ProducerBatch(
            producer_id, epoch, sequence, last_sequence, self.end_offset, last_offset, NOW_MS, transactional
        )
        prepared = self.state.prepare([batch], origin, verification=verification)
        if prepared.duplicate is None:
            self.state.commit(prepared)
            self.end_offset += count
            self.state.map_end_offset = self.end_offset
        return prepared.duplicate

    def end(
        self,
        *,
        is_abort: bool = False,
        epoch: int = 0,
        producer_id: int = 7,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        origin: AppendOrigin = COORDINATOR,
    ) -> list[int]:
        """Write a marker; return the last stable offset in the index entry of each aborted transaction."""
        marker = TransactionMarker(is_abort, coordinator_epoch, NOW_MS)
        offset = self.end_offset
        batch = ProducerBatch(producer_id, epoch, -1, -1, offset, offset, NOW_MS, True, marker)
        prepared = self.state.prepare([batch], origin, transaction_version=transaction_version)
        aborted = self.state.aborted_by(prepared)
        self.state.commit(prepared)
        self.end_offset += 1
        for completed in prepared.completed:
            self.state.complete(completed)
        return [each.last_stable_offset for each in aborted]


def refuses(code: int, call: Any, *arguments: Any, **keywords: Any) -> None:
    with pytest.raises(ApiError) as caught:
        call(*arguments, **keywords)
    assert caught.value.code == code


def test_a_batch_sent_again_is_answered_with_its_first_offset() -> None:
    partition = Partition()
    partition.write(0, count=3)
    partition.write(3, count=2)
    duplicate = partition.write(0, count=3)
    assert duplicate is not None
    assert (duplicate.first_offset, duplicate.last_offset) == (0, 2)
    assert partition.end_offset == 5


def test_the_last_five_batches_are_kept() -> None:
    partition = Partition()
    for sequence in range(6):
        partition.write(sequence)
    assert partition.write(1) == BatchMetadata(1, 1, 0, NOW_MS)
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 0)


def test_a_duplicate_has_exactly_the_same_range() -> None:
    partition = Partition()
    partition.write(0, count=3)
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 0, count=2)


@pytest.mark.parametrize("sequence", [0, 2, 4, 100])
def test_a_gap_is_out_of_order(sequence: int) -> None:
    partition = Partition()
    partition.write(0, count=3)
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, sequence)


def test_sequence_numbers_wrap_to_zero() -> None:
    partition = Partition()
    partition.write(INT32_MAX - 1, count=2)
    partition.write(0)
    assert partition.write(INT32_MAX - 1, count=2) is not None


def test_a_batch_across_the_wrap_is_recognized() -> None:
    partition = Partition()
    partition.write(INT32_MAX, count=3)
    assert partition.state.producers[7].last_sequence == 1
    assert partition.write(INT32_MAX, count=3) is not None


def test_an_unknown_producer_may_begin_anywhere() -> None:
    partition = Partition()
    partition.write(1000)
    partition.write(1001)


def test_a_new_epoch_begins_at_zero() -> None:
    partition = Partition()
    partition.write(0, count=5)
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 5, epoch=1)
    partition.write(0, epoch=1)
    refuses(INVALID_PRODUCER_EPOCH, partition.write, 5, epoch=0)


def test_a_follower_takes_what_the_leader_took() -> None:
    partition = Partition()
    partition.write(0, epoch=3)
    partition.write(77, epoch=2, origin=REPLICATION)
    assert partition.state.producers[7].last_sequence == 77


def test_a_refused_batch_changes_nothing() -> None:
    partition = Partition()
    partition.write(0, count=3)
    before = partition.state.encode_snapshot()
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 9, transactional=True)
    assert partition.state.encode_snapshot() == before
    assert partition.state.first_unstable_offset is None


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    partition = Partition()
    partition.write(0, transactional=True, producer_id=7)
    partition.write(0, transactional=True, producer_id=8)
    assert partition.state.first_unstable_offset == 0
    assert partition.end(is_abort=True, producer_id=7) == [1]
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(2)
    assert partition.state.first_unstable_offset == 0
    partition.state.on_high_watermark(3)
    assert partition.state.first_unstable_offset == 1
    assert partition.end(is_abort=True, producer_id=8) == [4]
    partition.state.on_high_watermark(4)
    assert partition.state.first_unstable_offset is None


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    partition = Partition()
    assert partition.end(epoch=3) == []
    refuses(INVALID_PRODUCER_EPOCH, partition.write, 0, epoch=2)


def test_a_plain_batch_within_a_transaction_is_refused() -> None:
    partition = Partition()
    partition.write(0, transactional=True)
    refuses(INVALID_TXN_STATE, partition.write, 1)


def test_a_marker_of_an_old_coordinator_is_fenced() -> None:
    partition = Partition()
    partition.write(0, transactional=True)
    partition.end(coordinator_epoch=5)
    refuses(TRANSACTION_COORDINATOR_FENCED, partition.end, coordinator_epoch=4)
    partition.end(coordinator_epoch=4, origin=REPLICATION)


def test_transaction_version_2_wants_a_newer_epoch_in_the_marker() -> None:
    partition = Partition()
    partition.write(0, transactional=True)
    refuses(INVALID_PRODUCER_EPOCH, partition.end, epoch=0, transaction_version=2)
    assert partition.end(is_abort=True, epoch=1, transaction_version=2) == [2]
    assert partition.end(epoch=1, transaction_version=2) == []  # a retry, let through


def test_the_first_batch_of_a_transaction_needs_proof() -> None:
    partition = Partition()
    partition.state.is_verification_enabled = True
    refuses(INVALID_TXN_STATE, partition.write, 0, transactional=True)
    guard = partition.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert guard is not None
    refuses(INVALID_TXN_STATE, partition.write, 0, transactional=True, verification=VerificationGuard())
    partition.write(0, transactional=True, verification=guard)
    partition.write(1, transactional=True)
    assert partition.state.start_verification(7, 2, 0, supports_epoch_bump=False, now_ms=NOW_MS) is None
    partition.end()
    refuses(INVALID_TXN_STATE, partition.write, 2, transactional=True, verification=guard)


def test_a_verification_lets_no_later_batch_overtake() -> None:
    partition = Partition()
    partition.state.is_verification_enabled = True
    guard = partition.state.start_verification(7, 5, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert partition.state.start_verification(7, 2, 0, supports_epoch_bump=False, now_ms=NOW_MS) is guard
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 5, transactional=True, verification=guard)
    partition.write(2, transactional=True, verification=guard)


def test_a_silent_producer_expires_but_not_its_open_transaction() -> None:
    partition = Partition(producer_id_expiration_ms=1000)
    partition.write(0, producer_id=7)
    partition.write(0, producer_id=8, transactional=True)
    partition.state.remove_expired(NOW_MS + 999)
    assert set(partition.state.producers) == {7, 8}
    partition.state.remove_expired(NOW_MS + 1000)
    assert set(partition.state.producers) == {8}


def test_a_transaction_that_hangs_is_noticed() -> None:
    partition = Partition()
    partition.write(0, transactional=True)
    assert not partition.state.late_transaction(NOW_MS + 360_000, max_transaction_timeout_ms=60_000)
    assert partition.state.late_transaction(NOW_MS + 360_001, max_transaction_timeout_ms=60_000)


def test_a_snapshot_holds_the_last_batch_and_the_open_transaction() -> None:
    partition = Partition()
    partition.write(0, count=2, producer_id=7)
    partition.write(0, producer_id=8, transactional=True)
    data = partition.state.encode_snapshot()
    assert data[:2].hex() == "0001"
    assert data[6:10].hex() == "00000002"
    assert data[10:56].hex(" ", 2).replace(" ", "") == (
        "0000000000000007"  # producer id
        "0000"  # epoch
        "00000001"  # last sequence
        "0000000000000001"  # last offset
        "00000001"  # offset delta
        "0000018bcfe56800"  # timestamp
        "ffffffff"  # coordinator epoch
        "ffffffffffffffff"  # no open transaction
    )
    loaded = ProducerState()
    loaded.load(decode_snapshot(data), 3, NOW_MS)
    assert loaded.encode_snapshot() == data
    assert loaded.first_unstable_offset == 2


@pytest.mark.parametrize("damage", [b"", b"\0\1", b"\0\2\0\0\0\0\0\0\0\0"])
def test_a_damaged_snapshot_is_refused(damage: bytes) -> None:
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(damage)


def test_any_flipped_bit_of_a_snapshot_is_noticed() -> None:
    partition = Partition()
    partition.write(0)
    data = partition.state.encode_snapshot()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 4
        with pytest.raises(CorruptSnapshotError):
            decode_snapshot(bytes(damaged))


def test_a_verification_concerns_its_producer_alone() -> None:
    partition = Partition()
    partition.write(0, producer_id=7)
    partition.write(0, producer_id=8)
    partition.state.start_verification(7, 1, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    assert partition.state.producer_in_sequence(7, 0, 1, False) is None
    assert partition.state.producer_in_sequence(8, 0, 1, False) is partition.state.producers[8]


def test_a_verification_that_is_not_used_ends_after_minutes() -> None:
    partition = Partition()
    guard = partition.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=NOW_MS)
    later_ms = NOW_MS + VERIFICATION_EXPIRATION_MS
    partition.state.start_verification(8, 0, 0, supports_epoch_bump=False, now_ms=later_ms - 1)
    assert partition.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=later_ms - 1) is guard
    partition.state.remove_expired(later_ms)
    assert partition.state.start_verification(7, 0, 0, supports_epoch_bump=False, now_ms=later_ms) is not guard


def test_an_abandoned_verification_of_an_older_epoch_leaves_the_newer_one() -> None:
    partition = Partition()
    guard = partition.state.start_verification(7, 0, 0, supports_epoch_bump=True, now_ms=NOW_MS)
    assert partition.state.start_verification(7, 0, 1, supports_epoch_bump=True, now_ms=NOW_MS) is guard
    assert guard is not None
    partition.state.abandon_verification(7, 0, guard)
    assert partition.state.start_verification(7, 0, 1, supports_epoch_bump=True, now_ms=NOW_MS) is guard
    partition.state.abandon_verification(7, 1, guard)
    assert partition.state.start_verification(7, 0, 1, supports_epoch_bump=True, now_ms=NOW_MS) is not guard


@pytest.mark.parametrize(
    ("supports_epoch_bump", "marker_epoch", "goes_on"),
    [(True, 1, True), (True, 2, False), (True, 0, False), (False, 1, False)],
)
def test_a_marker_ends_a_verification_unless_it_ended_the_transaction_before(
    supports_epoch_bump: bool, marker_epoch: int, goes_on: bool
) -> None:
    """KIP-890: the marker of a transaction at epoch 0 has epoch 1, and so has the producer's next transaction."""
    partition = Partition()
    partition.write(0, transactional=True)
    guard = partition.state.start_verification(7, 0, 1, supports_epoch_bump=supports_epoch_bump, now_ms=NOW_MS)
    partition.end(epoch=marker_epoch)
    again = partition.state.start_verification(7, 0, 2, supports_epoch_bump=supports_epoch_bump, now_ms=NOW_MS)
    assert (again is guard) == goes_on


def test_a_producer_that_this_partition_never_saw_begins_at_zero_from_kip_890_on() -> None:
    partition = Partition()
    partition.state.is_verification_enabled = True
    guard = partition.state.start_verification(7, 3, 0, supports_epoch_bump=True, now_ms=NOW_MS)
    refuses(OUT_OF_ORDER_SEQUENCE_NUMBER, partition.write, 3, transactional=True, verification=guard)
