"""Ciphertext on its way to OpenSSL: whole records, however they arrive."""

import ssl
from random import Random

import pytest

from kafkapy.reactor.tls_records import FED_BYTES, FED_RECORDS, HEADER_BYTES, MAX_RECORD_BYTES, RecordFeed

OVERHEAD = 22


def record(data_bytes: int) -> bytes:
    """A record of TLS 1.3 in its outward form: application data, its content type and the tag."""
    length = data_bytes + OVERHEAD - HEADER_BYTES
    return b"\x17\x03\x03" + length.to_bytes(2, "big") + bytes(length)


def ends_of(sizes: list[int]) -> list[int]:
    ends = [0]
    for size in sizes:
        ends.append(ends[-1] + size + OVERHEAD)
    return ends


@pytest.mark.parametrize("seed", range(20))
def test_what_is_passed_on_ends_with_a_record_unless_that_has_not_arrived(seed: int):
    random = Random(seed)
    sizes = [random.choice([0, 1, 90, 5000, 16_384]) for _ in range(40)]
    stream, ends = b"".join(map(record, sizes)), ends_of(sizes)
    incoming = ssl.MemoryBIO()
    feed = RecordFeed(incoming)
    arrived = passed = 0
    while arrived < len(stream):
        count = random.choice([1, 3, 700, 17_000, 60_000])
        feed.add(stream[arrived : arrived + count])
        arrived = min(arrived + count, len(stream))
        while count := feed.feed():
            assert incoming.read() == stream[passed : passed + count]
            assert count <= FED_BYTES
            passed += count
            if feed.missing_bytes:
                assert passed == arrived
                assert passed + feed.missing_bytes in ends
            else:
                assert passed in ends
        assert arrived - passed < HEADER_BYTES
        assert not feed.has_more
    assert passed == len(stream)


def test_whole_records_that_have_arrived_together_are_passed_on_together():
    stream = record(16_384) * 5
    feed = RecordFeed(ssl.MemoryBIO())
    feed.add(stream)
    assert [feed.feed(), feed.feed(), feed.feed()] == [4 * len(stream) // 5, len(stream) // 5, 0]


@pytest.mark.parametrize("begun_bytes", [0, 7])
def test_few_records_are_passed_on_at_once_however_small(begun_bytes: int):
    """OpenSSL processes all it has until one carries data, and a record that only changes keys has 27 bytes."""
    key_change = record(5)
    feed = RecordFeed(ssl.MemoryBIO())
    if begun_bytes:
        feed.add(key_change[:begun_bytes])
        assert feed.feed() == begun_bytes
    feed.add((key_change * 2000)[begun_bytes:])
    passed = []
    while count := feed.feed():
        passed.append(count)
    assert max(passed) <= FED_RECORDS * len(key_change)
    assert begun_bytes + sum(passed) == 2000 * len(key_change)


@pytest.mark.parametrize("seed", range(20))
def test_no_more_bytes_are_awaited_than_the_data_takes(seed: int):
    """Or a connection would wait for ever."""
    random = Random(seed)
    sizes = [random.choice([1, 3, 90, 5000, 16_384]) for _ in range(40)]
    stream, ends = b"".join(map(record, sizes)), ends_of(sizes)
    feed = RecordFeed(ssl.MemoryBIO())
    arrived = 0
    while arrived < len(stream):
        count = random.choice([1, 3, 700, 17_000, 60_000])
        feed.add(stream[arrived : arrived + count])
        arrived = min(arrived + count, len(stream))
        while feed.feed():
            pass
        whole = max(index for index, end in enumerate(ends) if end <= arrived)
        data_bytes = 0
        for index in range(whole, len(sizes)):
            data_bytes += sizes[index]
            assert 0 < feed.bytes_to_come(data_bytes, OVERHEAD) <= ends[index + 1] - arrived


def test_what_openssl_will_refuse_is_passed_on_at_once():
    incoming = ssl.MemoryBIO()
    feed = RecordFeed(incoming)
    too_long = b"\x17\x03\x03" + (MAX_RECORD_BYTES - HEADER_BYTES + 1).to_bytes(2, "big") + b"and more"
    feed.add(record(100) + too_long)
    assert feed.feed() == 100 + OVERHEAD + len(too_long)
    assert not feed.missing_bytes


def test_what_the_handshake_left_is_taken_back():
    incoming = ssl.MemoryBIO()
    incoming.write(record(10) + record(20)[:7])
    feed = RecordFeed(incoming)
    assert not incoming.pending
    assert feed.feed() == 10 + OVERHEAD
    assert feed.feed() == 7
    assert feed.missing_bytes == 20 + OVERHEAD - 7
