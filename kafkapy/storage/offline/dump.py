"""Print the files of a stopped log directory as text, with the same lines as kafka-dump-log.sh.

Dumper.dump() takes .log, .checkpoint (snapshots of the Raft log), .index, .timeindex, .txnindex and .snapshot files;
finish() prints the inconsistencies found between indexes and logs. A decoder of dump_records.py prints the records.
Nothing is written and no lock is taken.
"""

import re
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator
from pathlib import Path, PurePath
from typing import Final

from kafkapy.dataclass import dataclass
from kafkapy.errors import CorruptIndexError
from kafkapy.record.batch import (
    CREATE_TIME,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC_POSITION,
    MIN_MESSAGE_BYTES,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    NO_TIMESTAMP_TYPE,
    Record,
    RecordBatch,
    increment_sequence,
)
from kafkapy.record.batches import batch_at
from kafkapy.record.compression import NAMES
from kafkapy.record.errors import CorruptRecordError, RecordsError
from kafkapy.record.legacy import LegacyBatch
from kafkapy.seams import Disk, File
from kafkapy.storage import file_names
from kafkapy.storage.errors import CorruptSnapshotError
from kafkapy.storage.offline.dump_records import Decode, control_text, decode_text
from kafkapy.storage.producers.state import NO_TRANSACTION, decode_snapshot
from kafkapy.storage.segment import offset_index, time_index, txn_index
from kafkapy.types import INT32_MAX

NO_LIMIT: Final = INT32_MAX
"""max_bytes if not given; the tool then also reports the bytes after the last whole batch."""

_RAFT_SNAPSHOT_NAME = re.compile(r"^(\d{20})-(\d{10})\.checkpoint$")
_TIMESTAMP_TYPES = {NO_TIMESTAMP_TYPE: "NoTimestampType", CREATE_TIME: "CreateTime", LOG_APPEND_TIME: "LogAppendTime"}
_HEADER_BYTES = MAGIC_POSITION + 1


@dataclass(frozen=True, slots=True)
class DumpOptions:
    """Options of a dump; the names are those of the tool's options."""

    deep_iteration: bool = False
    print_data_log: bool = False
    skip_record_metadata: bool = False
    verify_index_only: bool = False
    index_sanity_check: bool = False
    max_message_bytes: int = 5 * 1024 * 1024
    max_bytes: int = NO_LIMIT


class Dumper:
    """Prints files and collects inconsistencies for `finish`. `out` and `err` are called with one line each."""

    def __init__(
        self,
        disk: Disk,
        options: DumpOptions,
        out: Callable[[str], None],
        err: Callable[[str], None],
        decode: Decode = decode_text,
    ) -> None:
        self._disk = disk
        self._options = options
        self._out = out
        self._err = err
        self._decode = decode
        self._findings: dict[str, list[str]] = {}
        self.has_failed = False

    def dump(self, path: str) -> None:
        """Print one file. Raises OSError if the file, or the log that an index belongs to, cannot be read."""
        self._out(f"Dumping {path}")
        suffix = PurePath(path).suffix
        try:
            if suffix in (file_names.LOG_SUFFIX, file_names.RAFT_SNAPSHOT_SUFFIX):
                self._dump_log(path, suffix)
            elif suffix == file_names.OFFSET_INDEX_SUFFIX:
                self._dump_offset_index(path)
            elif suffix == file_names.TIME_INDEX_SUFFIX:
                self._dump_time_index(path)
            elif suffix == file_names.TXN_INDEX_SUFFIX:
                self._dump_txn_index(path)
            elif suffix == file_names.SNAPSHOT_SUFFIX:
                self._dump_producers(path)
            else:
                self._err(f"Ignoring unknown file {path}")
        except (CorruptIndexError, CorruptSnapshotError, RecordsError, ValueError) as error:
            self.has_failed = True
            self._err(f"{path}: {error}")

    def finish(self) -> None:
        """Print the inconsistencies found, grouped by kind and file."""
        for heading, lines in self._findings.items():
            self._err(heading)
            for line in lines:
                self._err(line)

    def _find(self, heading: str, path: str, line: str) -> None:
        self._findings.setdefault(f"{heading}{Path(path).absolute()}", []).append(line)

    def _dump_log(self, path: str, suffix: str) -> None:
        self._out(_log_title(path, suffix))
        file = self._disk.open(path, writable=False)
        try:
            end = min(file.size(), self._options.max_bytes)
            valid_bytes = 0
            previous_offset = -1
            try:
                for batch in _batches(file, 0, end):
                    self._out(_batch_line(batch, valid_bytes))
                    if self._options.deep_iteration:
                        previous_offset = self._dump_records(path, batch, previous_offset)
                    valid_bytes += batch.size_bytes
            finally:
                if end > valid_bytes and self._options.max_bytes == NO_LIMIT:
                    self._out(f"Found {end - valid_bytes} invalid bytes at the end of {PurePath(path).name}")
        finally:
            file.close()

    def _dump_records(self, path: str, batch: RecordBatch, previous_offset: int) -> int:
        for record, message in _records(batch):
            if record.offset != previous_offset + 1:
                line = f"  {previous_offset} is followed by {record.offset}"
                self._find("Non-consecutive offsets in ", path, line)
            previous_offset = record.offset
            parts = [] if self._options.skip_record_metadata else [_record_text(batch, record, message)]
            if self._options.print_data_log and not batch.is_control:
                parts += self._contents(record)
            self._out(" ".join(parts))
        return previous_offset

    def _contents(self, record: Record) -> Iterator[str]:
        key, payload = self._decode(record)
        texts = ([] if key is None else [f"key: {key}"]) + ([] if payload is None else [f"payload: {payload}"])
        if texts and self._options.skip_record_metadata:
            yield "|"
        yield from texts

    def _dump_offset_index(self, path: str) -> None:
        base_offset = _base_offset(path)
        data = self._read_index(path, offset_index.ENTRY)
        log = self._disk.open(_beside(path, file_names.LOG_SUFFIX), writable=False)
        try:
            if not data:
                self._out(f"{path} is empty.")
                return
            if self._options.index_sanity_check:
                _check_last_offset(data, base_offset)
                self._out(f"{path} passed sanity check.")
                return
            for delta, position in offset_index.ENTRY.iter_unpack(_without_zeros(data, offset_index.ENTRY)):
                offset = base_offset + delta
                self._check_offset(path, log, offset, position)
                if not self._options.verify_index_only:
                    self._out(f"offset: {offset} position: {position}")
        finally:
            log.close()

    def _read_index(self, path: str, entry: struct.Struct) -> bytes:
        data = self._disk.read_file(path)
        if len(data) % entry.size:
            raise CorruptIndexError(f"{len(data)} bytes are no whole number of entries of {entry.size}")
        return data

    def _check_offset(self, path: str, log: File, offset: int, position: int) -> None:
        end = min(log.size(), position + self._options.max_message_bytes)
        batch = next(_batches(log, position, end), None)
        found = batch.last_offset if batch is not None else None
        if found != offset:
            line = f"  Index offset: {offset}, log offset: {'none' if found is None else found}"
            self._find("Mismatches in :", path, line)

    def _dump_time_index(self, path: str) -> None:
        base_offset = _base_offset(path)
        data = self._read_index(path, time_index.ENTRY)
        if self._options.index_sanity_check:
            _check_times(data, base_offset)
            self._out(f"{path} passed sanity check.")
            return
        positions = self._positions(_beside(path, file_names.OFFSET_INDEX_SUFFIX))
        log = self._disk.open(_beside(path, file_names.LOG_SUFFIX), writable=False)
        try:
            previous_ms = NO_TIMESTAMP
            for timestamp_ms, delta in time_index.ENTRY.iter_unpack(_without_zeros(data, time_index.ENTRY)):
                self._check_time(path, log, positions, (timestamp_ms, base_offset + delta), previous_ms)
                if not self._options.verify_index_only:
                    self._out(f"timestamp: {timestamp_ms} offset: {base_offset + delta}")
                previous_ms = timestamp_ms
        finally:
            log.close()

    def _positions(self, path: str) -> list[tuple[int, int]]:
        """Return (offset, position) of the log's start and of each entry of its offset index."""
        base_offset = _base_offset(path)
        data = _without_zeros(self._read_index(path, offset_index.ENTRY), offset_index.ENTRY)
        entries = offset_index.ENTRY.iter_unpack(data)
        return [(base_offset, 0), *((base_offset + delta, position) for delta, position in entries)]

    def _check_time(
        self, path: str, log: File, positions: list[tuple[int, int]], entry: tuple[int, int], previous_ms: int
    ) -> None:
        timestamp_ms, offset = entry
        start = positions[bisect_right(positions, (offset, NO_LIMIT)) - 1][1]
        batch = next((batch for batch in _batches(log, start, log.size()) if batch.last_offset >= offset), None)
        if batch is None or batch.last_offset != offset:
            found = -1 if batch is None else batch.last_offset
            line = f"Indexed offset: {offset}, found log offset: {found}"
            self._find("The following indexed offsets are not found in :", path, line)
            return
        latest_ms = max((record.timestamp_ms for record in batch.records()), default=NO_TIMESTAMP)
        if latest_ms != timestamp_ms:
            line = f"  Index timestamp: {timestamp_ms}, log timestamp: {latest_ms}"
            self._find("Found timestamp mismatch in :", path, line)
        if previous_ms >= timestamp_ms:
            line = f"  Index timestamp: {timestamp_ms}, Previously indexed timestamp: {previous_ms}"
            self._find("Found out of order timestamp in :", path, line)

    def _dump_txn_index(self, path: str) -> None:
        for entry in txn_index.decode_entries(self._disk.read_file(path), path):
            self._out(
                f"version: {txn_index.VERSION} producerId: {entry.producer_id} firstOffset: {entry.first_offset} "
                f"lastOffset: {entry.last_offset} lastStableOffset: {entry.last_stable_offset}"
            )

    def _dump_producers(self, path: str) -> None:
        for entry in decode_snapshot(self._disk.read_file(path)):
            first_offset = entry.transaction_first_offset
            line = (
                f"producerId: {entry.producer_id} producerEpoch: {entry.producer_epoch} "
                f"coordinatorEpoch: {entry.coordinator_epoch} "
                f"currentTxnFirstOffset: {_optional_long(first_offset if first_offset != NO_TRANSACTION else None)} "
                f"lastTimestamp: {entry.last_timestamp_ms}"
            )
            for batch in entry.batches[:1]:
                line += (
                    f" firstSequence: {increment_sequence(batch.last_sequence, -batch.offset_delta)} "
                    f"lastSequence: {batch.last_sequence} lastOffset: {batch.last_offset} "
                    f"offsetDelta: {batch.offset_delta} timestamp: {batch.timestamp_ms}"
                )
            self._out(line)


def _log_title(path: str, suffix: str) -> str:
    name = PurePath(path).name
    if suffix == file_names.LOG_SUFFIX:
        return f"Log starting offset: {_base_offset(path)}"
    if name == file_names.BOOTSTRAP_CHECKPOINT:
        return "KRaft bootstrap snapshot"
    match = _RAFT_SNAPSHOT_NAME.match(name)
    if match is None:
        raise ValueError("the name is not that of a snapshot: 20 digits, a dash, 10 digits")
    return f"Snapshot end offset: {int(match[1])}, epoch: {int(match[2])}"


def _base_offset(path: str) -> int:
    offset = file_names.offset_of(PurePath(path).name)
    if offset is None:
        raise ValueError("the name does not begin with an offset")
    return offset


def _beside(path: str, suffix: str) -> str:
    return str(PurePath(path).with_suffix(suffix))


def _without_zeros(data: bytes, entry: struct.Struct) -> bytes:
    """Return the entries without the trailing zeros that a crash leaves in a preallocated file; at least one entry."""
    used_bytes = len(data.rstrip(b"\0"))
    return data[: max(-(-used_bytes // entry.size), 1) * entry.size]


def _check_last_offset(data: bytes, base_offset: int) -> None:
    """Raise CorruptIndexError if a broker would rebuild the offset index at its start."""
    delta, _ = offset_index.ENTRY.unpack_from(data, len(data) - offset_index.ENTRY.size)
    if delta < 0:
        raise CorruptIndexError(f"the last offset {base_offset + delta} is below the base offset {base_offset}")


def _check_times(data: bytes, base_offset: int) -> None:
    """Raise CorruptIndexError if a broker would rebuild the time index at its start."""
    if not data:
        return
    first_ms, _ = time_index.ENTRY.unpack_from(data)
    last_ms, delta = time_index.ENTRY.unpack_from(data, len(data) - time_index.ENTRY.size)
    if last_ms < first_ms:
        raise CorruptIndexError(f"the last timestamp {last_ms} is before the first, {first_ms}")
    if delta < 0:
        raise CorruptIndexError(f"the last offset {base_offset + delta} is below the base offset {base_offset}")


def _batches(file: File, position: int, end: int) -> Iterator[RecordBatch]:
    """Yield the whole batches in [position, end), none from a negative position, as a damaged index may have.

    Raises CorruptRecordError for an invalid length.
    """
    while 0 <= position <= end - _HEADER_BYTES:
        length = int.from_bytes(file.pread(4, position + 8), "big", signed=True)
        if length < MIN_MESSAGE_BYTES:
            raise CorruptRecordError(f"a batch with length {length} at position {position}")
        if length > end - position - LOG_OVERHEAD_BYTES:
            return
        batch = batch_at(file.pread(LOG_OVERHEAD_BYTES + length, position))
        yield batch
        position += batch.size_bytes


def _records(batch: RecordBatch) -> Iterator[tuple[Record, LegacyBatch | None]]:
    if isinstance(batch, LegacyBatch):
        yield from batch.messages()
        return
    for record in batch.records():
        yield record, None


def _batch_line(batch: RecordBatch, position: int) -> str:
    if batch.magic == 2:
        head = (
            f"baseOffset: {batch.base_offset} lastOffset: {batch.last_offset} count: {batch.record_count} "
            f"baseSequence: {batch.base_sequence} lastSequence: {batch.last_sequence} "
            f"producerId: {batch.producer_id} producerEpoch: {batch.producer_epoch} "
            f"partitionLeaderEpoch: {batch.partition_leader_epoch} isTransactional: {_bool(batch.is_transactional)} "
            f"isControl: {_bool(batch.is_control)} deleteHorizonMs: {_optional_long(batch.delete_horizon_ms)}"
        )
    else:
        head = f"offset: {batch.last_offset}"
    codec = NAMES[batch.compression] if batch.compression < len(NAMES) else str(batch.compression)
    return (
        f"{head} position: {position} {_TIMESTAMP_TYPES[batch.timestamp_type]}: {batch.max_timestamp} "
        f"size: {batch.size_bytes} magic: {batch.magic} compresscodec: {codec} crc: {batch.crc} "
        f"isvalid: {_bool(batch.has_valid_crc())}"
    )


def _record_text(batch: RecordBatch, record: Record, message: LegacyBatch | None) -> str:
    text = (
        f"| offset: {record.offset} {_TIMESTAMP_TYPES[batch.timestamp_type]}: {record.timestamp_ms} "
        f"keySize: {_size(record.key)} valueSize: {_size(record.value)}"
    )
    if message is not None:
        return f"{text} isValid: {_bool(message.has_valid_crc())} crc: {message.crc}"
    sequence = NO_SEQUENCE
    if batch.base_sequence >= 0:
        sequence = increment_sequence(batch.base_sequence, record.offset - batch.base_offset)
    header_keys = ",".join(name for name, _ in record.headers)
    text += f" sequence: {sequence} headerKeys: [{header_keys}]"
    return f"{text} {control_text(record)}" if batch.is_control else text


def _size(field: bytes | None) -> int:
    return -1 if field is None else len(field)


def _bool(value: bool) -> str:
    return "true" if value else "false"


def _optional_long(value: int | None) -> str:
    return "OptionalLong.empty" if value is None else f"OptionalLong[{value}]"
