"""A script over a directory of logs, and what it was promised: what crash enumeration crashes.

Three kinds of partitions: `plain-0` is appended to, truncated, and cut from its start; `compacted-0` is cleaned while
it is written; `short-<n>-0` come and go. Idempotent producers and transactions write to all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from kafkapy.config.log import LogConfig
from kafkapy.config.log_defaults import LogDefaults
from kafkapy.record.batch import Record
from kafkapy.record.batches import batches
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.cleaner.cleaning_pass import CleaningPass
from kafkapy.storage.cleaner.manager import CleanerManager
from kafkapy.storage.log.flush import prepare_flush
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.maintenance import delete_due_files, delete_old_segments
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.storage.segment.open_files import OpenFiles
from kafkapy.types import TopicPartition
from tests.simulator.crash_enumeration import Moment, Recorder
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.chance import SeededRandom
from tests.support.logs import delete_due_logs, load_logs, marker

NOW_MS = 1_700_000_000_000
LATER_MS = NOW_MS + 5000
PLAIN = TopicPartition("plain", 0)
COMPACTED = TopicPartition("compacted", 0)
SMALL: dict[str, Any] = {"segment_bytes": 1500, "index_interval_bytes": 200, "segment_index_bytes": 480}
PLAIN_CONFIG = LogConfig(**SMALL, retention_ms=-1)
COMPACTED_CONFIG = LogConfig(
    **SMALL, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.0, delete_retention_ms=1000
)
SETTINGS = LogDefaults(log_cleaner_dedupe_buffer_size=1 << 16, log_cleaner_io_buffer_size=4096)
PRODUCERS = (11, 12)
"""Of transactions. Producer 7 is idempotent without."""


def config_for(topic: str) -> LogConfig:
    return COMPACTED_CONFIG if topic == COMPACTED.topic else PLAIN_CONFIG


@dataclass(slots=True)
class Appended:
    """A batch as it was stored. is_abort: of a marker, None for data."""

    base_offset: int
    data: bytes
    records: list[Record]
    transaction: int | None
    is_abort: bool | None

    @property
    def next_offset(self) -> int:
        return self.base_offset + len(self.records)


@dataclass(slots=True)
class Promise:
    """What is known of a partition. `batches` are as they should be now, `written` all that ever stood at an offset."""

    topic_id: bytes
    batches: dict[int, Appended] = field(default_factory=dict)
    written: dict[int, tuple[Appended, ...]] = field(default_factory=dict)
    durable_end: int = 0
    acknowledged_end: int = 0
    log_start_offset: int = 0

    def copy(self) -> "Promise":
        return replace(self, batches=dict(self.batches), written=dict(self.written))

    def at(self, offset: int, data: bytes) -> Appended | None:
        """Return what was written there with these bytes."""
        return next((each for each in self.written.get(offset, ()) if each.data == data), None)


def committed(appended: list[Appended]) -> Iterator[Record]:
    """Yield what a read_committed consumer hands out of a log that holds these batches."""
    open_since: dict[int, int] = {}
    aborted: set[int] = set()
    waiting: dict[int, list[int]] = {}
    for number, each in enumerate(appended):
        if each.transaction is None:
            continue
        if each.is_abort is None:
            open_since.setdefault(each.transaction, each.base_offset)
            waiting.setdefault(each.transaction, []).append(number)
        else:
            open_since.pop(each.transaction, None)
            if each.is_abort:
                aborted.update(waiting.get(each.transaction, ()))
            waiting.pop(each.transaction, None)
    last_stable_offset = min(open_since.values(), default=1 << 62)
    for number, each in enumerate(appended):
        if each.is_abort is None and number not in aborted and each.base_offset < last_stable_offset:
            yield from each.records


class Script:
    """A life of a log manager on a disk. `run` is the script, `moments` what it may be crashed at."""

    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(seed)
        self.disk.make_directory("/logs")
        self.disk.sync_all()
        self.promises: dict[TopicPartition, Promise] = {}
        self.random = Random(seed)
        self.leader_epoch = 0
        self._recorder = Recorder(self.disk, self._promised)
        self._sequences: dict[TopicPartition, int] = {}
        self._transactions: dict[tuple[TopicPartition, int], int] = {}
        """(partition, producer id) -> the next sequence number of an open transaction."""
        self._transaction_epochs: dict[tuple[TopicPartition, int], int] = {}
        self._topic_count = 0

    def _promised(self) -> dict[TopicPartition, Promise]:
        return {partition: promise.copy() for partition, promise in self.promises.items()}

    def run(self, step_count: int) -> list[Moment]:
        """Live; return the moments at which the machine may have stopped."""
        self.manager = start(self.disk, self.promises)
        self._create(PLAIN)
        self._create(COMPACTED)
        steps: list[tuple[Callable[[], None], int]] = [
            (self.append, 8),
            (self.append_idempotent, 8),
            (self.append_transactional, 8),
            (self.end_transaction, 6),
            (self.flush, 4),
            (self.checkpoint, 2),
            (self.truncate, 3),
            (self.roll, 2),
            (self.delete_records, 1),
            (self.clean, 3),
            (self.create_topic, 1),
            (self.delete_topic, 1),
            (self.delete_due_files, 1),
        ]
        weights = [weight for _, weight in steps]
        for step, _ in self.random.choices(steps, weights, k=step_count):
            self._recorder.doing = step.__name__.replace("_", " ")
            step()
        self._recorder.doing = "close"
        self.manager.close()
        for partition, log in self.manager.logs.items():
            self.promises[partition].durable_end = log.log_end_offset
        return self._recorder.finish()

    # Topics

    def _create(self, partition: TopicPartition) -> None:
        self._topic_count += 1
        promise = self.promises[partition] = Promise(self._topic_count.to_bytes(16, "big"))
        self.manager.get_or_create_log(partition, promise.topic_id, config_for(partition.topic), NOW_MS)

    def create_topic(self) -> None:
        self._create(TopicPartition(f"short-{self._topic_count}", 0))

    def delete_topic(self) -> None:
        short = [partition for partition in self.promises if partition.topic.startswith("short")]
        if short:
            partition = self.random.choice(short)
            del self.promises[partition]
            self.manager.delete_log(partition, NOW_MS)

    # Appends

    def _any_log(self) -> Log:
        others = [log for partition, log in self.manager.logs.items() if partition not in (PLAIN, COMPACTED)]
        plain, compacted = self.manager.logs[PLAIN], self.manager.logs[COMPACTED]
        return self.random.choice([plain, plain, plain, compacted, compacted, *others[:1]])

    def _records(self) -> list[tuple[int, bytes, bytes | None, Any]]:
        number = self.random.randrange(1000)
        return [
            (
                NOW_MS + number,
                b"k%d" % self.random.randrange(7),
                None if self.random.random() < 0.15 else b"%d" % number + bytes(self.random.choice([0, 0, 90, 250])),
                (),
            )
            for _ in range(self.random.randrange(1, 4))
        ]

    def append(self) -> None:
        self._append(self._any_log(), self._records(), compression=self.random.choice([0, 0, 1, 3]))

    def append_idempotent(self) -> None:
        log, records = self._any_log(), self._records()
        sequence = self._sequences.get(log.topic_partition, 0)
        self._append(log, records, producer_id=7, producer_epoch=0, base_sequence=sequence)
        self._sequences[log.topic_partition] = sequence + len(records)

    def append_transactional(self) -> None:
        log, producer_id, records = self._any_log(), self.random.choice(PRODUCERS), self._records()
        key = (log.topic_partition, producer_id)
        sequence = self._transactions.get(key)
        if sequence is None:
            sequence = 0
            self._transaction_epochs[key] = self._transaction_epochs.get(key, -1) + 1
        self._append(
            log,
            records,
            producer_id=producer_id,
            producer_epoch=self._transaction_epochs[key],
            base_sequence=sequence,
            is_transactional=True,
        )
        self._transactions[key] = sequence + len(records)

    def end_transaction(self) -> None:
        live = [key for key in self._transactions if key[0] in self.manager.logs]
        if not live:
            return
        key = partition, producer_id = self.random.choice(live)
        del self._transactions[key]
        is_abort = self.random.random() < 0.5
        epoch = self._transaction_epochs[key]
        data = marker(is_abort=is_abort, producer_id=producer_id, producer_epoch=epoch)
        self._store(self.manager.logs[partition], bytes(data), producer_id, is_abort)

    def _append(self, log: Log, records: Any, **fields: Any) -> None:
        data = build_batch(records, base_offset=log.log_end_offset, leader_epoch=self.leader_epoch, **fields)
        self._store(log, data, fields["producer_id"] if fields.get("is_transactional") else None, None)

    def _store(self, log: Log, data: bytes, transaction: int | None, is_abort: bool | None) -> None:
        promise, offset = self.promises[log.topic_partition], log.log_end_offset
        as_stored = bytearray(data)
        as_stored[0:8] = offset.to_bytes(8, "big")
        as_stored[12:16] = self.leader_epoch.to_bytes(4, "big")
        (batch,) = batches(bytes(as_stored))
        appended = Appended(offset, bytes(as_stored), list(batch.records()), transaction, is_abort)
        promise.written[offset] = (*promise.written.get(offset, ()), appended)
        result = log.append_as_leader(
            bytearray(data), leader_epoch=self.leader_epoch, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
        )
        assert result.first_offset == offset
        promise.batches[offset] = appended
        promise.acknowledged_end = log.log_end_offset
        log.update_high_watermark(log.log_end_offset)

    # What happens to logs

    def flush(self) -> None:
        self._flush(self._any_log())

    def _flush(self, log: Log) -> None:
        flush = prepare_flush(log)
        flush.run()
        promise = self.promises[log.topic_partition]
        promise.durable_end = max(promise.durable_end, flush.end_offset)
        flush.complete(NOW_MS)

    def checkpoint(self) -> None:
        self.manager.checkpoints.write_now(self.manager.checkpoints.all_at_the_end())

    def roll(self) -> None:
        self._any_log().roll(NOW_MS)

    def truncate(self) -> None:
        log, promise = self.manager.logs[PLAIN], self.promises[PLAIN]
        starts = [offset for offset in promise.batches if offset > log.log_start_offset][-6:]
        if not starts or any(partition == PLAIN for partition, _ in self._transactions):
            return
        offset = self.random.choice(starts)
        promise.durable_end = min(promise.durable_end, offset)
        promise.acknowledged_end = min(promise.acknowledged_end, offset)
        self.manager.truncate_to({PLAIN: offset})
        promise.batches = {start: each for start, each in promise.batches.items() if start < offset}
        producer = log.producer_state.producers.get(7)
        self._sequences[PLAIN] = producer.last_sequence + 1 if producer is not None else 0
        self.leader_epoch += 1
        if self.random.random() < 0.5:
            log.roll(NOW_MS)

    def delete_records(self) -> None:
        log, promise = self.manager.logs[PLAIN], self.promises[PLAIN]
        offset = self.random.choice([0, *promise.batches][-12:])
        if log.maybe_increment_log_start_offset(offset):
            promise.log_start_offset = offset
        delete_old_segments(log, NOW_MS)

    def delete_due_files(self) -> None:
        now_ms = NOW_MS + 60_000 * self.random.randrange(2)
        for log in self.manager.logs.values():
            delete_due_files(log, now_ms)
        delete_due_logs(self.manager, now_ms)

    def clean(self) -> None:
        """Make what is there durable and clean it, with appends in between."""
        log = self.manager.logs[COMPACTED]
        log.roll(NOW_MS)
        self._flush(log)
        for _ in clean(self.disk, self.manager):
            if self.random.random() < 0.1:
                self._append(log, self._records())


def clean(disk: SimDisk, manager: LogManager) -> Iterator[None]:
    """Do a pass of the cleaner over the compacted log, if any of it is dirty; yield between its steps."""
    cleaner, log = CleanerManager(manager, disk), manager.logs[COMPACTED]
    to_clean = cleaner.assess(log, LATER_MS)
    if to_clean is None or not to_clean.dirty_bytes:
        return
    cleaning = cleaner.begin(log, to_clean, SETTINGS, LATER_MS)
    manager.checkpoints.write_now(manager.checkpoints.recovery_points())
    cleaning_pass = CleaningPass(disk, cleaning.plan)
    for progress in cleaning_pass.run():
        if progress.cleaned is not None:
            assert cleaner.swap_in(cleaning, progress.cleaned, LATER_MS)
            log.local_log.sync_names()
        yield
    cleaner.finish(cleaning, cleaning_pass.facts(), 1)
    manager.checkpoints.write_now(manager.checkpoints.cleaner_offsets())


def start(disk: SimDisk, promises: dict[TopicPartition, Promise]) -> LogManager:
    """Start a log manager as a broker does, whose metadata says that there are these topics."""
    # a small cache of files, so that most are closed and opened again on the way
    manager = LogManager(
        disk,
        ["/logs"],
        PLAIN_CONFIG,
        random=SeededRandom(disk.boot + 1),
        files=OpenFiles(disk, capacity=3),
    )
    manager.is_verification_enabled = False
    manager.directories.lock()

    def is_stray(log: Log) -> bool:
        promise = promises.get(log.topic_partition)
        return promise is None or log.topic_id not in (None, promise.topic_id)

    load_logs(manager, NOW_MS, config_for=config_for, is_stray=is_stray)
    for log in manager.logs.values():
        log.update_high_watermark(log.log_end_offset)
    return manager
