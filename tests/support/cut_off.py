"""A relay of TCP connections that a test can cut: a peer behind it is reachable until then.

with Relay(to_port=9094) as relay:
    ...                                     # connections to relay.port end at 127.0.0.1:9094
    relay.cut()                             # these end, new ones are closed at once
"""

import socket
import threading
from contextlib import suppress
from types import TracebackType
from typing import Self


class Relay:
    """Listens on a free port of loopback between `with` and the end of its block."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._is_cut = False

    def __enter__(self) -> Self:
        self._threads[0].start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.cut()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._threads[0].join()
        self._listener.close()
        for thread in self._threads[1:]:
            thread.join()
        for each in self._sockets:
            each.close()

    def cut(self) -> None:
        """End all connections; let none be made any more."""
        self._is_cut = True
        for each in list(self._sockets):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                incoming, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(incoming)
            with suppress(OSError):
                self._join(incoming)
            if self._is_cut:
                self.cut()

    def _join(self, incoming: socket.socket) -> None:
        outgoing = socket.create_connection(("127.0.0.1", self._to_port))
        self._sockets.append(outgoing)
        for source, target in ((incoming, outgoing), (outgoing, incoming)):
            thread = threading.Thread(target=_pump, args=(source, target))
            thread.start()
            self._threads.append(thread)


def _pump(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)
