"""Notifies systemd of the node's state (sd_notify(3)): READY, STATUS, STOPPING, and WATCHDOG pings.

A start may take long while logs are recovered: as long as the event loop runs, it extends the start time-out
(EXTEND_TIMEOUT_USEC) and reports what it waits for. Imported only if systemd has set NOTIFY_SOCKET.
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
"""How often a start reports its progress."""
START_EXTENSION_S: Final = 30.0
"""By how much each report extends the time-out."""
VARIABLES: Final = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")

logger = logging.getLogger("kafkapy.server")


class Supervisor:
    """Reports this process to systemd, from the beginning of its start while its event loop runs."""

    def __init__(self, node: "Node", environment: MutableMapping[str, str]) -> None:
        """Removes systemd's variables from the environment: child processes must not inherit them."""
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
        self._report_start()

    def ready(self, status: str) -> None:
        """Report that the node serves."""
        self._cancel()
        self._send("READY=1", f"STATUS={status}")
        self._feed_watchdog()

    def stopping(self) -> None:
        """Report that the node is stopping. Watchdog pings continue."""
        self._send("STOPPING=1", "STATUS=Stopping")

    def _report_start(self) -> None:
        missing = missing_of(self._node)
        reached = [f"{name}: {reason}" for name, reason in missing.items() if reason != NOT_REACHED]
        status = f"Starting: {'; '.join(reached)}" if reached else "Starting"
        self._send(f"EXTEND_TIMEOUT_USEC={round(START_EXTENSION_S * 1_000_000)}", f"STATUS={status}")
        self._timer = self._loop.call_later(START_INTERVAL_S, self._report_start)

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
                logger.warning("Cannot notify systemd through NOTIFY_SOCKET: %s", error)
            self._has_failed = True
