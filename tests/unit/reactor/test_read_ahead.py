"""Who reads a cold file from front to back waits once; what comes next is read while it sends what it has."""

import errno
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from kafkapy.reactor.limits import (
    FIRST_WARM_BYTES,
    READ_AHEAD_BYTES,
    READ_AHEAD_CALLS,
    READ_AHEAD_ENOUGH_BYTES,
    READ_AHEAD_READERS,
    READ_AHEAD_STREAMS,
)
from kafkapy.reactor.read_ahead import ReadAhead
from tests.simulator.bytes_file import BytesFile

MIB = 1 << 20
SIZE = 40 * MIB


class Pool:
    """seams.IoPool that works when it is told to."""

    def __init__(self) -> None:
        self.calls: deque[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = deque()

    def submit(self, call: Callable[[], Any], on_done: Callable[[Any, BaseException | None], None]) -> None:
        self.calls.append((call, on_done))

    def run_one(self) -> None:
        call, on_done = self.calls.popleft()
        try:
            result, error = call(), None
        except OSError as raised:
            result, error = None, raised
        on_done(result, error)

    def resize(self, worker_count: int) -> None: ...

    def close(self) -> None: ...


class Outcome:
    """What a waiting reader was told."""

    def __init__(self) -> None:
        self.responses: list[tuple[int, BaseException | None]] = []

    def __call__(self, warm_end: int, error: BaseException | None) -> None:
        self.responses.append((warm_end, error))


@pytest.fixture
def pool() -> Pool:
    return Pool()


@pytest.fixture
def ahead(pool: Pool) -> ReadAhead:
    return ReadAhead(pool)


def cold_file(size: int = SIZE) -> BytesFile:
    return BytesFile(bytes(size), is_cold=True)


def read_to_the_end(ahead: ReadAhead, pool: Pool, file: BytesFile) -> int:
    """Send a file MiB by MiB, a worker doing one call meanwhile; return how often the reader waits."""
    position = waited = 0
    while position < file.size():
        end = ahead.warm_end(file, position, min(position + MIB, file.size()))
        if end > position:
            position = end
        else:
            waited += 1
            ahead.wait(file, position, Outcome())
        if pool.calls:
            pool.run_one()
    return waited


def test_a_sequential_reader_waits_once(ahead: ReadAhead, pool: Pool) -> None:
    assert read_to_the_end(ahead, pool, cold_file()) == 1


def test_a_file_that_is_cached_costs_no_worker(ahead: ReadAhead, pool: Pool) -> None:
    assert ahead.warm_end(BytesFile(bytes(MIB)), 0, MIB) == MIB
    assert not pool.calls


def test_a_cold_file_is_sent_of_nothing(ahead: ReadAhead, pool: Pool) -> None:
    assert ahead.warm_end(cold_file(), 5, MIB) == 5
    assert not pool.calls


def test_a_reader_is_notified_of_the_first_bytes(ahead: ReadAhead, pool: Pool) -> None:
    file, outcome = cold_file(), Outcome()
    ahead.wait(file, 100, outcome)
    pool.run_one()
    assert outcome.responses == [(100 + FIRST_WARM_BYTES, None)]
    assert ahead.warm_end(file, 100, 100 + FIRST_WARM_BYTES) == 100 + FIRST_WARM_BYTES


def test_at_most_two_steps_are_read_ahead_of_a_reader_that_stands_still(ahead: ReadAhead, pool: Pool) -> None:
    file = cold_file()
    ahead.wait(file, 0, Outcome())
    for _ in range(100):
        if pool.calls:
            pool.run_one()
        ahead.warm_end(file, 0, 1000)
    assert SIZE - len(file.cold_pages) * 4096 <= FIRST_WARM_BYTES + READ_AHEAD_BYTES


def test_two_readers_of_one_place_wait_for_one_call(ahead: ReadAhead, pool: Pool) -> None:
    file, first, second = cold_file(), Outcome(), Outcome()
    ahead.wait(file, 0, first)
    ahead.wait(file, 1000, second)
    pool.run_one()
    assert first.responses == second.responses == [(FIRST_WARM_BYTES, None)]
    assert not pool.calls


def test_a_reader_elsewhere_in_the_file_begins_anew(ahead: ReadAhead, pool: Pool) -> None:
    file, first, second = cold_file(), Outcome(), Outcome()
    ahead.wait(file, 0, first)
    ahead.wait(file, 20 * MIB, second)
    pool.run_one()
    pool.run_one()
    assert first.responses == [(FIRST_WARM_BYTES, None)]
    assert second.responses == [(20 * MIB + FIRST_WARM_BYTES, None)]


@pytest.mark.parametrize("reader_count", [2, READ_AHEAD_READERS])
def test_readers_at_different_places_of_a_file_each_wait_once(ahead: ReadAhead, pool: Pool, reader_count: int) -> None:
    part = 16 * MIB
    file = cold_file(part * reader_count)
    positions = [part * number for number in range(reader_count)]
    waited = 0
    for _ in range(2 * (part // MIB - 1)):  # the last MiB is what the next reader has had read
        for number, position in enumerate(positions):
            end = ahead.warm_end(file, position, min(position + MIB, part * (number + 1)))
            if end == position < part * (number + 1) - MIB:
                waited += 1
                ahead.wait(file, position, Outcome())
            positions[number] = end
        while pool.calls:
            pool.run_one()
    assert waited == reader_count
    assert all(position >= part * (number + 1) - MIB for number, position in enumerate(positions))


def test_one_reader_too_many_ends_the_oldest_stream_of_the_file(ahead: ReadAhead, pool: Pool) -> None:
    file = cold_file()
    for number in range(READ_AHEAD_READERS + 1):
        ahead.wait(file, 8 * MIB * number, Outcome())
        pool.run_one()
    ahead.warm_end(file, 0, MIB)
    assert not pool.calls
    ahead.warm_end(file, 8 * MIB, 9 * MIB)
    assert len(pool.calls) == 1


def test_pages_that_were_evicted_are_read_again(ahead: ReadAhead, pool: Pool) -> None:
    file, outcome = cold_file(), Outcome()
    ahead.wait(file, 0, Outcome())
    pool.run_one()
    file.cold_pages.update(range(SIZE // 4096))
    assert ahead.warm_end(file, 0, MIB) == 0
    pool.calls.clear()  # what is ahead
    ahead.wait(file, 0, outcome)
    pool.run_one()
    assert outcome.responses == [(FIRST_WARM_BYTES, None)]


def test_a_file_that_ends_before_its_region_says_so(ahead: ReadAhead, pool: Pool) -> None:
    file, outcome = cold_file(1000), Outcome()
    ahead.wait(file, 1000, outcome)
    pool.run_one()
    assert isinstance(outcome.responses[0][1], EOFError)


def test_a_failing_disk_fails_the_waiting_requests_and_the_next_one_tries_again(ahead: ReadAhead, pool: Pool) -> None:
    errors = deque([OSError(errno.EIO, "disk"), None])

    def fail() -> None:
        error = errors.popleft()
        if error is not None:
            raise error

    file = BytesFile(bytes(MIB), is_cold=True, on_cold_read=fail)
    first, second = Outcome(), Outcome()
    ahead.wait(file, 0, first)
    pool.run_one()
    file.cold_pages.update(range(MIB // 4096))
    ahead.wait(file, 0, second)
    pool.run_one()
    assert isinstance(first.responses[0][1], OSError)
    assert second.responses == [(MIB, None)]


def test_few_workers_read_ahead_and_one_more_for_who_waits(ahead: ReadAhead, pool: Pool) -> None:
    files = [cold_file(8 * MIB) for _ in range(READ_AHEAD_CALLS + 3)]
    for file in files:
        ahead.wait(file, 0, Outcome())
    for _ in files:
        pool.run_one()
    for file in files:
        ahead.warm_end(file, 0, MIB)
    assert len(pool.calls) == READ_AHEAD_CALLS
    ahead.wait(files[-1], FIRST_WARM_BYTES, Outcome())
    assert len(pool.calls) == READ_AHEAD_CALLS + 1


def test_of_too_many_streams_the_oldest_is_forgotten(ahead: ReadAhead, pool: Pool) -> None:
    files = [cold_file(2 * MIB) for _ in range(READ_AHEAD_STREAMS + 1)]
    for file in files:
        ahead.wait(file, 0, Outcome())
        pool.run_one()
    ahead.warm_end(files[0], 0, MIB)
    assert not pool.calls
    ahead.warm_end(files[1], 0, MIB)
    assert len(pool.calls) == 1


def test_nobody_reads_on_in_a_file_that_turns_out_to_be_cached(ahead: ReadAhead, pool: Pool) -> None:
    file = BytesFile(bytes(8 * MIB + READ_AHEAD_ENOUGH_BYTES + READ_AHEAD_BYTES), is_cold=True)
    ahead.wait(file, 0, Outcome())
    pool.run_one()
    file.cold_pages.clear()
    position = calls = 0
    while position < file.size():
        position = ahead.warm_end(file, position, min(position + MIB, file.size()))
        if pool.calls:
            pool.run_one()
            calls += 1
    assert calls == READ_AHEAD_ENOUGH_BYTES // READ_AHEAD_BYTES
