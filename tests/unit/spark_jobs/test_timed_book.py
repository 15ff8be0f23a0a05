"""A book tells itself as each second begins, by messages or by the watermark, and is forgotten in silence."""

from spark_jobs.depth import UNITS, Delta, Snapshot
from spark_jobs.timed_book import BookSecond, TimedBook

FORGET_MS = 5_000


def snapshot(update_id: int) -> Snapshot:
    return Snapshot("S", None, update_id, [(100 * UNITS, UNITS)], [(101 * UNITS, UNITS)])


def delta(update_id: int, time_ms: int) -> Delta:
    return Delta("S", time_ms, update_id, update_id, None, [(99 * UNITS, update_id * UNITS)], [])


def told(seconds: list[BookSecond]) -> list[tuple[int, int]]:
    return [(second.time_ms, second.update_id) for second in seconds]


def started(update_id: int = 10, time_ms: int = 1_500) -> TimedBook:
    book = TimedBook(FORGET_MS)
    assert book.step(snapshot(update_id), time_ms)[0] == []
    return book


def test_a_message_begins_the_seconds_up_to_its_own_with_the_book_before_it() -> None:
    book = started()
    assert told(book.step(delta(11, 1_999), 1_999)[0]) == []
    assert told(book.step(delta(12, 4_000), 4_000)[0]) == [(2_000, 11), (3_000, 11), (4_000, 11)]
    assert told(book.step(delta(13, 4_001), 4_001)[0]) == []
    assert told(book.step(delta(14, 5_001), 5_001)[0]) == [(5_000, 13)]


def test_a_late_message_changes_the_book_and_no_second() -> None:
    book = started(time_ms=3_500)
    assert told(book.step(delta(11, 1_000), 1_000)[0]) == []
    assert told(book.step(delta(12, 4_000), 4_000)[0]) == [(4_000, 11)]


def test_the_watermark_tells_the_seconds_of_a_silent_symbol_once() -> None:
    book = started()
    assert told(book.advance(3_200)) == [(2_000, 10), (3_000, 10)]
    assert told(book.advance(3_900)) == []
    assert told(book.step(delta(11, 4_500), 4_500)[0]) == [(4_000, 10)]


def test_a_silent_symbol_is_forgotten_and_waits_for_a_snapshot() -> None:
    book = started()
    assert told(book.advance(60_000)) == [(second, 10) for second in range(2_000, 6_501, 1_000)]
    assert book.is_forgotten()
    _, (row,) = book.step(delta(11, 60_500), 60_500)
    assert row.status == "waiting"
    assert told(book.step(snapshot(10), 61_200)[0]) == []
    assert told(book.step(delta(12, 62_000), 62_000)[0]) == [(62_000, 11)]


def test_a_message_after_the_silence_finds_what_the_watermark_would_have_left() -> None:
    by_message, by_watermark = started(), started()
    by_watermark.advance(60_000)
    assert told(by_message.step(delta(11, 60_500), 60_500)[0]) == [(n, 10) for n in range(2_000, 6_501, 1_000)]
    by_watermark.step(delta(11, 60_500), 60_500)
    assert by_message.to_json() == by_watermark.to_json()


def test_a_void_book_tells_nothing_and_a_message_without_a_time_begins_nothing() -> None:
    book = TimedBook(FORGET_MS)
    assert told(book.step(delta(11, 1_000), 1_000)[0]) == []
    assert told(book.step(delta(12, 3_000), 3_000)[0]) == []
    assert told(book.step(snapshot(12), None)[0]) == []
    assert told(book.advance(4_000)) == [(4_000, 12)]


def test_a_state_is_read_as_it_was_written() -> None:
    book = started()
    book.step(delta(12, 2_500), 2_500)
    again = TimedBook.from_json(book.to_json(), FORGET_MS)
    assert again.to_json() == book.to_json()
    assert told(again.advance(4_000)) == told(book.advance(4_000)) == []
