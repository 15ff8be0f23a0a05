"""/livez and /readyz of a broker that runs in the test, on all that can be missing."""

import json
import sys
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from harness.servers import free_port
from kafkapy import Broker
from kafkapy.errors import ConfigError
from kafkapy.server.admin import listener
from kafkapy.server.admin.readiness import BROKER_CONDITIONS, missing_of
from kafkapy.storage.offline.format import embedded_config
from kafkapy.storage.system_disk import SystemDisk


def page(port: int, path: str) -> tuple[int, Any]:
    """Return status and body, parsed where it is JSON."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
            return response.status, _parsed(response.read())
    except urllib.error.HTTPError as error:
        return error.code, _parsed(error.read())


def _parsed(body: bytes) -> Any:
    return json.loads(body) if body.startswith(b"{") else body.decode()


def test_a_broker_is_ready_when_it_has_started() -> None:
    port = free_port()
    with Broker(properties={"kafkapy.admin.listener": f":{port}"}) as broker:
        assert page(port, "/livez") == (200, "ok\n")
        assert page(port, "/readyz") == (200, {"missing": {}, "status": "ready"})
        status, build = page(port, "/buildinfo")
        assert (status, build["node_id"], build["cluster_id"]) == (200, broker.node_id, broker.cluster_id)
        assert page(port, "/")[0] == 404
    with pytest.raises(urllib.error.URLError):
        page(port, "/livez")


def test_what_is_missing_is_named() -> None:
    broker = Broker()
    with broker:
        node = broker._running.node
        assert missing_of(node) == {}
        assert set(node.conditions) == set(BROKER_CONDITIONS)
        del node.conditions["logs"]
        node.conditions["listeners"] = lambda: "port 9092 is not bound"
        assert missing_of(node) == {
            "listeners": "port 9092 is not bound",
            "logs": "the start has not come to it yet",
        }
        node.stops.has_begun = True
        assert missing_of(node) == {"stop": "the node is stopping"}


async def test_a_loop_that_is_held_up_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener, "LOOP_TIMEOUT_S", 0.1)
    port = free_port()
    expected = "the event loop has not answered within 0.1 s"
    async with Broker(properties={"kafkapy.admin.listener": f"localhost:{port}"}):
        with ThreadPoolExecutor() as threads:
            requested = [threads.submit(page, port, path) for path in ("/livez", "/readyz")]
            live, ready = (each.result() for each in requested)  # holds the loop until both are answered
    assert live == (503, f"{expected}\n")
    assert ready == (503, {"missing": {"event loop": expected}, "status": "not ready"})


@pytest.mark.parametrize("text", ["9404", "host", "host:65536", "a b:1", "::1:9404", "http://host:1", "host:-1"])
def test_an_address_is_host_and_port(text: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="host:port"):
        embedded_config(SystemDisk(), str(tmp_path), 0, {"kafkapy.admin.listener": text})


def test_a_host_that_is_no_name_stops_the_start() -> None:
    broker = Broker(properties={"kafkapy.admin.listener": "a..b:9100"})
    with pytest.raises(OSError, match=r"cannot serve kafkapy\.admin\.listener=a\.\.b:9100: "), broker:
        pass


def test_off_by_default_and_nothing_of_it_is_imported(tmp_path: Path) -> None:
    import subprocess

    program = (
        "import sys; from kafkapy import Broker\nwith Broker(): pass\n"
        "print([name for name in sys.modules if name.startswith(('kafkapy.server.admin', 'prometheus', 'http'))])"
    )
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert found.stdout == "[]\n"
