"""The limits of the reactor: Kafka's configuration keys, and constants with their reasons."""

from collections.abc import Mapping
from dataclasses import field

from kafkapy.dataclass import dataclass
from kafkapy.protocol.serving import ConnectionLimits
from kafkapy.types import INT32_MAX

UNLIMITED = INT32_MAX

DEFAULT_QUEUED_BYTES = 256 * 1024 * 1024
"""The meaning of queued.max.request.bytes = -1. Deviation: Apache Kafka takes it as unlimited. Here it is this, because
the memory could be exhausted."""

FRAMES_PER_TURN = 32
"""Requests of one connection started in one turn: about a millisecond of work."""

BYTES_PER_TURN = 1024 * 1024
"""Bytes received from, and sent to, one connection in one turn: about half a millisecond of copying."""

PASS_SECONDS = 0.05
"""Turns of connections take so long of one pass of the loop; the others have theirs in the next passes."""

CLOSED_PER_PASS = 100
"""Connections of a removed listener that are closed in one pass of the loop: some milliseconds of work."""

ACCEPT_SECONDS = 0.002
"""While connections are being opened, they are accepted this often during a pass, too. The listen queue has room for
socket.listen.backlog.size of them, 50 unless set, and a client that finds no room tries again after a second."""

FRAME_RECEIVE_BYTES = 128 * 1024
"""The size of one receive call for a large frame that has no buffer yet: a socket seldom holds more, and it fits a
core's cache."""

MIN_AWAITED_BYTES = 4 * 1024
"""If fewer bytes of a frame are missing, they are received as they arrive."""

MAX_AWAITED_BYTES = 48 * 1024
"""At least this much of a frame is received as soon as it has arrived. Half of socket.receive.buffer.bytes: the sender
goes on meanwhile. A busy client on the same machine, or one that sends a TLS record at a time, would otherwise wake the
loop for each few KiB, which costs more than receiving them."""

PEEK_BYTES = 4 * 1024
"""The size of one receive call between two frames while the request memory is nearly full."""

SENDFILE_FROM_BYTES = 64 * 1024
"""From this region size on sendfile is cheaper than one pread and one send. Measured on loopback, us of CPU for pread
and send, and for sendfile, without probing for cold pages: 32 KiB 7.1 and 7.1, 64 KiB 10.6 and 10.3, 128 KiB 19.8 and
15.5, 1 MiB 111 and 91."""

SENDFILE_BYTES = 512 * 1024
"""The size of one sendfile call: more than a socket accepts at once."""

PROBE_STRIDE_BYTES = 256 * 1024
"""Distance between the bytes that are probed to see whether a region is in the page cache. A smaller uncached gap is
rare, and costs the loop one read from the disk."""

PROBED_BYTES = 1024 * 1024
"""How much of a region is probed at once for being in the page cache."""

FIRST_WARM_BYTES = 1024 * 1024
"""Bytes read from the disk for a waiting reader without a read-ahead stream: few, so that it waits only shortly."""

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""Bytes read at once ahead of a sequential reader, whenever fewer than this are cached ahead of it."""

READ_AHEAD_ENOUGH_BYTES = 32 * 1024 * 1024
"""Read-ahead of a stream ends after so many bytes that were already cached: more than the kernel's own read-ahead."""

READ_AHEAD_CALLS = 4
"""How many workers read ahead at a time; the others remain for readers that wait."""

READ_AHEAD_STREAMS = 256
"""Maximum number of read-ahead streams, which bounds the page cache that is filled early to 2 GiB."""

READ_AHEAD_READERS = 4
"""Maximum streams at different positions of one file: for example two consumer groups, a follower, one more."""

ACCEPTS_PER_TURN = 64
"""Others wait in the kernel's queue: a storm of connections must not keep those that are there from being served."""
ACCEPT_PAUSE_MS = 500
"""How long accepting pauses after EMFILE and similar errors: a descriptor is free only when something else closes."""

HALF_CLOSED_LINGER_MS = 5_000
"""How long a peer that has closed its sending side is still answered. Kafka closes at once and drops the responses."""

STALL_LOOK_MS = 500
"""How often partial frames are checked while other connections wait for request memory."""

STALLED_FRAME_MS = 20_000
"""While others wait for request memory, a connection whose frame is still partial after so long is closed. Deviation:
Apache Kafka lets all connections wait until connections.max.idle.ms. Here it is closed, because one peer could stop all
others."""

CROWDED_FRAME_MS = 1_000
"""The same if even the smallest request finds no room, which takes hundreds of connections with partial frames."""

LEASE_BYTES_PER_LOOK = 64 * 1024
"""A lease holder that receives fewer bytes between two checks loses the lease to the next waiting reader."""


@dataclass(frozen=True, slots=True)
class ReactorLimits:
    """Kafka's keys with underscores; the server fills it from BrokerConfig."""

    num_network_threads: int = 3
    socket_listen_backlog_size: int = 50
    socket_send_buffer_bytes: int = 102_400
    socket_receive_buffer_bytes: int = 102_400
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    connections_max_idle_ms: int = 600_000
    authentication_timeout_ms: int = 10_000
    """kafkapy.authentication.timeout.ms: how long a TLS handshake may take, and a login after it."""
    max_connections: int = UNLIMITED
    max_connections_per_ip: int = UNLIMITED
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    listener_max_connections: Mapping[str, int] = field(default_factory=dict)
    """listener.name.<listener>.max.connections, by listener name."""
    max_connection_creation_rate: int = UNLIMITED
    """Connections a second."""
    listener_max_connection_creation_rate: Mapping[str, int] = field(default_factory=dict)
    inter_broker_listener_name: str | None = None
    quota_window_num: int = 11
    quota_window_ms: int = 1000
    """The window of the rate measurement, and the longest delay of a connection because of the rate."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    @property
    def queued_bytes(self) -> int:
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else DEFAULT_QUEUED_BYTES
