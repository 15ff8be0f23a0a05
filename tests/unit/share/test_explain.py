"""What a share partition tells of its records: who has them until when, how often they came, what is being written."""

from kafkapy.share.acknowledgement import AcknowledgementBatch
from kafkapy.share.explain import RUNS_SHOWN, Now, explain_partition
from kafkapy.share.fetched import AcquireLimits, FetchedBatch, FetchedRecords
from kafkapy.share.partition import SharePartition
from kafkapy.share.partition_settings import PartitionSettings
from kafkapy.share.persister import SharePartitionKey, StateReadResult

LOCK_MS = 30_000
NOW = Now(monotonic_ms=1_000, wall_ms=500_000)
ACCEPT, RELEASE = 1, 2


def partition_with(last_offset: int) -> SharePartition:
    """A share partition whose records up to last_offset have been acquired by m1 at 0 ms, in one batch."""
    machine = SharePartition(
        SharePartitionKey("g", b"t" * 16, 0), 0, PartitionSettings(record_lock_duration_ms=LOCK_MS)
    )
    machine.begin_load()
    assert machine.load(StateReadResult(b"t" * 16, 0, start_offset=0), 0) is None
    acquire(machine, "m1", 0, last_offset, now_ms=0)
    return machine


def acquire(machine: SharePartition, member_id: str, first_offset: int, last_offset: int, now_ms: int) -> None:
    fetched = FetchedRecords(first_offset, [FetchedBatch(first_offset, last_offset)], [])
    assert machine.acquire(member_id, fetched, AcquireLimits(10_000, 10_000, False), now_ms)


def acknowledge(machine: SharePartition, first_offset: int, last_offset: int, kind: int, *, is_written: bool) -> None:
    write = machine.acknowledge("m1", [AcknowledgementBatch(first_offset, last_offset, [kind])], 10).write
    assert write is not None
    if is_written:
        machine.finish_write(write, None, 10)


def test_acquired_records_have_a_holder_and_an_end() -> None:
    told = explain_partition(partition_with(9), NOW)
    assert told["runs"] == [
        {
            "first_offset": 0,
            "last_offset": 9,
            "state": "acquired",
            "delivery_count": 1,
            "member": "m1",
            "until_ms": NOW.wall_ms + LOCK_MS - NOW.monotonic_ms,
            "is_written": True,
        }
    ]
    assert (told["start_offset"], told["next_offset"], told["state"]) == (0, 10, "active")


def test_a_change_that_is_being_written_is_told_as_such() -> None:
    machine = partition_with(9)
    acknowledge(machine, 2, 3, ACCEPT, is_written=True)
    acknowledge(machine, 5, 5, RELEASE, is_written=False)
    runs = explain_partition(machine, NOW)["runs"]
    assert [(each["first_offset"], each["state"], each["is_written"]) for each in runs] == [
        (0, "acquired", True),
        (2, "acknowledged", True),
        (4, "acquired", True),
        (5, "available", False),
        (6, "acquired", True),
    ]
    assert [each["until_ms"] is None for each in runs] == [False, True, False, True, False]


def test_what_lies_below_the_start_is_not_told() -> None:
    machine = partition_with(9)
    acknowledge(machine, 0, 3, ACCEPT, is_written=True)
    told = explain_partition(machine, NOW)
    assert told["start_offset"] == 4
    assert [(each["first_offset"], each["last_offset"]) for each in told["runs"]] == [(4, 9)]


def test_runs_are_bounded() -> None:
    machine = partition_with(2 * RUNS_SHOWN + 1)
    for offset in range(1, 2 * RUNS_SHOWN + 1, 2):
        acknowledge(machine, offset, offset, ACCEPT, is_written=True)
    told = explain_partition(machine, NOW)
    assert (len(told["runs"]), told["runs_left_out"]) == (RUNS_SHOWN, RUNS_SHOWN + 1)
