"""Receiving the rest of a large frame: only its bytes, into its own buffer once it has one."""

from kafkapy.protocol.connection import Connection
from kafkapy.reactor.limits import FRAME_RECEIVE_BYTES
from kafkapy.seams import Channel


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
