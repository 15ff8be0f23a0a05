"""The connection machine: frames out of any chunks, answers in order, nothing allocated from a claimed length."""

import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafkapy.errors import ProtocolError
from kafkapy.protocol.connection import LARGE_REST_BYTES, Connection
from kafkapy.protocol.primitives import Writer
from kafkapy.protocol.serving import ConnectionLimits
from kafkapy.seams import FileRegion
from tests.simulator.bytes_file import BytesFile

LIMITS = ConnectionLimits(max_frame_bytes=1_000_000, unadmitted_frame_bytes=1_000, max_in_flight=4)


def admitted(limits: ConnectionLimits = LIMITS) -> Connection:
    connection = Connection(limits)
    connection.admit()
    return connection


def framed(*bodies: bytes) -> bytes:
    return b"".join(struct.pack(">i", len(body)) + body for body in bodies)


def with_requests(*bodies: bytes) -> Connection:
    """Return a connection whose requests came and were taken; none is answered."""
    connection = admitted()
    connection.feed(framed(*bodies))
    while connection.next_frame():
        pass
    return connection


def writer(body: bytes) -> Writer:
    out = Writer()
    out += body
    return out


def spliced(head: bytes, payload: object, tail: bytes) -> Writer:
    out = writer(head + tail)
    out.splices.append((len(head), payload))
    return out


def push(connection: Connection, data: bytes) -> None:
    """Give bytes as a driver does: the rest of a large frame on its own, else by feed."""
    while data:
        rest_bytes = connection.rest_bytes
        if rest_bytes < LARGE_REST_BYTES:
            connection.feed(data)
            return
        count = min(rest_bytes, len(data))
        room = connection.room()
        if room is None:
            connection.feed_frame(data[:count])
        else:
            room[:count] = data[:count]
            connection.received(count)
        data = data[count:]


def frames(connection: Connection) -> list[bytes]:
    taken = []
    while (frame := connection.next_frame()) is not None:
        taken.append(bytes(frame))
        connection.respond(connection.started_count, None)
    return taken


def drained(connection: Connection) -> bytes:
    """Send everything, regions too, and return the bytes as they would be on the wire."""
    wire = b""
    while connection.output:
        buffers, _, count = connection.gather(lambda _: None)
        if not buffers:
            region = connection.output[0]
            assert isinstance(region, FileRegion)
            buffers, count = [region.read()[connection.head_sent :]], region.length - connection.head_sent
        wire += b"".join(bytes(buffer) for buffer in buffers)
        connection.sent(count)
    return wire


def test_frames_split_at_every_position_come_out_whole():
    bodies = [b"first", b"", b"the third frame"]
    data = framed(*bodies)
    for cut in range(len(data) + 1):
        connection = admitted()
        connection.feed(data[:cut])
        taken = frames(connection)
        connection.feed(data[cut:])
        assert taken + frames(connection) == bodies


@settings(max_examples=60)
@given(
    bodies=st.lists(st.integers(0, 200_000).map(lambda size: bytes([size % 251]) * size), max_size=6),
    cuts=st.lists(st.integers(1, 90_000), min_size=1, max_size=40),
)
def test_any_chunking_yields_the_same_frames(bodies: list[bytes], cuts: list[int]):
    connection = admitted()
    data = framed(*bodies)
    taken = []
    turn = 0
    while data:
        size = cuts[turn % len(cuts)]
        push(connection, data[:size])
        data = data[size:]
        taken += frames(connection)
        turn += 1
    assert taken == bodies
    assert not connection.is_mid_frame


def test_byte_by_byte_yields_the_same_frames():
    connection = admitted()
    taken = []
    for value in framed(b"abc", b"", b"defg"):
        connection.feed(bytes([value]))
        taken += frames(connection)
    assert taken == [b"abc", b"", b"defg"]


@pytest.mark.parametrize("size", [-1, -(2**31), 1_000_001, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused(size: int):
    connection = admitted()
    connection.feed(struct.pack(">i", size) + b"abc")
    with pytest.raises(ProtocolError, match=f"frame size {size} "):
        connection.next_frame()


def test_a_size_at_the_bound_is_taken():
    connection = admitted()
    push(connection, struct.pack(">i", 1_000_000))
    assert connection.next_frame() is None
    assert connection.is_mid_frame


@pytest.mark.parametrize("sent_bytes", [1000, 60_000, 300_000, 3_000_000])
def test_memory_follows_what_arrived_not_what_was_claimed(sent_bytes: int):
    count = 12_000_000 // sent_bytes if sent_bytes > 1000 else 100
    connections = [admitted(ConnectionLimits(max_frame_bytes=100_000_000)) for _ in range(count)]
    tracemalloc.start()
    for connection in connections:
        push(connection, struct.pack(">i", 100_000_000))
        assert connection.next_frame() is None
        for part in range(0, sent_bytes, 50_000):
            push(connection, bytes(min(50_000, sent_bytes - part)))
            assert connection.next_frame() is None
    held, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held < 1.2 * count * sent_bytes + 1000 * count
    assert peak < held + 4 * max(sent_bytes, 50_000)


@pytest.mark.parametrize("size", [200_000, 2_000_000])
def test_a_frame_gets_its_buffer_when_half_of_it_has_come(size: int):
    connection = admitted(ConnectionLimits(max_frame_bytes=100_000_000))
    tracemalloc.start()
    connection.feed(struct.pack(">i", size))
    assert connection.next_frame() is None
    while connection.rest_bytes > size // 2:
        assert connection.room() is None
        connection.feed_frame(b"\1" * 10_000)  # no Produce, which would be joined with what follows it
    held_before, _ = tracemalloc.get_traced_memory()
    room = connection.room()
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert held_before < 0.55 * size
    assert room is not None
    assert len(room) == connection.rest_bytes
    assert held < 1.02 * size


def test_a_frame_is_received_straight_into_its_buffer():
    connection = admitted()
    body = bytes(range(256)) * 1000
    connection.feed(framed(body)[:150_000])
    assert connection.next_frame() is None
    room = connection.room()
    assert room is not None
    room[:] = body[149_996:]
    connection.received(len(room))
    frame = connection.next_frame()
    assert frame is not None
    assert frame == body
    assert room.obj is frame.obj
    assert connection.rest_bytes == 0


def test_the_last_bytes_of_a_buffered_frame_may_come_with_the_next_frame():
    connection = admitted()
    body = bytes(range(256)) * 1000
    connection.feed(framed(body)[:150_000])
    assert connection.next_frame() is None
    room = connection.room()
    assert room is not None
    count = len(room) - 1000
    room[:count] = body[149_996:-1000]
    connection.received(count)
    connection.feed(body[-1000:] + framed(b"next"))
    assert connection.next_frame() == body
    assert connection.next_frame() == b"next"


@pytest.mark.parametrize(
    ("size", "receive_bytes"),
    [(15_000, 65_536), (16_384, 3 * 16_388), (63_000, 63_004), (70_000, 70_004), (500_000, 132 * 1024)],
)
def test_whole_frames_are_received_after_one_that_came_in_parts(size: int, receive_bytes: int):
    connection = admitted()
    connection.feed(framed(bytes(size))[:-1])
    assert connection.next_frame() is None
    assert connection.receive_bytes == receive_bytes
    push(connection, b"0")
    assert connection.next_frame() is not None
    connection.feed(framed(bytes(100))[:50])
    assert connection.next_frame() is None
    assert connection.receive_bytes == 65_536


def test_a_very_large_frame_is_not_held_twice_when_it_is_complete():
    connection = admitted(ConnectionLimits(max_frame_bytes=100_000_000))
    size = 16_000_000
    push(connection, struct.pack(">i", size))
    assert connection.next_frame() is None
    tracemalloc.start()
    for _ in range(size // 100_000):
        push(connection, bytes(100_000))
        frame = connection.next_frame()
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert frame is not None
    assert len(frame) == size
    assert peak < 1.5 * size


def test_each_frame_is_writable_and_its_own():
    connection = admitted()
    connection.feed(framed(b"one", b"two"))
    first, second = connection.next_frame(), connection.next_frame()
    assert first is not None
    assert second is not None
    first[0:3] = b"ONE"
    assert (bytes(first), bytes(second)) == (b"ONE", b"two")


def test_before_admission_frames_are_small_and_go_one_at_a_time():
    connection = Connection(LIMITS)
    connection.feed(framed(b"login", bytes(2_000)))
    assert connection.next_frame() == b"login"
    assert connection.next_frame() is None
    connection.respond(1, None)
    with pytest.raises(ProtocolError, match="frame size 2000"):
        connection.next_frame()


def test_admission_by_a_response_lets_the_next_frame_be_large():
    connection = Connection(LIMITS)
    connection.feed(framed(b"login", bytes(2_000)))
    assert connection.next_frame() == b"login"
    connection.respond(1, writer(b"welcome"))
    connection.admit()
    assert connection.next_frame() == bytes(2_000)


def test_responses_leave_in_the_order_of_requests():
    connection = with_requests(b"1", b"2", b"3")
    connection.respond(3, writer(b"third"))
    connection.respond(2, writer(b"second"))
    assert not connection.output
    connection.respond(1, writer(b"first"))
    assert drained(connection) == framed(b"first", b"second", b"third")


def test_a_request_without_a_response_holds_its_place():
    connection = with_requests(b"1", b"2", b"3")
    connection.respond(3, writer(b"third"))
    connection.respond(2, None)
    connection.respond(1, writer(b"first"))
    assert drained(connection) == framed(b"first", b"third")


def test_in_flight_requests_are_bounded():
    connection = admitted()
    connection.feed(framed(*[b"x"] * 6))
    assert [connection.next_frame() for _ in range(5)] == [b"x"] * 4 + [None]
    connection.respond(2, None)
    assert connection.next_frame() is None, "the first still holds the order"
    connection.respond(1, None)
    assert connection.in_flight_count == 2
    assert connection.next_frame() == b"x"


def test_nothing_starts_while_muted():
    connection = admitted()
    connection.feed(framed(b"x"))
    connection.mute_count += 1
    assert connection.next_frame() is None
    assert not connection.can_start
    connection.mute_count -= 1
    assert connection.next_frame() == b"x"


def test_nothing_starts_while_the_peer_does_not_drain():
    connection = admitted(ConnectionLimits(max_output_bytes=100))
    connection.feed(framed(b"1", b"2"))
    connection.next_frame()
    connection.respond(1, writer(bytes(100)))
    assert connection.next_frame() is None
    connection.sent(5)
    assert connection.next_frame() == b"2"


def test_nothing_starts_while_the_responses_that_wait_for_an_earlier_one_are_too_large():
    connection = admitted(ConnectionLimits(max_output_bytes=100))
    connection.feed(framed(b"1", b"2", b"3"))
    connection.next_frame()
    connection.next_frame()
    connection.respond(2, spliced(bytes(40), bytes(60), b""))
    assert (connection.ready_bytes, connection.can_start, connection.next_frame()) == (100, False, None)
    connection.respond(1, writer(b"first"))
    assert connection.ready_bytes == 0
    assert drained(connection) == framed(b"first", bytes(100))
    assert connection.output_bytes == 0
    assert connection.next_frame() == b"3"


def test_small_responses_are_joined_and_survive_partial_sends():
    connection = with_requests(b"1", b"2", b"3")
    connection.respond(1, writer(b"aaaa"))
    connection.respond(2, writer(b"bbbb"))
    wire = b""
    buffers, more, count = connection.gather(lambda _: None)
    assert (len(buffers), more, count) == (1, False, 16)
    wire += bytes(buffers[0])[:6]
    del buffers
    connection.sent(6)
    connection.respond(3, writer(b"cccc"))
    assert wire + drained(connection) == framed(b"aaaa", b"bbbb", b"cccc")
    assert connection.output_bytes == 0


@pytest.mark.parametrize("step", [1, 3, 7, 1000])
def test_a_region_goes_between_its_neighbours(step: int):
    released = []
    region = FileRegion(BytesFile(b"0123456789"), 2, 5, lambda: released.append(True))
    connection = with_requests(b"1", b"2")
    connection.respond(1, spliced(b"head", region, b"tail"))
    connection.respond(2, writer(b"next"))
    wire = b""
    while connection.output:
        buffers, _, _ = connection.gather(lambda _: None)
        data = b"".join(bytes(buffer) for buffer in buffers) or region.read()[connection.head_sent :]
        assert bool(released) == (b"23456" in wire)
        del buffers
        wire += data[:step]
        connection.sent(len(data[:step]))
    assert wire == framed(b"head23456tail", b"next")
    assert released == [True]


def test_a_small_region_is_read_into_the_same_send():
    released = []
    region = FileRegion(BytesFile(b"0123456789"), 2, 5, lambda: released.append(True))
    connection = admitted()
    connection.feed(framed(b"1"))
    connection.next_frame()
    connection.respond(1, spliced(b"head", region, b"tail"))
    buffers, more, count = connection.gather(FileRegion.read)
    assert b"".join(buffers) == framed(b"head23456tail")
    assert (more, count) == (False, 17)
    assert released == [True]


def test_large_buffers_are_spliced_without_a_copy():
    payload = memoryview(bytes(100_000))
    connection = admitted()
    connection.feed(framed(b"1"))
    connection.next_frame()
    connection.respond(1, spliced(b"head", payload, b"tail"))
    buffers, _, _ = connection.gather(lambda _: None)
    assert any(buffer is payload for buffer in buffers)
    assert drained(connection) == framed(b"head" + bytes(100_000) + b"tail")


def test_an_empty_region_is_released_at_once():
    released = []
    region = FileRegion(BytesFile(b""), 0, 0, lambda: released.append(True))
    connection = admitted()
    connection.feed(framed(b"1"))
    connection.next_frame()
    connection.respond(1, spliced(b"head", region, b"tail"))
    assert released == [True]
    assert drained(connection) == framed(b"headtail")


def test_close_after_sends_that_answer_and_nothing_behind_it():
    released = []
    region = FileRegion(BytesFile(b"zz"), 0, 2, lambda: released.append(True))
    connection = with_requests(b"1", b"2", b"3")
    connection.respond(3, spliced(b"never", region, b"sent"))
    connection.close_after(2)
    connection.respond(2, writer(b"last"))
    assert not connection.is_finished
    connection.respond(1, writer(b"first"))
    assert not connection.is_finished
    assert drained(connection) == framed(b"first", b"last")
    assert connection.is_finished
    assert released == [True]


def test_the_end_of_input_is_finished_once_all_is_answered():
    connection = admitted()
    connection.feed(framed(b"1"))
    connection.next_frame()
    connection.close_after_started()
    assert not connection.is_finished
    connection.respond(1, None)
    assert connection.is_finished


def test_close_returns_every_region_not_sent():
    regions = [FileRegion(BytesFile(b"zz"), 0, 2) for _ in range(2)]
    connection = with_requests(b"1", b"2", b"3")
    connection.respond(1, spliced(b"a", regions[0], b""))
    connection.respond(3, spliced(b"b", regions[1], b""))
    assert connection.close() == regions
    assert not connection.can_start
