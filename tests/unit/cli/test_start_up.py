"""How much a command imports before it does anything: its start is a fifth of a second of CPU, most of it typer's.

Counted are modules, not seconds, which would depend on the machine. Raise a number if an import is worth it.
"""

import subprocess
import sys

import pytest

MOST_OWN: dict[str, int] = {"topics": 60, "groups": 60, "consume": 60, "produce": 60, "configs": 60, "profile": 45}
"""Modules of kafkapy that the command may import until it knows that its options are wrong."""
UNUSED = ("kafkapy.metadata", "kafkapy.server", "kafkapy.runtime", "kafkapy.storage", "kafkapy.config.definitions")
OTHERS = {"confluent_kafka", "asyncio", "fastavro", "google.protobuf", "ssl", "starlette"}


@pytest.mark.parametrize("command", sorted(MOST_OWN))
def test_a_command_imports_what_it_needs(command: str) -> None:
    program = (
        "import sys; from kafkapy.__main__ import main; status = main([sys.argv[1], '--no-such-option']); "
        "print(status, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program, command], capture_output=True, text=True, check=True)
    status, *modules = done.stdout.split()
    own = [name for name in modules if name.partition(".")[0] == "kafkapy"]
    assert status == "2"
    assert [name for name in own if name.startswith(UNUSED)] == []
    assert OTHERS & set(modules) == set()
    assert len(own) <= MOST_OWN[command], own


def test_topics_are_asked_for_without_librdkafka() -> None:
    program = (
        "import sys; from kafkapy.__main__ import main; status = main(['topics', 'list', '-b', '127.0.0.1:1']); "
        "print(status, *sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    status, *modules = done.stdout.split()
    assert (status, OTHERS & set(modules)) == ("1", set())
