"""Passes of the cleaner in tests: in this process, on whatever disk the log is on."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from kafkapy.config.log import LogConfig
from kafkapy.config.log_defaults import LogDefaults
from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.storage.cleaner.cleaning_pass import CleaningPass
from kafkapy.storage.cleaner.manager import CleanerManager, Cleaning, CleaningReport
from kafkapy.storage.log.flush import flush_log
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.manager.log_manager import LogManager
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.chance import SeededRandom
from tests.support.logs import NOW_MS, load_logs

PARTITION = TopicPartition("t", 0)
COMPACTED: dict[str, Any] = {
    "cleanup_policy": ("compact",),
    "segment_bytes": 1000,
    "index_interval_bytes": 100,
    "segment_index_bytes": 4096,
    "min_cleanable_dirty_ratio": 0.0,
    "delete_retention_ms": 1000,
}
SETTINGS = LogDefaults(log_cleaner_dedupe_buffer_size=1 << 16, log_cleaner_io_buffer_size=4096)


class CompactedLogs:
    """Logs in /logs of a simulated disk, and their cleaner."""

    def __init__(self, disk: SimDisk, **config: Any) -> None:
        self.disk = disk
        self.config = LogConfig(**{**COMPACTED, **config})
        if not disk.exists("/logs"):
            disk.make_directory("/logs")
            disk.sync_all()
        self.start()

    def start(self) -> None:
        """Load what is there, as a start of the broker does."""
        self.logs = LogManager(self.disk, ["/logs"], self.config, random=SeededRandom(1))
        self.logs.is_verification_enabled = False
        self.logs.directories.lock()
        load_logs(self.logs, NOW_MS)
        self.cleaner = CleanerManager(self.logs, self.disk)

    @property
    def log(self) -> Log:
        return self.logs.get_or_create_log(PARTITION, None, self.config, NOW_MS)

    def roll_and_flush(self, now_ms: int = NOW_MS) -> None:
        """Make all that is there inactive, stable and durable: fit for a pass."""
        self.log.update_high_watermark(self.log.log_end_offset)
        self.log.roll(now_ms)
        flush_log(self.log)

    def begin(self, now_ms: int = NOW_MS, **settings: Any) -> Cleaning | None:
        """Begin a pass over the log where one is due."""
        chosen = self.cleaner.choose(
            [(log, found) for log in self.cleaner.compacted_logs() if (found := self.cleaner.assess(log, now_ms))]
        )
        if chosen is None:
            return None
        self.logs.checkpoints.write_now(self.logs.checkpoints.recovery_points())
        return self.cleaner.begin(*chosen, replace(SETTINGS, **settings), now_ms)

    def clean(self, now_ms: int = NOW_MS, **settings: Any) -> CleaningReport | None:
        """Do a pass over the log where one is due, and write the checkpoint."""
        cleaning = self.begin(now_ms, **settings)
        if cleaning is None:
            return None
        cleaning_pass = CleaningPass(self.disk, cleaning.plan)
        for progress in cleaning_pass.run():
            if progress.cleaned is not None:
                assert self.cleaner.swap_in(cleaning, progress.cleaned, now_ms)
                self.log.local_log.sync_names()
        report = self.cleaner.finish(cleaning, cleaning_pass.facts(), 1000)
        self.logs.checkpoints.write_now(self.logs.checkpoints.cleaner_offsets())
        return report


def append(log: Log, *records: tuple[str | None, str | None], now_ms: int = NOW_MS, **fields: Any) -> int:
    """Append a batch of (key, value) records; return its first offset."""
    encoded = [(now_ms, _bytes(key), _bytes(value), ()) for key, value in records]
    result = log.append_as_leader(bytearray(build_batch(encoded, **fields)), leader_epoch=0, now_ms=now_ms)
    log.update_high_watermark(log.log_end_offset)
    return result.first_offset


def _bytes(text: str | None) -> bytes | None:
    return text.encode() if text is not None else None


def stored_batches(log: Log) -> Iterator[RecordBatch]:
    """Yield every batch in the log's segments."""
    for segment in log.segments:
        yield from batches(segment.log.file.pread(segment.size, 0))


def stored(log: Log) -> list[tuple[int, str | None, str | None]]:
    """Return (offset, key, value) of every record in the log that is not a marker's."""
    return [
        (record.offset, _text(record.key), _text(record.value))
        for batch in stored_batches(log)
        if not batch.is_control
        for record in batch.records()
    ]


def _text(data: bytes | None) -> str | None:
    return data.decode() if data is not None else None


def consume(log: Log, isolation: FetchIsolation = FetchIsolation.HIGH_WATERMARK) -> list[Record]:
    """Return what a consumer hands out: it skips markers, and data that the list of aborted transactions names."""
    records: list[Record] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, 500, isolation=isolation, wait=True)
        if read.region is None:
            return records
        waiting = sorted(read.aborted_transactions or [], key=lambda entry: entry.first_offset)
        aborted: set[int] = set()
        for batch in list(batches(read.region.read())):
            while waiting and waiting[0].first_offset <= batch.last_offset:
                aborted.add(waiting.pop(0).producer_id)
            if batch.is_control:
                if is_abort(batch):
                    aborted.discard(batch.producer_id)
            elif not (batch.is_transactional and batch.producer_id in aborted):
                records += [record for record in batch.records() if record.offset >= offset]
            offset = batch.next_offset
        read.region.release()


def is_abort(batch: RecordBatch) -> bool:
    """Whether a control batch is an abort marker; one whose record is gone is none."""
    record = next(batch.records(), None)
    return record is not None and record.key is not None and record.key[2:4] == b"\0\0"


def last_values(records: Iterable[Record]) -> dict[bytes | None, bytes]:
    """Return the value of each key that is not deleted."""
    last = {record.key: record.value for record in records}
    return {key: value for key, value in last.items() if value is not None}
