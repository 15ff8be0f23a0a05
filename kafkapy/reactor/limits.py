"""What bounds the reactor: Kafka's keys under their names, and constants with their reasons."""

from collections.abc import Mapping
from dataclasses import field

from kafkapy.dataclass import dataclass
from kafkapy.protocol.connection import ConnectionLimits

UNLIMITED = 2_147_483_647

DEFAULT_QUEUED_BYTES = 256 * 1024 * 1024
"""What queued.max.request.bytes = -1 means here. Kafka: unlimited. A named deviation: a broker must not die of it."""

FRAMES_PER_TURN = 32
"""Requests of one connection started in a row before the others have their turn: about a millisecond of work."""

BYTES_PER_TURN = 1024 * 1024
"""Bytes received from, and sent to, one connection in a row: about half a millisecond of copying."""

RECEIVE_BYTES = 64 * 1024
"""What one receive asks for where no large frame is under way."""

FRAME_RECEIVE_BYTES = 128 * 1024
"""What one receive asks for of a large frame: a socket seldom has more at once, and it stays in a core's cache."""

PEEK_BYTES = 4 * 1024
"""What one receive asks for between two frames while the received bytes are close to their bound."""

SENDFILE_FROM_BYTES = 64 * 1024
"""From this region size on sendfile beats one pread and one send (measured, loopback: 32 KiB 7.1 and 7.1 us of CPU
without asking for cold pages, 64 KiB 10.6 and 10.3, 128 KiB 19.8 and 15.5, 1 MiB 111 and 91)."""

SENDFILE_BYTES = 512 * 1024
"""What one sendfile asks for: more than a socket takes at once."""

PROBE_STRIDE_BYTES = 256 * 1024
"""Distance of the bytes asked for to see whether a region is in the page cache. A smaller hole between cached pages is
rare, and costs the loop one read from the disk."""

PROBED_BYTES = 1024 * 1024
"""How much of a region is asked for at once whether it is in the page cache."""

FIRST_WARM_BYTES = 1024 * 1024
"""What is read from the disk for a reader that waits and was not expected: little, so that it waits little."""

READ_AHEAD_BYTES = 4 * 1024 * 1024
"""How much is read at once from the disk ahead of a sequential reader, as soon as less than that is ahead of it."""

READ_AHEAD_ENOUGH_BYTES = 32 * 1024 * 1024
"""After so many bytes that were all in the page cache nobody reads on: more than the kernel reads ahead by itself."""

READ_AHEAD_CALLS = 4
"""How many workers read ahead at a time; others stay for who waits."""

READ_AHEAD_STREAMS = 256
"""Of so many readers it is known how far was read ahead of them: at most 2 GiB of page cache are used too early."""

READ_AHEAD_READERS = 4
"""So many of them may be at different places of one file: two groups that replay a topic, a follower, one more."""

ACCEPTS_PER_TURN = 64
ACCEPT_PAUSE_MS = 500
"""How long accepting rests after EMFILE and its like: a descriptor becomes free only when something else ends."""

HALF_CLOSED_LINGER_MS = 5_000
"""How long a peer that has ended its side is still answered. Kafka closes at once and loses those answers."""

STALL_LOOK_MS = 500
"""How often begun frames are looked at while others wait for the room that they hold."""

STALLED_FRAME_MS = 20_000
"""With others waiting for room, a begun frame that is not whole after so long costs its connection. A named deviation:
Kafka waits for connections.max.idle.ms, and so does everybody."""

CROWDED_FRAME_MS = 1_000
"""The same where even the smallest request finds no room, which takes hundreds of connections with begun frames."""

LEASE_BYTES_PER_LOOK = 64 * 1024
"""Who holds the lease of a full account and receives less between two looks loses it to the next that waits."""


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
    """How the rate is measured; at most so long is a connection made to wait for it."""
    connection: ConnectionLimits = field(default_factory=ConnectionLimits)

    @property
    def queued_bytes(self) -> int:
        return self.queued_max_request_bytes if self.queued_max_request_bytes > 0 else DEFAULT_QUEUED_BYTES
