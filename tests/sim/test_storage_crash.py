"""Crashes at every step of a storage script, under four ideas of what a disk keeps.

Whatever was synced is there again, byte for byte. What was not synced may be gone from some point on, but what is
served is whole batches that were written at those offsets, without a gap; indexes, producers and epochs fit it.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from kafkapy.config.log import LogConfig
from kafkapy.record.batch import RecordBatch, batches
from kafkapy.record.builder import build_batch
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.log import FetchIsolation, Log
from kafkapy.storage.log_manager import LogManager
from kafkapy.storage.open_files import OpenFiles
from kafkapy.types import TopicPartition
from tests.sim.disk import Keep, SimCrash, SimDisk
from tests.support.chance import SeededRandom
from tests.support.logs import load_logs

PARTITION = TopicPartition("t", 0)
NOW_MS = 1_700_000_000_000
CONFIG = LogConfig(segment_bytes=1500, index_interval_bytes=200, segment_index_bytes=480, retention_ms=-1)
KEEPS: list[Keep] = ["all", "none", "torn", "reordered"]


@dataclass
class Model:
    """What the log may hold: every batch ever written by base offset, the durable prefix, the acknowledged end."""

    written: dict[int, set[bytes]] = field(default_factory=dict)
    latest: dict[int, bytes] = field(default_factory=dict)
    durable_end: int = 0
    acknowledged_end: int = 0
    log_start_offset: int = 0


class Script:
    """A partition and what is done to it."""

    def __init__(self, disk: SimDisk, seed: int) -> None:
        self.disk = disk
        self.model = Model()
        self.chance = random.Random(seed)
        self.sequence = 0
        self.epoch = 0
        self.is_transaction_open = False

    def start(self) -> LogManager:
        # a small cache of files, so that most are closed and opened again on the way
        manager = LogManager(
            self.disk, ["/logs"], CONFIG, random=SeededRandom(1), files=OpenFiles(self.disk, capacity=3)
        )
        manager.directories.lock()
        load_logs(manager, NOW_MS)
        return manager

    def run(self, step_count: int) -> None:
        self.manager = self.start()
        self.log = self.manager.get_or_create_log(PARTITION, b"\1" * 16, CONFIG, NOW_MS)
        steps: list[tuple[Callable[[], None], int]] = [
            (self.append, 10),
            (self.append_idempotent, 6),
            (self.append_transactional, 6),
            (self.end_transaction, 3),
            (self.flush, 3),
            (self.checkpoint, 2),
            (self.truncate, 1),
            (self.roll, 1),
            (self.delete_records, 1),
            (self.new_epoch, 1),
        ]
        weights = [weight for _, weight in steps]
        for step, _ in self.chance.choices(steps, weights, k=step_count):
            step()
        self.manager.close()
        self.model.durable_end = self.log.log_end_offset

    def append(self) -> None:
        size_bytes = self.chance.randrange(300)
        self._append([(NOW_MS, None, b"v" * size_bytes, ())] * self.chance.randrange(1, 4))

    def append_idempotent(self) -> None:
        count = self.chance.randrange(1, 4)
        self._append([(NOW_MS, b"k", b"v", ())] * count, producer_id=7, producer_epoch=0, base_sequence=self.sequence)
        self.sequence += count

    def append_transactional(self) -> None:
        sequence = 0 if not self.is_transaction_open else self.transaction_sequence
        if not self.is_transaction_open:
            self.transaction_epoch = getattr(self, "transaction_epoch", -1) + 1
        self.transaction_sequence = sequence + 1
        self.is_transaction_open = True
        self._append(
            [(NOW_MS, b"t", b"v", ())],
            origin=AppendOrigin.RAFT_LEADER,
            producer_id=8,
            producer_epoch=self.transaction_epoch,
            base_sequence=sequence,
            is_transactional=True,
        )

    def end_transaction(self) -> None:
        if not self.is_transaction_open:
            return
        control_type = self.chance.randrange(2)
        key = b"\0\0" + control_type.to_bytes(2, "big")
        self._append(
            [(NOW_MS, key, b"\0\0\0\0\0\0", ())],
            origin=AppendOrigin.RAFT_LEADER,
            producer_id=8,
            producer_epoch=self.transaction_epoch,
            is_transactional=True,
            is_control=True,
        )
        self.is_transaction_open = False

    def _append(self, records: Any, *, origin: AppendOrigin = AppendOrigin.COORDINATOR, **fields: Any) -> None:
        offset = self.log.log_end_offset
        as_stored = build_batch(records, base_offset=offset, leader_epoch=self.epoch, **fields)
        self.model.written.setdefault(offset, set()).add(as_stored)
        result = self.log.append_as_leader(bytearray(as_stored), leader_epoch=self.epoch, now_ms=NOW_MS, origin=origin)
        assert result.first_offset == offset
        self.model.latest[offset] = as_stored
        self.model.acknowledged_end = self.log.log_end_offset
        self.log.update_high_watermark(self.log.log_end_offset)

    def flush(self) -> None:
        flush = self.log.prepare_flush()
        flush.run()
        self.model.durable_end = max(self.model.durable_end, flush.end_offset)
        self.log.complete_flush(flush)

    def checkpoint(self) -> None:
        self.manager.checkpoints.write_now(self.manager.checkpoints.all_at_the_end())

    def truncate(self) -> None:
        starts = [offset for offset in self.model.latest if offset > self.log.log_start_offset]
        if not starts or self.is_transaction_open:
            return
        offset = self.chance.choice(starts[-6:])
        self.model.durable_end = min(self.model.durable_end, offset)
        self.model.acknowledged_end = min(self.model.acknowledged_end, offset)
        self.manager.truncate_to({PARTITION: offset})
        self.model.latest = {start: data for start, data in self.model.latest.items() if start < offset}
        entry = self.log.producer_state.producers.get(7)
        self.sequence = entry.last_sequence + 1 if entry is not None else 0
        self.epoch += 1

    def roll(self) -> None:
        self.log.roll(NOW_MS)

    def delete_records(self) -> None:
        offset = self.chance.choice([0, *self.model.latest][-12:])
        if self.log.maybe_increment_log_start_offset(offset):
            self.model.log_start_offset = offset
        self.log.delete_old_segments(NOW_MS)
        self.log.delete_due_files(NOW_MS + 60_000 * self.chance.randrange(2))

    def new_epoch(self) -> None:
        self.epoch += 1


def stored_batches(log: Log) -> Iterator[tuple[RecordBatch, bytes]]:
    """Yield every batch from the start of the first segment on, read through the segments' regions."""
    for segment in log.segments:
        data = segment.log.file.pread(segment.size, 0)
        for batch in batches(data):
            yield batch, bytes(batch.raw())


def check_recovered(script: Script, keep: Keep, log: Log) -> None:
    model = script.model
    end_offset = None
    for batch, data in stored_batches(log):
        assert batch.is_valid()
        assert data in model.written[batch.base_offset]
        assert end_offset is None or batch.base_offset == end_offset
        end_offset = batch.next_offset
        if batch.next_offset <= model.durable_end:
            assert data == model.latest[batch.base_offset]
    assert end_offset in (None, log.log_end_offset)
    assert log.log_end_offset >= model.durable_end
    assert log.log_start_offset <= max(model.log_start_offset, 0)
    assert log.segments.first.base_offset <= log.log_start_offset
    if keep == "all":
        assert log.log_end_offset >= model.acknowledged_end


def check_reads(log: Log) -> None:
    """Every offset can be read, by index, and gives the batch that holds it."""
    for offset in range(log.log_start_offset, log.log_end_offset):
        read = log.read(offset, 1, isolation=FetchIsolation.LOG_END)
        assert read.region is not None
        batch = next(batches(read.region.read()))
        assert batch.base_offset <= offset <= batch.last_offset
        read.region.release()


def binary_state(disk: SimDisk, directory: str) -> dict[str, bytes]:
    suffixes = (".index", ".timeindex", ".txnindex")
    names = [name for name in disk.list_directory(directory) if name.endswith(suffixes)]
    return {name: disk.read_file(f"{directory}/{name}") for name in names}


def state_of(log: Log) -> tuple[Any, ...]:
    """Return what recovery must agree on.

    Producers whose last record is below the start may be known or not, and so may an epoch that wrote nothing yet, or
    where exactly below the start a transaction began.
    """
    epochs = [entry for entry in log.leader_epochs.entries if entry.start_offset < log.log_end_offset]
    producers = sorted(
        (entry.producer_id, entry.producer_epoch, entry.last_sequence, entry.transaction_first_offset >= 0)
        for entry in log.active_producers()
        if entry.last_offset >= log.log_start_offset
    )
    last_stable_offset = log.last_stable_offset if log.log_start_offset == 0 else -1
    return (log.log_start_offset, log.log_end_offset, epochs, producers, last_stable_offset)


def check_rebuilt_is_equal(script: Script, manager: LogManager, log: Log) -> None:
    """Indexes and producers as recovery left them are those that a scan of the whole log makes."""
    log.update_high_watermark(log.log_end_offset)
    log_start_offset, state = log.log_start_offset, state_of(log)
    directory = log.directory
    manager.close()
    recovered = binary_state(script.disk, directory)
    for name in script.disk.list_directory(directory):
        if name.endswith((".index", ".timeindex", ".txnindex")):
            script.disk.delete(f"{directory}/{name}")
    rebuilt_log = Log.open(
        script.disk,
        directory,
        PARTITION,
        CONFIG,
        now_ms=NOW_MS,
        log_start_offset=log_start_offset,
        was_clean_shutdown=False,
    )
    rebuilt_log.update_high_watermark(rebuilt_log.log_end_offset)
    assert state_of(rebuilt_log) == state
    rebuilt_log.close()
    rebuilt = binary_state(script.disk, directory)
    if script.model.log_start_offset == 0:
        assert {name: data for name, data in rebuilt.items() if data} == {
            name: data for name, data in recovered.items() if data
        }


def run_until(changes: int, seed: int, step_count: int = 60) -> tuple[Script, bool]:
    """Run the script on a new disk, crashing in place of the given change; return it, and whether it crashed."""
    disk = SimDisk(seed)
    disk.make_directory("/logs")
    disk.settle()
    disk.crash_after = changes
    script = Script(disk, seed)
    try:
        script.run(step_count)
    except SimCrash:
        return script, True
    return script, False


def count_changes(seed: int) -> int:
    script, _ = run_until(1 << 60, seed)
    return script.disk.changes


@pytest.mark.parametrize("keep", KEEPS)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_crash_at_any_step_loses_nothing_that_was_synced(seed: int, keep: Keep) -> None:
    total = count_changes(seed)
    assert total > 150
    for changes in range(0, total, 3):
        script, has_crashed = run_until(changes, seed)
        assert has_crashed
        script.disk.crash(keep)
        manager = script.start()
        log = manager.get_log(PARTITION)
        if log is None:
            assert script.model.durable_end == 0
            continue
        check_recovered(script, keep, log)
        check_reads(log)
        check_rebuilt_is_equal(script, manager, log)


def test_a_crash_while_recovering_is_recovered_from() -> None:
    for changes in range(40):
        script, _ = run_until(120, seed=4)
        script.disk.crash("torn")
        script.disk.crash_after = script.disk.changes + changes
        try:
            script.start()
        except SimCrash:
            script.disk.crash("reordered")
            script.disk.crash_after = None
        else:
            script.disk.crash("all")
        manager = script.start()
        log = manager.get_log(PARTITION)
        if log is not None:
            check_recovered(script, "none", log)
            check_reads(log)
