"""What shells offer after what was typed, and the manual pages as man reads them."""

import shlex
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from kafkapy.cli import completion, manual
from kafkapy.cli.command_tree import command_tree

ZSH_STUBS = """
compdef() {}
_files() {}
compadd() { shift; print -rl -- "$@"; }
_describe() { print -rl -- "${(@)${(@P)2}%%:*}"; }
"""
"""In the place of zsh's completion system, which needs a terminal: they print what they are given."""


@cache
def script(shell: str) -> str:
    return completion.SCRIPTS[shell]()


def offered(shell: str, *words: str) -> set[str]:
    """Return what a shell offers for the last of the words."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not here")
    printed = {"bash": by_bash, "zsh": by_zsh, "fish": by_fish}[shell](*words)
    return {word for word in printed if word.startswith(words[-1])}


def by_bash(*words: str) -> set[str]:
    requester = f"COMP_WORDS=({shlex.join(('kafkapy', *words))}); COMP_CWORD={len(words)}; _kafkapy; "
    printing = 'printf "%s\\n" "${COMPREPLY[@]}"'
    return set(run("bash", "--norc", given=script("bash") + requester + printing).split())


def by_zsh(*words: str) -> set[str]:
    requester = f"words=({shlex.join(('kafkapy', *words))}); CURRENT={len(words) + 1}; _kafkapy"
    return set(run("zsh", "-f", given=ZSH_STUBS + script("zsh") + requester).split())


def by_fish(*words: str) -> set[str]:
    return {line.partition("\t")[0] for line in fish_lines(*words)}


def fish_lines(*words: str) -> list[str]:
    """Return what fish offers: each word with a tab and its description, if it has one."""
    typed = f"complete -C '{' '.join(('kafkapy', *words))}'"
    return run("fish", "--no-config", given=script("fish") + typed).splitlines()


def run(*command: str, given: str) -> str:
    done = subprocess.run(command, input=given, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("to",), {"topics"}),
        (("topics", "de"), {"delete", "describe"}),
        (("topics", "create", "orders", "--part"), {"--partitions"}),
        (("security", "acl", ""), {"add", "remove", "list", "-h", "--help"}),
        (("start", "--log-f"), {"--log-format", "--log-file", "--log-file-size", "--log-file-count"}),
        (("start", "--log-format", ""), {"text", "json"}),
        (("storage", "format", "--stand"), {"--standalone"}),
        (("consume", "trades", "--command"), {"--command-config"}),
        (("completion", "z"), {"zsh"}),
    ],
)
def test_a_shell_offers_what_may_follow(shell: str, words: tuple[str, ...], expected: set[str]) -> None:
    found = offered(shell, *words)
    if shell == "fish" and words[-1] == "":
        expected = {word for word in expected if not word.startswith("-")}  # fish offers options after a dash only
    assert found == expected


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not here")
def test_fish_describes_options_and_not_their_choices() -> None:
    assert fish_lines("start", "--log-form") == ["--log-format\tJSON: one object a line"]
    assert fish_lines("start", "--log-format", "") == ["json", "text"]


def test_bash_leaves_values_that_are_not_known_to_its_file_names() -> None:
    assert offered("bash", "consume", "trades", "--group", "") <= {""}


@pytest.mark.parametrize(("arguments", "status"), [(["zsh", "fish"], 2), (["tcsh"], 2), (["-h"], 0)])
def test_a_shell_that_is_not_known_is_reported(arguments, status, capsys) -> None:
    assert completion.main(arguments) == status
    output = capsys.readouterr()
    told = "kafkapy: expected [bash|zsh|fish], not " if status else "usage: kafkapy completion [bash|zsh|fish]"
    assert (output.err if status else output.out).startswith(told)


@pytest.mark.parametrize("arguments", [[], ["bash"], ["zsh"], ["fish"]])
def test_each_shell_has_a_script(arguments, capsys) -> None:
    assert completion.main(arguments) == 0
    assert capsys.readouterr().out == script(*arguments or ["bash"])


def test_every_command_option_and_argument_is_explained() -> None:
    commands = list(command_tree().walk())
    assert len(commands) > 50
    assert [command.path for command in commands if not command.help] == []
    assert [(command.path, each.flags) for command in commands for each in command.options if not each.help] == []
    assert [(command.path, each.metavar) for command in commands for each in command.arguments if not each.help] == []


def test_each_command_has_a_manual_page_with_all_of_it() -> None:
    pages = manual.pages()
    root = command_tree()
    assert len(pages) == len(list(root.walk()))
    for command in root.walk():
        page = pages[f"{'-'.join(('kafkapy', *command.path))}.1"]
        for option in command.options:
            assert f".B {', '.join(option.flags)}".replace("-", "\\-") in page
        for below in command.commands:
            assert f".BR {'-'.join(('kafkapy', *below.path))} (1),".replace("-", "\\-") in page
    assert "3 its stop took too long" in pages["kafkapy-start.1"]


def test_the_manual_pages_are_valid(tmp_path: Path) -> None:
    if shutil.which("groff") is None:
        pytest.skip("groff is not here")
    assert manual.main(["--to", str(tmp_path)]) == 0
    command = ["groff", "-man", "-Tutf8", "-ww", "-z", *map(str, tmp_path.iterdir())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_build_of_the_wheel_needs_typer_alone() -> None:
    """It makes the pages in an environment of pyproject.toml's build-system."""
    program = "import sys; from kafkapy.cli.manual import pages; assert len(pages()) > 50; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    others = {"confluent_kafka", "crc32c", "cryptography", "lz4", "re2", "snappy", "uvloop", "xxhash"}
    assert others & {*done.stdout.split()} == set()


def test_a_build_of_the_wheel_has_the_typer_that_an_installation_has() -> None:
    """0.29 has other parsers: pip would take it for the build, which then failed."""
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    built, installed = (
        [each for each in requirements if each.startswith("typer")]
        for requirements in (project["build-system"]["requires"], project["project"]["dependencies"])
    )
    assert built == installed != []


def test_a_page_is_printed_or_all_are_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert manual.main(["topics", "create"]) == 0
    assert capsys.readouterr().out == manual.pages()["kafkapy-topics-create.1"]
    assert manual.main(["--to", str(tmp_path / "man1")]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "man1").iterdir()} == manual.pages()
    assert manual.main(["--to", str(tmp_path / "man1" / "kafkapy.1")]) == 1
    assert "kafkapy.1" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="2"):
        manual.main(["topics", "crate"])
    assert "topics crate is no command" in capsys.readouterr().err
