"""Requests served together on a connection: their responses keep their place among those of the others."""

from typing import Any

import pytest

from kafkapy.protocol.connection import LARGE_REST_BYTES, Connection
from kafkapy.protocol.partial_frame import LONE_FRAMES, MAX_COALESCED_FRAME_BYTES, MAX_JOINED_FRAME_BYTES
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionLimits, Served

PRODUCE = b"\0\0\0\2\0\0"
"""A frame that is of no more than a Produce's key."""
OTHER = b"\0\0\0\2\0\3"


def machine(data: bytes, **limits: int) -> Connection:
    made = Connection(ConnectionLimits(**limits))
    made.admit()
    made.feed(data)
    return made


def response_of(text: bytes) -> Writer:
    out = Writer()
    out += text
    return out


def out_of(made: Connection) -> bytes:
    return b"".join(bytes(each) for each in made.output)  # type: ignore[arg-type]


def served(count: int, position: int, responses: bytes | None) -> Served:
    return Served(count, position + count * len(PRODUCE), responses, None)


def start(made: Connection) -> int:
    assert made.next_frame() is not None
    return made.started_count


def test_responses_that_are_there_at_once_leave_at_once() -> None:
    made = machine(PRODUCE * 3)
    found = made.requests_at_hand()
    assert found is not None
    assert made.pop_served(served(3, found[1], b"123")) == 1
    assert out_of(made) == b"123"
    assert made.in_flight_count == 0


def test_responses_wait_for_that_of_an_earlier_request() -> None:
    made = machine(OTHER + PRODUCE * 2)
    first = start(made)
    found = made.requests_at_hand()
    assert found is not None
    made.pop_served(served(2, found[1], b"23"))
    assert out_of(made) == b""
    made.respond(first, response_of(b"1"))
    assert out_of(made) == b"\0\0\0\0011" + b"23"
    assert made.in_flight_count == 0


def test_a_later_response_waits_for_those_that_come_together() -> None:
    made = machine(PRODUCE * 2 + OTHER + PRODUCE)
    found: Any = made.requests_at_hand()
    first = made.pop_served(served(2, found[1], None))
    last = start(made)
    made.respond(last, response_of(b"3"))
    found = made.requests_at_hand()
    made.pop_served(served(1, found[1], b"4"))
    assert out_of(made) == b""
    assert made.in_flight_count == 4
    made.respond_together(first, 2, b"12")
    assert out_of(made) == b"12" + b"\0\0\0\0013" + b"4"
    assert made.in_flight_count == 0


def test_no_more_may_start_than_may_be_in_flight() -> None:
    made = machine(OTHER + PRODUCE * 8, max_in_flight=3)
    start(made)
    found: Any = made.requests_at_hand()
    assert found[2] == 2
    made.pop_served(served(2, found[1], None))
    assert made.requests_at_hand() is None


def test_what_comes_after_the_last_response_of_a_connection_is_dropped() -> None:
    made = machine(OTHER + PRODUCE)
    first = start(made)
    found: Any = made.requests_at_hand()
    together = made.pop_served(served(1, found[1], None))
    made.close_after(first)
    made.respond(first, response_of(b"1"))
    made.respond_together(together, 1, b"2")
    assert out_of(made) == b"\0\0\0\0011"


def test_a_close_forgets_them() -> None:
    made = machine(OTHER + PRODUCE)
    start(made)
    found: Any = made.requests_at_hand()
    made.pop_served(served(1, found[1], b"2"))
    assert made.close() == []


def frame_of(api_key: int, size: int) -> bytes:
    return size.to_bytes(4, "big") + api_key.to_bytes(2, "big") + bytes(size - 2)


LARGE = frame_of(0, MAX_COALESCED_FRAME_BYTES)


@pytest.mark.parametrize("cut", [6, 2000, len(LARGE) - 1])
@pytest.mark.parametrize("following", [b"", PRODUCE, PRODUCE[:3]])
def test_a_produce_that_came_in_parts_is_at_hand_with_what_follows_it(cut: int, following: bytes) -> None:
    made = machine(LARGE[:cut])
    assert made.next_frame() is None
    assert made.is_mid_frame
    assert made.rest_bytes == len(LARGE) - cut
    if made.rest_bytes >= LARGE_REST_BYTES:
        assert made.room() is None
        made.feed_frame(LARGE[cut:])
        following = b""
    else:
        made.feed(LARGE[cut:] + following)
    assert not made.is_mid_frame
    assert made.requests_at_hand() == (LARGE + following, 0, 64)


@pytest.mark.parametrize("frame", [frame_of(0, MAX_JOINED_FRAME_BYTES + 1), frame_of(1, 3000)])
def test_what_is_not_served_together_is_not_copied_for_it(frame: bytes) -> None:
    made = machine(frame[:100])
    assert made.next_frame() is None
    made.feed(frame[100:] + PRODUCE)
    assert made.requests_at_hand() is None
    assert made.next_frame() == frame[4:]
    assert made.requests_at_hand() is not None


WIDE = frame_of(0, MAX_COALESCED_FRAME_BYTES + 1)


def begin(made: Connection, frame: bytes) -> bool:
    """Receive most of a frame, then the rest; return whether it was joined, to be served with others."""
    half = 2 * len(frame) // 3
    made.feed(frame[:half])
    assert made.next_frame() is None
    room = made.room()
    if room is None:
        made.feed_frame(frame[half:])
        return True
    room[:] = frame[half:]
    made.received(len(room))
    return False


def test_large_frames_are_joined_as_long_as_they_are_served_so() -> None:
    made = machine(b"")
    for _ in range(3):
        assert begin(made, WIDE)
        assert made.requests_at_hand() == (WIDE, 0, 64 - made.in_flight_count)
        made.pop_served(served(1, len(WIDE), b"r"))
    for _ in range(2):
        assert begin(made, WIDE)
        assert made.next_frame() == WIDE[4:]
        for _ in range(LONE_FRAMES):
            assert not begin(made, WIDE)
            assert made.requests_at_hand() is None
            assert made.next_frame() == WIDE[4:]


@pytest.mark.parametrize("cut", [0, len(LARGE) - 1000])
def test_a_request_that_has_started_is_not_kept_for_the_first_bytes_of_the_next(cut: int) -> None:
    made = machine(LARGE[:cut])
    assert made.next_frame() is None
    made.feed(LARGE[cut:] + PRODUCE[:3])
    start(made)
    assert made.next_frame() is None
    assert made.input == PRODUCE[:3]
    made.feed(PRODUCE[3:])
    assert made.requests_at_hand() == (PRODUCE, 0, 63)


def test_a_request_that_has_started_is_not_kept_for_those_that_may_not() -> None:
    made = machine(LARGE + PRODUCE * 2, max_in_flight=1)
    assert made.requests_at_hand() is not None
    first = made.pop_served(Served(1, len(LARGE), None))
    assert made.next_frame() is None
    assert made.input == PRODUCE * 2
    made.respond_together(first, 1, b"1")
    assert made.requests_at_hand() == (PRODUCE * 2, 0, 1)
