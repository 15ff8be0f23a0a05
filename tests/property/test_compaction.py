"""Whatever is written to a compacted log, cleaning it again and again loses nothing that a consumer is owed.

A log is written from a drawn script: batches of one or several records, idempotent and transactional producers, aborts,
tombstones, records without a key, all codecs, rolls and passes in between, with a small or an ample offset map.
"""

from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.record.batch import Record
from kafkapy.record.validate import AppendOrigin
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.disk import SimDisk
from tests.support.cleaning import NOW_MS, CompactedLogs, append, consume, last_values, stored_batches
from tests.support.logs import marker

KEYS = st.sampled_from(["a", "b", "c", "d", "long" * 30])
RECORDS = st.lists(st.tuples(KEYS, st.one_of(st.none(), st.text("xyz", max_size=40))), min_size=1, max_size=6)
PRODUCERS = (None, 1, 2, 3)
STEPS = st.one_of(
    st.tuples(st.just("append"), RECORDS, st.sampled_from(PRODUCERS), st.integers(0, 4)),
    st.tuples(st.just("transaction"), RECORDS, st.sampled_from((11, 12)), st.booleans()),
    st.tuples(st.just("interleaved"), RECORDS, st.booleans(), st.booleans()),
    st.tuples(st.just("roll")),
    st.tuples(st.just("clean"), st.sampled_from((24 * 3, 1 << 16))),
    st.tuples(st.just("wait"), st.sampled_from((400, 5000))),
)


@dataclass
class Model:
    """A log, and what was written to it."""

    logs: CompactedLogs
    now_ms: int = NOW_MS
    sequences: dict[int, int] = field(default_factory=dict)
    written: dict[int, tuple[str | None, str | None]] = field(default_factory=dict)
    committed: dict[str, tuple[int, str | None]] = field(default_factory=dict)
    """By key: the last committed offset and value."""

    def write(self, records: list[tuple[str, str | None]], producer_id: int | None, **fields: Any) -> int:
        if producer_id is not None:
            fields |= {
                "producer_id": producer_id,
                "producer_epoch": 0,
                "base_sequence": self.sequences.get(producer_id, 0),
            }
            self.sequences[producer_id] = fields["base_sequence"] + len(records)
        first = append(self.logs.log, *records, now_ms=self.now_ms, **fields)
        self.written |= {first + index: record for index, record in enumerate(records)}
        return first

    def commit(self, first_offset: int, records: list[tuple[str, str | None]]) -> None:
        for offset, (key, value) in enumerate(records, first_offset):
            if offset >= self.committed.get(key, (-1, None))[0]:
                self.committed[key] = (offset, value)

    def end(self, producer_id: int, *, is_abort: bool) -> None:
        data = marker(is_abort=is_abort, producer_id=producer_id)
        log = self.logs.log
        log.append_as_leader(data, leader_epoch=0, now_ms=self.now_ms, origin=AppendOrigin.COORDINATOR)
        log.update_high_watermark(log.log_end_offset)

    def step(self, name: str, *arguments: Any) -> None:
        getattr(self, name)(*arguments)

    def append(self, records: list[tuple[str, str | None]], producer_id: int | None, codec: int) -> None:
        self.commit(self.write(records, producer_id, compression=codec), records)

    def transaction(self, records: list[tuple[str, str | None]], producer_id: int, is_abort: bool) -> None:
        first = self.write(records, producer_id, is_transactional=True)
        self.end(producer_id, is_abort=is_abort)
        if not is_abort:
            self.commit(first, records)

    def interleaved(self, records: list[tuple[str, str | None]], first_aborts: bool, second_aborts: bool) -> None:
        """Two transactions that overlap; a segment may end between their markers."""
        starts = [self.write(records, producer_id, is_transactional=True) for producer_id in (11, 12)]
        self.end(11, is_abort=first_aborts)
        self.logs.log.roll(self.now_ms)
        self.end(12, is_abort=second_aborts)
        for start, is_aborted in zip(starts, (first_aborts, second_aborts), strict=True):
            if not is_aborted:
                self.commit(start, records)

    def roll(self) -> None:
        self.logs.roll_and_flush(self.now_ms)

    def clean(self, buffer_bytes: int) -> None:
        self.roll()
        while self.logs.clean(self.now_ms, log_cleaner_dedupe_buffer_size=buffer_bytes) is not None:
            self.check()

    def wait(self, milliseconds: int) -> None:
        self.now_ms += milliseconds

    def check(self) -> None:
        log = self.logs.log
        committed = consume(log, FetchIsolation.TXN_COMMITTED)
        self._check_records(committed)
        self._check_records(consume(log))
        wanted = {key.encode(): value.encode() for key, (_, value) in self.committed.items() if value is not None}
        assert last_values(committed) == wanted
        offsets = [(batch.base_offset, batch.last_offset) for batch in stored_batches(log)]
        assert all(last < base for (_, last), (base, _) in pairwise(offsets))
        assert all(batch.has_valid_crc() for batch in stored_batches(log))

    def _check_records(self, records: list[Record]) -> None:
        offsets = [record.offset for record in records]
        assert offsets == sorted(set(offsets))
        for record in records:
            key, value = self.written[record.offset]
            assert (record.key, record.value) == (_encoded(key), _encoded(value))


def _encoded(text: str | None) -> bytes | None:
    return text.encode() if text is not None else None


@settings(max_examples=150)
@given(st.lists(STEPS, min_size=1, max_size=25))
def test_a_compacted_log_has_the_same_last_values_as_before(steps: list[tuple[Any, ...]]) -> None:
    model = Model(CompactedLogs(SimDisk(), segment_bytes=1200))
    for step in steps:
        model.step(*step)
    model.clean(1 << 16)
    model.check()


@settings(max_examples=60)
@given(st.lists(STEPS, min_size=1, max_size=25))
def test_after_every_horizon_only_the_last_values_are_left(steps: list[tuple[Any, ...]]) -> None:
    model = Model(CompactedLogs(SimDisk(), segment_bytes=1200))
    for step in steps:
        model.step(*step)
    for number in range(4):
        model.wait(5000)
        model.append([("filler", str(number))], None, 0)
        model.clean(1 << 16)
    log = model.logs.log
    wanted = {key.encode(): value.encode() for key, (_, value) in model.committed.items() if value is not None}
    assert {record.key: record.value for record in consume(log)} == wanted
    assert len(consume(log)) == len(wanted)


@settings(max_examples=40)
@given(st.lists(STEPS, min_size=1, max_size=20))
def test_a_compacted_log_is_recovered_as_it_was(steps: list[tuple[Any, ...]]) -> None:
    model = Model(CompactedLogs(SimDisk(), segment_bytes=1200))
    for step in steps:
        model.step(*step)
    model.clean(1 << 16)
    producers = _producers(model)
    end_offset = model.logs.log.log_end_offset
    for name in model.logs.disk.list_directory("/logs/t-0"):
        if name.endswith((".snapshot", "index")):
            model.logs.disk.delete(f"/logs/t-0/{name}")
    model.logs.disk.crash("all")
    model.logs.start()
    log = model.logs.log
    log.update_high_watermark(log.log_end_offset)
    assert log.log_end_offset == end_offset
    assert _producers(model) == producers
    model.check()


def _producers(model: Model) -> dict[int, tuple[int, int]]:
    entries = model.logs.log.producer_state.producers.values()
    return {entry.producer_id: (entry.producer_epoch, entry.last_sequence) for entry in entries}
