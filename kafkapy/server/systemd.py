"""Tells systemd how the node is (sd_notify(3)): READY, STATUS, STOPPING, and WATCHDOG while the event loop turns.

A start that recovers logs may take long: as long as the event loop turns it asks for more time (EXTEND_TIMEOUT_USEC)
and says what it waits for. Imported where systemd set NOTIFY_SOCKET alone.
"""

import asyncio
import logging
import os
import socket
from collections.abc import MutableMapping
from typing import TYPE_CHECKING, Final

from kafkapy.server.admin.readiness import NOT_REACHED, missing_of

if TYPE_CHECKING:
    from kafkapy.server.node import Node

START_INTERVAL_S: Final = 5.0
"""How often a start says how far it is."""
START_EXTENSION_S: Final = 30.0
"""How much time it asks for then."""
VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

logger = logging.getLogger("kafkapy.server")


class Supervisor:
    """systemd's view of this process, from the beginning of its start as long as its loop runs."""

    def __init__(self, node: "Node", environment: MutableMapping[str, str]) -> None:
        """What systemd set goes from the environment: it is not meant for the processes that this one starts."""
        path, watchdog_us, pid = (environment.pop(name, "") for name in VARIABLES)
        self._node = node
        self._loop = asyncio.get_running_loop()
        self._address = f"\0{path[1:]}" if path.startswith("@") else path
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC)
        self._socket.setblocking(False)
        is_watched = watchdog_us.isdecimal() and int(watchdog_us) > 0 and pid in ("", str(os.getpid()))
        self._watchdog_s = int(watchdog_us) / 1_000_000 if is_watched else None
        self._timer: asyncio.TimerHandle | None = None
        self._has_failed = False
        self._tell_of_start()

    def ready(self, status: str) -> None:
        """The node serves."""
        self._cancel()
        self._send("READY=1", f"STATUS={status}")
        self._feed_watchdog()

    def stopping(self) -> None:
        """The node begins to stop. The watchdog goes on being fed."""
        self._send("STOPPING=1", "STATUS=Stopping")

    def _tell_of_start(self) -> None:
        missing = missing_of(self._node)
        reached = [f"{name}: {reason}" for name, reason in missing.items() if reason != NOT_REACHED]
        status = f"Starting: {'; '.join(reached)}" if reached else "Starting"
        self._send(f"EXTEND_TIMEOUT_USEC={round(START_EXTENSION_S * 1_000_000)}", f"STATUS={status}")
        self._timer = self._loop.call_later(START_INTERVAL_S, self._tell_of_start)

    def _feed_watchdog(self) -> None:
        if self._watchdog_s is not None:
            self._send("WATCHDOG=1")
            self._timer = self._loop.call_later(self._watchdog_s / 3, self._feed_watchdog)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _send(self, *assignments: str) -> None:
        try:
            self._socket.sendto("\n".join(" ".join(each.splitlines()) for each in assignments).encode(), self._address)
        except OSError as error:
            if not self._has_failed:
                logger.warning("systemd cannot be told how the node is, at NOTIFY_SOCKET: %s", error)
            self._has_failed = True
