"""A TLS client by libssl itself, for what Python's ssl has no call for: KeyUpdate, renegotiation."""

import ctypes
import ctypes.util
import socket
import struct
from types import TracebackType
from typing import Any, Final, Self

KEY_UPDATE_REQUESTED: Final = 1
TLS1_2: Final = 0x0303
_SET_MAX_VERSION: Final = 124
PATIENCE_S: Final = 20
"""How long to wait for a response; without one, the connection counts as ended."""

_POINTER, _INT, _LONG = ctypes.c_void_p, ctypes.c_int, ctypes.c_long
_CALLS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "TLS_client_method": (_POINTER, []),
    "SSL_CTX_new": (_POINTER, [_POINTER]),
    "SSL_CTX_free": (None, [_POINTER]),
    "SSL_new": (_POINTER, [_POINTER]),
    "SSL_free": (None, [_POINTER]),
    "SSL_ctrl": (_LONG, [_POINTER, _INT, _LONG, _POINTER]),
    "SSL_set_fd": (_INT, [_POINTER, _INT]),
    "SSL_connect": (_INT, [_POINTER]),
    "SSL_do_handshake": (_INT, [_POINTER]),
    "SSL_key_update": (_INT, [_POINTER, _INT]),
    "SSL_renegotiate": (_INT, [_POINTER]),
    "SSL_shutdown": (_INT, [_POINTER]),
    "SSL_write": (_INT, [_POINTER, ctypes.c_char_p, _INT]),
    "SSL_read": (_INT, [_POINTER, ctypes.c_char_p, _INT]),
}


def is_available() -> bool:
    return ctypes.util.find_library("ssl") is not None


_SEND_BUFFER_BYTES = 64 * 1024


class OpenSslClient:
    """A blocking connection; certificates are not checked."""

    def __init__(self, port: int, max_version: int = 0) -> None:
        self._lib = ctypes.CDLL(ctypes.util.find_library("ssl"))
        for name, (returned, taken) in _CALLS.items():
            call = getattr(self._lib, name)
            call.restype, call.argtypes = returned, taken
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self._socket.settimeout(None)
        # What a busy broker has not read yet waits in the client, not in the kernel, which would take megabytes.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SEND_BUFFER_BYTES)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", PATIENCE_S, 0))
        self._context = self._lib.SSL_CTX_new(self._lib.TLS_client_method())
        self._tls = self._lib.SSL_new(self._context)
        if max_version:
            self._lib.SSL_ctrl(self._tls, _SET_MAX_VERSION, max_version, None)
        self._lib.SSL_set_fd(self._tls, self._socket.fileno())
        assert self._lib.SSL_connect(self._tls) == 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lib.SSL_free(self._tls)
        self._lib.SSL_CTX_free(self._context)
        self.close()

    def close(self) -> None:
        """Close the connection without a word."""
        self._socket.close()

    def update_keys(self) -> bool:
        """Send a KeyUpdate that asks for one in return; return whether the connection stands."""
        self._lib.SSL_key_update(self._tls, KEY_UPDATE_REQUESTED)
        return bool(self._lib.SSL_do_handshake(self._tls) == 1)

    def renegotiate(self) -> bool:
        """Ask for a new handshake amid the connection; return whether it took place."""
        self._lib.SSL_renegotiate(self._tls)
        return bool(self._lib.SSL_do_handshake(self._tls) == 1)

    def send(self, data: bytes) -> None:
        self._lib.SSL_write(self._tls, data, len(data))

    def receive(self) -> bytes:
        """Return the data of one record at most, nothing if the connection has ended."""
        buffer = ctypes.create_string_buffer(16_384)
        count = self._lib.SSL_read(self._tls, buffer, len(buffer))
        return buffer.raw[: max(count, 0)]

    def send_request(self, data: bytes) -> bytes:
        """Send and return what comes back, nothing if the connection has ended."""
        self.send(data)
        return self.receive()

    def send_close_notify(self) -> None:
        """Send close_notify, and leave the connection open."""
        self._lib.SSL_shutdown(self._tls)
