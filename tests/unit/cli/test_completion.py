"""What shells offer after what was typed, and the manual page as man reads it."""

import shlex
import shutil
import subprocess
from functools import cache

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
    asking = f"COMP_WORDS=({shlex.join(('kafkapy', *words))}); COMP_CWORD={len(words)}; _kafkapy; "
    printing = 'printf "%s\\n" "${COMPREPLY[@]}"'
    return set(run("bash", "--norc", given=script("bash") + asking + printing).split())


def by_zsh(*words: str) -> set[str]:
    asking = f"words=({shlex.join(('kafkapy', *words))}); CURRENT={len(words) + 1}; _kafkapy"
    return set(run("zsh", "-f", given=ZSH_STUBS + script("zsh") + asking).split())


def by_fish(*words: str) -> set[str]:
    asking = f"complete -C '{' '.join(('kafkapy', *words))}'"
    lines = run("fish", "--no-config", given=script("fish") + asking).splitlines()
    return {line.partition("\t")[0] for line in lines}


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


def test_bash_leaves_values_that_are_not_known_to_its_file_names() -> None:
    assert offered("bash", "consume", "trades", "--group", "") <= {""}


@pytest.mark.parametrize(("arguments", "status"), [(["zsh", "fish"], 2), (["tcsh"], 2), (["-h"], 0)])
def test_a_shell_that_is_not_known_is_told(arguments, status, capsys) -> None:
    assert completion.main(arguments) == status
    said = capsys.readouterr()
    assert "usage: kafkapy completion [bash|zsh|fish]" in (said.err if status else said.out)


@pytest.mark.parametrize("arguments", [[], ["bash"], ["zsh"], ["fish"]])
def test_each_shell_has_a_script(arguments, capsys) -> None:
    assert completion.main(arguments) == 0
    assert capsys.readouterr().out == script(*arguments or ["bash"])


def test_every_command_and_option_is_explained() -> None:
    commands = list(command_tree().walk())
    assert len(commands) > 50
    assert [command.path for command in commands if not command.help] == []
    assert [(command.path, each.flags) for command in commands for each in command.options if not each.help] == []


def test_the_manual_page_has_them_all_and_is_valid() -> None:
    page = manual.page()
    for command in command_tree().walk():
        assert not command.path or f'.SS "kafkapy {" ".join(command.path)}'.replace("-", "\\-") in page
    if shutil.which("groff") is not None:
        done = subprocess.run(["groff", "-man", "-Tutf8", "-ww", "-z"], input=page, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")
