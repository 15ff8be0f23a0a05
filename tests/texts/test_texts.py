"""Each text here, played: what its commands print is what stands below them.

    pytest tests/texts --rewrite     write what they print now; then read the difference

A folder for each machine. What its commands mean stands in tests/simulator/quorum_commands.py, and in group_commands.py
and transaction_commands.py of tests/support.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.simulator.quorum_commands import QuorumCommands
from tests.support.group_commands import ClassicGroupCommands, ConsumerGroupCommands
from tests.support.texts import Command, difference, replayed
from tests.support.transaction_commands import TransactionCommands

HERE = Path(__file__).parent
COMMANDS: Mapping[str, Callable[[], Mapping[str, Command]]] = {
    "classic_groups": lambda: ClassicGroupCommands().commands(),
    "consumer_groups": lambda: ConsumerGroupCommands().commands(),
    "raft": lambda: QuorumCommands().commands(),
    "transactions": lambda: TransactionCommands().commands(),
}
TEXTS = sorted(HERE.glob("*/*.txt"))


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: str(path.relative_to(HERE)))
def test_commands_print_what_stands_below_them(path: Path, request: pytest.FixtureRequest) -> None:
    text = path.read_text()
    now = replayed(text, COMMANDS[path.parent.name]())
    if request.config.getoption("--rewrite"):
        path.write_text(now)
    elif changed := difference(text, now, path.name):
        pytest.fail(f"{changed}\n\nIf that is meant: pytest tests/texts --rewrite", pytrace=False)


def test_each_folder_has_commands_and_texts() -> None:
    assert {path.parent.name for path in TEXTS} == set(COMMANDS)
