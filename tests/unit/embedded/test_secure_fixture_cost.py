"""What the fixture `secure_kafka_broker` costs until it is ready, counted: it is to be ready in 0.3 s.

`make bench ONLY=security` measures the time; here it is not, as other tests run beside.
"""

import json
import subprocess
import sys
from typing import Any

import pytest

MADE = """
import gc, itertools, json, sys, threading

counter, already, collected = itertools.count(), set(sys.modules), []

def note(frame, event, _argument):
    if event == "call" and frame.f_globals.get("__name__", "").startswith("kafkapy"):
        next(counter)

threading.setprofile(note)
sys.setprofile(note)
from kafkapy.embedded import pytest_plugin
with_fixture = pytest_plugin.secure_kafka_broker.__wrapped__()
gc.callbacks.append(lambda phase, info: collected.append(phase))
broker = next(with_fixture)
gc.callbacks.clear()
sys.setprofile(None)
threading.setprofile(None)
calls = next(counter)
modules = [name for name in sys.modules if name not in already]
print(json.dumps({"calls": calls, "modules": modules, "collected": len(collected), "collects": gc.isenabled()}))
assert broker.client_config("alice")["security.protocol"] == "SASL_SSL"
next(with_fixture, None)
"""
MAX_CALLS = 20_000
"""Of kafkapy's own functions: they were 14,000, 30 ms."""
MAX_MODULES = 480
"""Imported in all, pytest's aside: 445, 54 of them for the certificates. A module costs 0.4 ms."""
MAX_OWN_MODULES = 337
"""Of kafkapy: 331, 10 of them an empty __init__ of a wing, without the types of metadata records. The controller
imports all of them after its first second, which a slow start includes and a fast one does not."""
NOT_NEEDED = (
    "typer", "rich", "pydantic", "jwt", "http", "confluent_kafka", "kafkapy.cli", "kafkapy.server.login.jwks",
    "cryptography.hazmat.primitives.serialization.pkcs7", "kafkapy.reactor.link",
    "kafkapy.reactor.tls_handshake", "kafkapy.security.scram",
    "kafkapy.storage.cleaner.plan",
    "kafkapy.protocol.messages.create_topics",
)  # fmt: skip


@pytest.fixture(scope="module")
def made() -> Any:
    command = [sys.executable, "-c", "import pytest\n" + MADE]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_it_calls_little(made: Any) -> None:
    assert made["calls"] <= MAX_CALLS


def test_it_imports_what_it_needs(made: Any) -> None:
    assert len(made["modules"]) <= MAX_MODULES
    own = [name for name in made["modules"] if name.startswith("kafkapy.") and not name.endswith("_record")]
    assert len(own) <= MAX_OWN_MODULES
    assert [name for name in made["modules"] if name.startswith(NOT_NEEDED)] == []


def test_garbage_is_collected_once_at_the_end(made: Any) -> None:
    """84 times otherwise, and a full collection looks at all that pytest and the tests hold as well."""
    assert made["collected"] <= len(("start", "stop"))
    assert made["collects"]
