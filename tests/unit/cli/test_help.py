"""Every command explains all of its options on a terminal of 80 columns."""

import pytest

from kafkapy.__main__ import main
from kafkapy.cli.command_tree import Command, command_tree

COMMANDS = [command for command in command_tree().walk() if command.path[:1] not in [("completion",), ("protocol",)]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.path) or "kafkapy")
def test_the_help_has_every_option_whole(command: Command, capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")  # typer's
    try:
        status = main([*command.path, "-h"])
    except SystemExit as ended:  # argparse
        status = ended.code
    said = capsys.readouterr().out.split()
    assert status == 0
    assert not [word for word in said if word.startswith(("<str", "<int"))], "an option's value has a name"
    assert {flag for option in command.options for flag in option.flags} <= {word.strip("[],|") for word in said}


@pytest.mark.parametrize(("path", "connects"), [("topics list", True), ("cluster up", False), ("cluster check", True)])
def test_commands_that_connect_explain_command_config(path: str, connects: bool, capsys) -> None:
    assert main([*path.split(), "-h"]) == 0
    assert ("--command-config" in capsys.readouterr().out) == connects
