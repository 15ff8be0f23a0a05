"""How much a command imports before it does anything: its start is a fifth of a second of CPU, most of it typer's.

Counted are modules, not seconds, which would depend on the machine. Raise a number if an import is worth it.
"""

import subprocess
import sys
from importlib import import_module

import pytest

from kafkapy.__main__ import main
from kafkapy.cli.overview import ALONE

MOST_OWN: dict[str, int] = {"topics": 60, "groups": 60, "consume": 60, "produce": 60, "configs": 60, "profile": 45}
"""Modules of kafkapy that the command may import until it knows that its options are wrong."""
MOST_OF_OVERVIEW = 20
"""Those that the overview may import."""
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


@pytest.mark.parametrize("given", ["-h", "--no-such-option", "topisc"])
def test_the_overview_imports_no_command(given: str) -> None:
    program = "import sys; from kafkapy.__main__ import main; main([sys.argv[1]]); print(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program, given], capture_output=True, text=True, check=True)
    own = [name for name in done.stdout.splitlines()[-1].split() if name.partition(".")[0] == "kafkapy"]
    assert len(own) <= MOST_OF_OVERVIEW, own


def test_the_version_is_printed_without_a_parser() -> None:
    program = "import sys; from kafkapy.__main__ import main; main(['--version']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert {"typer", "rich", "kafkapy.cli.main"} & set(done.stdout.splitlines()[-1].split()) == set()


@pytest.mark.parametrize("name", ALONE)
def test_the_overview_says_what_the_command_says(name: str) -> None:
    command = getattr(import_module(f"kafkapy.cli.{name}"), name)
    assert " ".join((command.__doc__ or "").partition("\n\n")[0].split()) == ALONE[name]


def test_a_command_runs_after_two_dashes() -> None:
    program = "from kafkapy.__main__ import main; print(main(['--', 'topics', 'list', '-b', '127.0.0.1:1']))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert (done.stdout, "no broker answers" in done.stderr) == ("1\n", True)


def test_a_command_with_a_parser_of_its_own_runs_after_two_dashes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--", "storage", "random-uuid"]) == 0
    assert len(capsys.readouterr().out.strip()) == 22
