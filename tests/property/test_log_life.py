"""Whatever is appended under whatever settings, a consumer reads what a model of the log says.

The model is the list of records that were acknowledged, with the timestamps that the topic's type gives them, and the
offset at which the log starts. What Apache Kafka makes of such batches is recorded in tests/golden.
"""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kafkapy.config.log import LogConfig
from kafkapy.errors import ApiError
from kafkapy.record.batch import Record, RecordBatch
from kafkapy.record.batches import batches
from kafkapy.record.builder import NewRecord
from kafkapy.storage.errors import NeedsWorker
from kafkapy.storage.log.append import AppendResult
from kafkapy.storage.log.local_log import SharedByLogs
from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import offset_for_timestamp
from kafkapy.storage.log.maintenance import delete_old_segments
from kafkapy.storage.log.opening import open_log
from kafkapy.storage.log.reader import FetchIsolation
from kafkapy.storage.recovery.loader import LastStop
from kafkapy.types import TopicPartition
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch

PARTITION = TopicPartition("t", 0)
HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000

KEYS = st.none() | st.binary(max_size=5)
VALUES = st.none() | st.binary(max_size=60) | st.integers(1, 9).map(lambda size: b"0123456789" * 10 * size)
HEADERS = st.lists(st.tuples(st.sampled_from(["a", ""]), st.none() | st.binary(max_size=3)), max_size=2).map(tuple)
AGES = st.sampled_from([0, 0, 0, 1, 50, -60_000, HOUR_MS, 3 * HOUR_MS, -2 * HOUR_MS, None])
RECORDS = st.lists(st.tuples(AGES, KEYS, VALUES, HEADERS), min_size=1, max_size=6)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "compression_type": st.sampled_from(["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"]),
        "compression_gzip_level": st.sampled_from([-1, 1, 9]),
        "compression_lz4_level": st.sampled_from([1, 9, 17]),
        "compression_zstd_level": st.sampled_from([-131072, -1, 3, 22]),
        "message_timestamp_type": st.sampled_from(["CreateTime", "LogAppendTime"]),
        "message_timestamp_before_max_ms": st.sampled_from([2 * HOUR_MS, 9223372036854775807]),
        "message_timestamp_after_max_ms": st.sampled_from([HOUR_MS, 9223372036854775807]),
        "cleanup_policy": st.sampled_from([("delete",), ("compact",), ("compact", "delete"), ()]),
        "max_message_bytes": st.sampled_from([900, 1_048_588, 1_048_588]),
        "segment_bytes": st.sampled_from([3000, 20_000]),
        "segment_ms": st.sampled_from([1000, HOUR_MS]),
        "segment_jitter_ms": st.sampled_from([0, 500]),
        "segment_index_bytes": st.sampled_from([4, 24, 4096]),
        "index_interval_bytes": st.sampled_from([0, 100, 4096]),
        "retention_ms": st.sampled_from([-1, HOUR_MS, 5 * HOUR_MS]),
        "retention_bytes": st.sampled_from([-1, 0, 5000]),
        "preallocate": st.booleans(),
        "file_delete_delay_ms": st.sampled_from([0, 60_000]),
    },
)


SHARES = st.floats(0, 1)
APPEND = st.tuples(st.just("append"), RECORDS, st.integers(0, 4), st.booleans())
STEPS = st.one_of(
    APPEND,
    APPEND,
    APPEND,
    APPEND,
    st.tuples(st.just("change"), CONFIGS),
    st.tuples(st.just("wait"), st.sampled_from([1, 700, HOUR_MS])),
    st.tuples(st.just("delete_records"), SHARES),
    st.tuples(st.just("clean_up")),
    st.tuples(st.just("start_again"), st.booleans()),
    st.tuples(st.just("read_from_anywhere"), SHARES, st.sampled_from([1, 2000, 1 << 20])),
    st.tuples(st.just("search_by_time"), st.integers(START_MS - 4 * HOUR_MS, START_MS + 9 * HOUR_MS)),
)


@dataclass
class Model:
    """What was acknowledged, and from which offset on it is there."""

    records: list[Record] = field(default_factory=list)
    log_start_offset: int = 0

    def take(self, sent: list[NewRecord], first_offset: int, append_time_ms: int) -> None:
        assert first_offset == len(self.records), "offsets rise by one"
        for index, (timestamp_ms, key, value, headers) in enumerate(sent):
            at_ms = append_time_ms if append_time_ms >= 0 else timestamp_ms
            self.records.append(Record(first_offset + index, at_ms, key, value, tuple(headers)))

    def accepts(self, sent: list[NewRecord], config: LogConfig, now_ms: int) -> bool:
        """Whether keys and times are what the topic takes. Sizes are not judged here."""
        if config.is_compacted and any(key is None for _, key, _, _ in sent):
            return False
        if config.message_timestamp_type == "LogAppendTime":
            return True
        earliest_ms = now_ms - config.message_timestamp_before_max_ms
        latest_ms = now_ms + config.message_timestamp_after_max_ms
        return all(at_ms == -1 or earliest_ms <= at_ms <= latest_ms for at_ms, *_ in sent)


class LogLife:
    """One log on a simulated disk; nothing is replicated, so the high watermark is its end."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.disk = SimDisk()
        self.disk.make_directory("/logs")
        self.now_ms = START_MS
        self.config = LogConfig(**{"segment_bytes": 20_000, "segment_index_bytes": 4096, **config})
        self.model = Model()
        self.log = self.open(was_clean_shutdown=True)

    def open(self, *, was_clean_shutdown: bool) -> Log:
        log = open_log(
            self.disk,
            "/logs/t-0",
            PARTITION,
            self.config,
            now_ms=self.now_ms,
            last_stop=LastStop(self.model.log_start_offset, was_clean=was_clean_shutdown),
            shared=SharedByLogs.by_one(self.disk, "/logs/t-0")._replace(jitter=lambda limit: limit // 2),
        )
        log.update_high_watermark(log.log_end_offset)
        return log

    def append(self, drafts: list[Any], codec: int, producer: bool) -> None:
        sent = [(-1 if age is None else self.now_ms - age, *rest) for age, *rest in drafts]
        identity = {"producer_id": 7, "producer_epoch": 0, "base_sequence": self.next_sequence} if producer else {}
        data = bytearray(build_batch(sent, compression=codec, **identity))
        result = self.appended(data)
        if isinstance(result, ApiError):
            max_bytes = max(len(data), len(build_batch(sent)) + 100)  # a codec may make small things larger
            is_too_large = max_bytes > min(self.config.max_message_bytes, self.config.segment_bytes)
            assert (result.code in (10, 18) and is_too_large) or not self.model.accepts(sent, self.config, self.now_ms)
            return
        assert self.model.accepts(sent, self.config, self.now_ms)
        assert len(data) <= self.config.max_message_bytes
        self.model.take(sent, result.first_offset, result.log_append_time_ms)
        self.log.update_high_watermark(self.log.log_end_offset)

    def appended(self, data: bytearray) -> AppendResult | ApiError:
        try:
            try:
                return self.log.append_as_leader(data, leader_epoch=0, now_ms=self.now_ms)
            except NeedsWorker as heavy:
                return self.log.append_checked(heavy.check(), leader_epoch=0, now_ms=self.now_ms)
        except ApiError as error:
            return error

    @property
    def next_sequence(self) -> int:
        producers = {entry.producer_id: entry for entry in self.log.producer_state.producers.values()}
        return producers[7].last_sequence + 1 if 7 in producers else 0

    def change(self, config: dict[str, Any]) -> None:
        self.config = replace(self.config, **config)
        self.log.update_config(self.config)

    def wait(self, duration_ms: int) -> None:
        self.now_ms += duration_ms

    def delete_records(self, share: float) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        offset = start + int((end - start) * share)
        assert self.log.maybe_increment_log_start_offset(offset) == (offset > start)
        self.model.log_start_offset = offset

    def clean_up(self) -> None:
        """Retention may take any run of the oldest segments that it is told to, and nothing else."""
        before = [
            (segment.base_offset, segment.size, segment.largest_timestamp.timestamp_ms) for segment in self.log.segments
        ]
        size_bytes, start = self.log.size_bytes, self.log.log_start_offset
        delete_old_segments(self.log, self.now_ms)
        for path in self.log.local_log.pop_due_files(self.now_ms):
            self.disk.delete(path)
        config, taken = self.config, [each for each in before if each[0] < self.log.segments.first.base_offset]
        for _, segment_bytes, largest_ms in taken:
            size_bytes -= segment_bytes
            is_old = 0 <= config.retention_ms < self.now_ms - largest_ms or largest_ms < 0
            is_over = 0 <= config.retention_bytes <= size_bytes
            is_below = self.log.segments.first.base_offset <= start
            assert is_below or (config.is_deleted_by_retention and (is_old or is_over))
        if taken:
            self.model.log_start_offset = max(start, self.log.segments.first.base_offset)
        assert self.log.log_start_offset == self.model.log_start_offset

    def start_again(self, was_clean_shutdown: bool) -> None:
        """Stop, or be killed: then the machine goes on, and what was written is there."""
        self.log.close() if was_clean_shutdown else self.log.local_log.close_files()
        self.log = self.open(was_clean_shutdown=was_clean_shutdown)

    def read_from_anywhere(self, share: float, max_bytes: int) -> None:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if start == end:
            return
        offset = start + int((end - 1 - start) * share)
        found = read(self.log, offset, max_bytes)
        assert found[0].base_offset <= offset <= found[0].last_offset, "the first batch holds the offset"
        records = [record for batch in found for record in batch.records() if record.offset >= offset]
        assert records == self.model.records[offset : offset + len(records)]

    def search_by_time(self, target_ms: int) -> None:
        """Exact where timestamps do not fall from segment to segment; never a record that is too old."""
        found = offset_for_timestamp(self.log, target_ms, wait=True)
        if found is not None:
            assert found.timestamp_ms >= target_ms
            record = self.model.records[found.offset]
            assert (record.timestamp_ms, record.offset >= self.log.log_start_offset) == (found.timestamp_ms, True)

    def the_log_matches_the_model(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.log_start_offset, len(model.records))
        offset, records = log.log_start_offset, []
        while offset < log.log_end_offset:
            found = read(log, offset, 1 << 20)
            records += [record for batch in found for record in batch.records() if record.offset >= offset]
            offset = found[-1].next_offset
        assert records == model.records[model.log_start_offset :]


def read(log: Log, offset: int, max_bytes: int) -> list[RecordBatch]:
    region = log.read(offset, max_bytes, isolation=FetchIsolation.HIGH_WATERMARK, wait=True).region
    assert region is not None
    data = region.read()
    region.release()
    found = list(batches(data))
    assert found
    assert all(batch.has_valid_crc() for batch in found)
    return found


@settings(max_examples=120, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(CONFIGS, st.lists(STEPS, min_size=20, max_size=50))
def test_consumers_read_what_the_model_says(config: dict[str, Any], steps: list[Any]) -> None:
    life = LogLife(config)
    for name, *arguments in steps:
        getattr(life, name)(*arguments)
        life.the_log_matches_the_model()
