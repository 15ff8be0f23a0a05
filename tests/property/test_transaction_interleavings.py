"""However transactions interleave, and however a replica cuts them into appends, readers stop where the model says.

The model is the list of batches itself. A follower (or a replica that moves) appends several batches at once, in which
transactions open and end; offset 2 of "A opens, A ends, B opens, A opens" is the oldest undecided one whatever the cut.
"""

from itertools import pairwise
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from kafkapy.storage.log.log import Log
from kafkapy.storage.log.lookup import aborted_transactions
from kafkapy.storage.log.reader import FetchIsolation
from tests.simulator.disk import SimDisk
from tests.support.batches import build_batch
from tests.support.logs import NOW_MS, marker, open_small_log

PRODUCERS = (7, 8, 9)
DATA, COMMIT, ABORT, PLAIN = "data", "commit", "abort", "plain"
SMALL_SEGMENT_BYTES, BATCHES_IN_SMALL_SEGMENT = 400, 4


class Step(NamedTuple):
    """A batch of one record. Its offset is its place in the list."""

    producer_id: int
    kind: str


def batch_at(offset: int, step: Step, sequence: int) -> bytes:
    if step.kind in (COMMIT, ABORT):
        control = marker(is_abort=step.kind == ABORT, producer_id=step.producer_id)
        control[:8] = offset.to_bytes(8, "big")
        control[12:16] = bytes(4)
        return bytes(control)
    return build_batch(
        [(NOW_MS + offset, b"k", b"v", ())],
        base_offset=offset,
        leader_epoch=0,
        producer_id=step.producer_id,
        producer_epoch=0,
        base_sequence=sequence,
        is_transactional=step.kind == DATA,
    )


class Transaction(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int | None
    is_abort: bool


def legal(steps: list[Step]) -> list[Step]:
    """Leave out plain batches of producers whose transaction is open: no leader takes them."""
    opened: set[int] = set()
    kept = []
    for step in steps:
        if step.kind == PLAIN and step.producer_id in opened:
            continue
        (opened.add if step.kind == DATA else opened.discard)(step.producer_id)
        kept.append(step)
    return kept


def transactions_of(steps: list[Step]) -> list[Transaction]:
    """Return all transactions by their first offset."""
    found: list[Transaction] = []
    opened: dict[int, int] = {}
    for offset, step in enumerate(steps):
        if step.kind == DATA:
            opened.setdefault(step.producer_id, offset)
        elif step.kind in (COMMIT, ABORT) and step.producer_id in opened:
            first_offset = opened.pop(step.producer_id)
            found.append(Transaction(step.producer_id, first_offset, offset, step.kind == ABORT))
    found += [Transaction(producer_id, first_offset, None, False) for producer_id, first_offset in opened.items()]
    return sorted(found, key=lambda transaction: transaction.first_offset)


def stable_offset(steps: list[Step], end_offset: int, high_watermark: int) -> int:
    """Return where read_committed readers must stop."""
    undecided = [
        transaction.first_offset
        for transaction in transactions_of(steps[:end_offset])
        if transaction.last_offset is None or transaction.last_offset >= high_watermark
    ]
    return min([high_watermark, *undecided])


def append_cut(log: Log, steps: list[Step], start: int, end: int) -> None:
    chunk = bytearray()
    for offset in range(start, end):
        sequence = sum(each.producer_id == steps[offset].producer_id for each in steps[:offset])
        chunk += batch_at(offset, steps[offset], sequence)
    log.append_as_follower(chunk, NOW_MS, leader_epoch=0)


STEPS = st.lists(
    st.builds(Step, st.sampled_from(PRODUCERS), st.sampled_from([DATA, DATA, DATA, COMMIT, ABORT, PLAIN])),
    min_size=1,
    max_size=24,
).map(legal).filter(bool)  # fmt: skip


@given(steps=STEPS, data=st.data())
def test_the_last_stable_offset_is_the_models_however_appends_are_cut(steps: list[Step], data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.sets(st.integers(1, len(steps)), max_size=6)) | {len(steps)})
    log = open_small_log(SimDisk())
    start = 0
    for end in cuts:
        append_cut(log, steps, start, end)
        for high_watermark in sorted(data.draw(st.sets(st.integers(log.high_watermark, end), max_size=2))):
            log.update_high_watermark(high_watermark)
            assert log.last_stable_offset == stable_offset(steps, end, high_watermark)
        start = end
    log.update_high_watermark(len(steps))
    assert log.last_stable_offset == stable_offset(steps, len(steps), len(steps))
    opened = [each for each in transactions_of(steps) if each.last_offset is None]
    if opened:
        last_ms = max(
            NOW_MS + at for at, step in enumerate(steps) if step == Step(opened[0].producer_id, DATA)
        )  # the silence of the oldest open transaction's producer
        late_ms = last_ms + 60_000 + 300_000
        assert not log.producer_state.late_transaction(late_ms, 60_000)
        assert log.producer_state.late_transaction(late_ms + 1, 60_000)


def test_a_producers_next_transaction_in_the_same_append_is_found_when_it_is_aborted_later() -> None:
    """The entry of the first abort must not say that all before offset 3 was decided: the second one began at 2."""
    a_then_b = [Step(7, DATA), Step(7, ABORT), Step(7, DATA), Step(8, DATA), Step(8, ABORT)]
    steps = [*a_then_b, Step(7, ABORT)]
    log = open_small_log(SimDisk())
    append_cut(log, steps, 0, len(a_then_b))
    append_cut(log, steps, len(a_then_b), len(steps))
    assert [tuple(entry)[:2] for entry in aborted_transactions(log, 0, 3)] == [(7, 0), (7, 2)]
    assert [tuple(entry)[:2] for entry in aborted_transactions(log, 2, 3)] == [(7, 2)]


@given(steps=STEPS, data=st.data())
def test_committed_readers_get_the_models_aborts_however_appends_are_cut(
    steps: list[Step], data: st.DataObject
) -> None:
    segment_bytes = data.draw(st.sampled_from([1 << 20, SMALL_SEGMENT_BYTES]))
    cuts = data.draw(st.sets(st.integers(1, len(steps)), max_size=4)) | {len(steps)}
    if segment_bytes == SMALL_SEGMENT_BYTES:
        cuts |= set(range(BATCHES_IN_SMALL_SEGMENT, len(steps), BATCHES_IN_SMALL_SEGMENT))
    log = open_small_log(SimDisk(), segment_bytes=segment_bytes)
    for start, end in pairwise([0, *sorted(cuts)]):
        append_cut(log, steps, start, end)
    log.update_high_watermark(len(steps))
    aborted = [each for each in transactions_of(steps) if each.is_abort]
    for start in range(len(steps)):
        for end in range(start + 1, len(steps) + 1):
            reported = {(entry.producer_id, entry.first_offset) for entry in aborted_transactions(log, start, end)}
            wanted = {
                (each.producer_id, each.first_offset)
                for each in aborted
                if each.last_offset is not None and each.last_offset >= start and each.first_offset < end
            }
            if end <= log.last_stable_offset:
                assert reported == wanted
    read = log.read(0, 1 << 20, isolation=FetchIsolation.TXN_COMMITTED)
    assert read.last_stable_offset == log.last_stable_offset
    if read.region is not None:
        read.region.release()
