"""A share partition at its bounds: nothing read, nothing left of its state, no room for more."""

import pytest

from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.fetched import AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.partition import SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.persister import SharePartitionKey, StateBatch, StateReadResult
from kafkapy.share.record_state import (
    ACK_ACCEPT,
    ACK_GAP,
    ACK_REJECT,
    ACK_RELEASE,
    ACKNOWLEDGED_STATES,
    NEXT_STATES,
    RecordState,
)

LIMITS = AcquireLimits(max_records=500, batch_size=500)
DONE = {"acknowledged": 2, "archived": 4}


def loaded(*batches: StateBatch, max_record_locks: int = 200, start_offset: int = 0) -> SharePartition:
    settings = PartitionSettings(max_record_locks=max_record_locks)
    partition = SharePartition(SharePartitionKey("g", bytes(16), 0), 4, settings)
    partition.begin_load()
    read = StateReadResult(bytes(16), 0, start_offset=start_offset, state_batches=list(batches))
    assert partition.load(read, 0) is None
    return partition


def acquire(partition: SharePartition, first_offset: int, last_offset: int) -> None:
    read = FetchedRecords(first_offset, [FetchedBatch(first_offset, last_offset)])
    assert partition.acquire("m", read, LIMITS, 0)


def test_what_read_nothing_acquires_nothing() -> None:
    partition = loaded()
    assert partition.acquire("m", FetchedRecords(0, []), LIMITS, 0) == []
    assert (partition.next_fetch_offset(), len(partition.records)) == (0, 0)


def test_a_state_of_which_all_is_done_leaves_nothing_in_flight() -> None:
    one = StateBatch(233, 233, DONE["archived"], 1)
    others = [StateBatch(offset, offset, DONE["acknowledged"], 1) for offset in range(234, 734)]
    partition = loaded(one, *others, start_offset=233)
    records = partition.records
    assert (records.start_offset, records.end_offset, partition.next_fetch_offset()) == (734, 734, 734)
    assert (len(records), records.delivery_complete_count) == (0, 0)


@pytest.mark.parametrize(("max_record_locks", "count", "expected"), [(1, 0, True), (6, 5, True), (5, 5, False)])
def test_more_may_be_acquired_below_the_limit_of_locks(max_record_locks: int, count: int, expected: bool) -> None:
    partition = loaded(max_record_locks=max_record_locks)
    if count:
        acquire(partition, 0, count - 1)
    assert partition.can_acquire() is expected


@pytest.mark.parametrize(
    ("last_offset", "acknowledged_type", "start_offset"),
    [(249, ACK_ACCEPT, 250), (89, ACK_ACCEPT, 90), (89, ACK_REJECT, 90), (89, ACK_RELEASE, 0)],
)
def test_what_is_acknowledged_makes_room(last_offset: int, acknowledged_type: int, start_offset: int) -> None:
    """A batch is acquired whole above the limit of 200. What is released may be acquired again at the limit."""
    partition = loaded()
    acquire(partition, 0, 149)
    assert partition.can_acquire()
    acquire(partition, 150, 249)
    assert not partition.can_acquire()
    write = partition.acknowledge("m", [AcknowledgementBatch(0, last_offset, [acknowledged_type])], 0).write
    assert write is not None
    partition.finish_write(write, None, 0)
    assert partition.can_acquire()
    assert partition.records.start_offset == start_offset


def test_each_type_of_acknowledgement_has_its_state() -> None:
    assert ACKNOWLEDGED_STATES == {
        ACK_GAP: RecordState.ARCHIVED,
        ACK_ACCEPT: RecordState.ACKNOWLEDGED,
        ACK_RELEASE: RecordState.AVAILABLE,
        ACK_REJECT: RecordState.ARCHIVED,
    }


def test_a_state_of_a_record_changes_as_the_table_says() -> None:
    """As Apache Kafka's, but for one: what is available is archived there without asking the table."""
    available, acquired, acknowledged, archiving, archived = map(RecordState, range(5))
    with pytest.raises(ValueError, match="5"):
        RecordState(5)
    expected = {
        available: {acquired, archived},
        acquired: {available, acknowledged, archiving, archived},
        acknowledged: set(),
        archiving: {archived},
        archived: set(),
    }
    assert expected == NEXT_STATES
    assert [state.is_done for state in RecordState] == [False, False, True, False, True]
