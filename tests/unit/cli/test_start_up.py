"""How much a command imports before it does anything: its start takes less than a fifth of a second of CPU.

Counted are modules, not seconds, which would depend on the machine. Raise a number if an import is worth it.
"""

import subprocess
import sys
from importlib import import_module
from importlib.metadata import version

import pytest

from kafkapy import Broker
from kafkapy.__main__ import main
from kafkapy.cli.main import command
from kafkapy.cli.overview import ALONE

MAX_OWN: dict[str, int] = {"topics": 60, "groups": 60, "consume": 60, "produce": 60, "configs": 60, "profile": 45}
"""Modules of kafkapy that the command may import until it knows that its options are wrong."""
MAX_OF_OVERVIEW = 20
"""Those that the overview may import."""
UNUSED = ("kafkapy.metadata", "kafkapy.server", "kafkapy.runtime", "kafkapy.storage", "kafkapy.config.definitions")
IS_AS_REQUIRED = tuple(map(int, version("typer").split(".")[:2])) < (0, 29)
"""False where an environment is older than pyproject.toml's bound on typer: `make setup` installs it."""
OTHERS = {
    *("confluent_kafka", "asyncio", "fastavro", "google.protobuf", "ssl", "starlette", "cryptography", "uvloop"),
    *("rich", "pygments", "markdown_it", "attr"),  # what typer would show help and errors with
    *(("pydantic",) if IS_AS_REQUIRED else ()),  # what typer checks options with since 0.29
}
"""Modules that neither the overview nor a plain command may import."""


@pytest.mark.parametrize("command", sorted(MAX_OWN))
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
    assert len(own) <= MAX_OWN[command], own


PROGRAM = "import sys; from kafkapy.__main__ import main; print(main(sys.argv[1:])); print(*sys.modules)"
PLAIN = ("-h", "topics -h", "topics create -h", "profile list", "topics list -b 127.0.0.1:1")


def modules_after(*arguments: str) -> tuple[str, set[str]]:
    """Run a command in a process of its own; return its exit status and what was imported then."""
    done = subprocess.run([sys.executable, "-c", PROGRAM, *arguments], capture_output=True, text=True, check=True)
    *_, status, modules = done.stdout.splitlines()
    return status, set(modules.split())


@pytest.mark.parametrize("given", PLAIN)
def test_a_plain_command_imports_neither_a_client_nor_what_only_shows(given: str) -> None:
    status, modules = modules_after(*given.split())
    assert (status, OTHERS & modules) == ("1" if given.endswith(":1") else "0", set())


def test_topics_are_listed_as_a_table_without_librdkafka_and_without_rich() -> None:
    with Broker() as broker:
        broker.create_topics("orders")
        status, modules = modules_after("topics", "list", "-b", broker.bootstrap_servers)
    assert (status, OTHERS & modules) == ("0", set())


def test_options_are_made_of_the_command_that_runs_alone() -> None:
    topics = command(["topics"], words=["topics", "list", "-b", "127.0.0.1:1"]).commands["topics"]
    assert {name for name, each in topics.commands.items() if len(each.params) > 2} == {"list"}
    assert {name for name, each in command(["topics"]).commands["topics"].commands.items() if not each.params} == set()


@pytest.mark.parametrize("given", ["-h", "--no-such-option", "topisc"])
def test_the_overview_imports_no_command(given: str) -> None:
    own = {name for name in modules_after(given)[1] if name.partition(".")[0] == "kafkapy"}
    assert len(own) <= MAX_OF_OVERVIEW, own


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
