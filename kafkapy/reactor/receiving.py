"""Receives the rest of a large frame: not a byte more, with few calls, and into its own buffer once it has one."""

from typing import Final

from kafkapy.protocol.connection import Connection
from kafkapy.reactor.limits import FRAME_RECEIVE_BYTES, MAX_AWAITED_BYTES, MIN_AWAITED_BYTES
from kafkapy.seams import Channel

ANY_BYTES: Final = 1
"""The argument of Channel.await_bytes if any byte will do."""


def receive_rest(channel: Channel, machine: Connection, rest_bytes: int) -> tuple[int, int]:
    """Receive once for the partial frame, which lacks `rest_bytes`.

    Return (how many bytes were wanted, how many have come): 0 at the end of the stream, -1 if there are none yet.
    """
    room = machine.room()
    if room is not None:
        received = channel.receive_into(room)
        if received:
            machine.received(received)
        return rest_bytes, -1 if received is None else received
    wanted = min(rest_bytes, FRAME_RECEIVE_BYTES)
    data = channel.receive(wanted)
    if data:
        machine.feed_frame(data)
    return wanted, -1 if data is None else len(data)


def bytes_to_await(rest_bytes: int) -> int:
    """Return how many bytes of a frame that lacks `rest_bytes` should arrive before it is received further.

    Equal parts of the rest: the sender of a large frame fills the socket's buffer while a part is received.
    """
    if rest_bytes < MIN_AWAITED_BYTES:
        return ANY_BYTES
    parts = -(-rest_bytes // MAX_AWAITED_BYTES)
    return -(-rest_bytes // parts)
