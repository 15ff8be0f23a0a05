"""What cannot be sent is counted as failed, and the thread goes on."""

import socket
import threading

import pytest

from kafkapy.errors import ConfigError
from kafkapy.server.telemetry_forwarder import HttpForwarder
from tests.support.client_requests import until


@pytest.mark.parametrize("url", ["ftp://h/", "http://", "http://h:99999/", "http://h:x/", "http://[h/"])
def test_a_url_that_cannot_be_requested_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        HttpForwarder(url, broker_id=1)


def test_a_path_that_http_cannot_have_fails_each_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        forwarder = HttpForwarder(f"http://127.0.0.1:{listening.getsockname()[1]}/\u00fc\u4e00", broker_id=1)
        for _ in range(2):
            forwarder.send(b"", {})
        until(lambda: forwarder.counts["failed"] == 2)
        forwarder.close()


def test_without_a_thread_a_push_is_dropped_and_the_next_one_tries_again(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        forwarder = HttpForwarder(f"http://127.0.0.1:{listening.getsockname()[1]}/\u00fc", broker_id=1)

    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        forwarder.send(b"", {})
    assert forwarder.counts["dropped"] == 1
    forwarder.send(b"", {})
    until(lambda: forwarder.counts["failed"] == 1)
    forwarder.close()
