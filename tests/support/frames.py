"""Does a request that waits let go of the frame that it came in?"""

import weakref

from kafkapy.protocol.serving import ConnectionInfo, Route


class Frame(bytearray):
    """Can be weakly referenced, and lives as long as a view of it."""


def check_frame_goes(route: Route, request: bytes) -> None:
    """Route a request that has to wait; nothing may refer to its frame then."""
    connection = ConnectionInfo("1", "PLAINTEXT", "PLAINTEXT", "host9", 9)
    frame = Frame(request)
    left = weakref.ref(frame)
    handling = route(connection, memoryview(frame))
    del frame
    assert handling.send(None) is not None, "it waits"
    assert connection.is_frame_free
    assert left() is None
    handling.close()
