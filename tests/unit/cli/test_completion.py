"""What bash offers after what was typed, and the manual page as man reads it."""

import shutil
import subprocess

import pytest

from kafkapy.cli import completion, manual
from kafkapy.cli.command_tree import command_tree

needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not here")


def offered(*words: str) -> set[str]:
    """Return what bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in ("kafkapy", *words))
    asking = f'COMP_WORDS=({line}); COMP_CWORD={len(words)}; _kafkapy; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(
        ["bash", "--norc"], input=completion.script() + asking, capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stderr == ""
    return set(done.stdout.split())


@needs_bash
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
        (("consume", "trades", "--group", ""), set()),
    ],
)
def test_bash_offers_what_may_follow(words: tuple[str, ...], expected: set[str]) -> None:
    assert offered(*words) == expected


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
