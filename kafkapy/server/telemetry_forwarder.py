"""Sends clients' metrics to an OpenTelemetry collector: OTLP over HTTP, encoded as protobuf.

A daemon thread sends one push at a time, with what the broker knows of the client added to the resource's attributes.
It starts with the first push. Nothing waits for it: a push is dropped and counted if MAX_WAITING others are queued, and
not sent again if the collector refuses it.
"""

import logging
import queue
import threading
import time
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from kafkapy.errors import ConfigError
from kafkapy.server.login.web_request import WebError, send
from kafkapy.telemetry.otlp import resource, resources_with

MAX_WAITING: Final = 64
"""With telemetry.max.bytes at its default, at most 64 MiB."""
TIMEOUT_S: Final = 10.0
STOP_S: Final = 2.0
"""How long a stop waits for the pushes received before it."""
COMPLAINT_S: Final = 60.0
"""At most one log line about failures per this time."""
HEADERS: Final = {"Content-Type": "application/x-protobuf"}

logger = logging.getLogger(__name__)


class HttpForwarder:
    """Implements kafkapy.runtime.client_telemetry.Forwarder."""

    def __init__(self, url: str, *, broker_id: int) -> None:
        """Raises ConfigError unless it is an http or https URL."""
        if not _is_web(url):
            raise ConfigError("kafkapy.telemetry.otlp.endpoint", url, "an http or https URL is needed")
        self._url = url
        self._broker_id = str(broker_id)
        self._waiting: queue.Queue[tuple[bytes, dict[str, str]] | None] = queue.Queue(MAX_WAITING)
        self._thread: threading.Thread | None = None
        self._next_complaint_s = 0.0
        self._is_closed = False
        self._sent_count = self._failed_count = self._dropped_count = 0

    @property
    def counts(self) -> dict[str, int]:
        return {"sent": self._sent_count, "failed": self._failed_count, "dropped": self._dropped_count}

    def send(self, data: bytes, attributes: dict[str, str]) -> None:
        """Queue a push for the thread. Called on the event loop only."""
        if self._thread is None:
            thread = threading.Thread(target=self._run, name="telemetry-forwarder", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the process has as many as it may have: the next push tries again
                self._dropped_count += 1
                return
            self._thread = thread
        try:
            self._waiting.put_nowait((data, {**attributes, "broker_id": self._broker_id}))
        except queue.Full:
            self._dropped_count += 1

    def close(self) -> None:
        """Send the queued pushes, for at most STOP_S."""
        if self._thread is None:
            return
        self._is_closed = True
        with suppress(queue.Full):  # if so, the thread ends with the first failure
            self._waiting.put_nowait(None)
        self._thread.join(STOP_S)

    def _run(self) -> None:
        while (push := self._waiting.get()) is not None:
            try:
                send(
                    self._url,
                    body=resources_with(push[0], resource(push[1])),
                    headers=HEADERS,
                    timeout_s=TIMEOUT_S,
                    allows_plain=True,
                )
                self._sent_count += 1
            except (OSError, WebError, ValueError) as error:  # ValueError: a path that HTTP cannot have
                self._failed_count += 1
                self._complain(error)
                if self._is_closed:
                    return

    def _complain(self, error: Exception) -> None:
        now_s = time.monotonic()
        if now_s >= self._next_complaint_s:
            self._next_complaint_s = now_s + COMPLAINT_S
            logger.warning("Client metrics could not be sent to kafkapy.telemetry.otlp.endpoint: %s", error)


def _is_web(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # of the port, or of brackets
        return False
