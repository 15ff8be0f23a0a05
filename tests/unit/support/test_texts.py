"""The interpreter of scenarios finds what has changed, and what it cannot play."""

from collections.abc import Sequence

import pytest

from tests.support.texts import Command, ScenarioError, difference, options_of, replayed, table


def counter() -> dict[str, Command]:
    counts: dict[str, int] = {}

    def count(words: Sequence[str]) -> list[str]:
        (name,) = words
        counts[name] = counts.get(name, 0) + 1
        return []

    return {"count": count, "status": lambda words: table("name  count", counts.items())}


SCENARIO = """\
# Two of a kind.

count apples
count apples
----
ok

# And one more.
count pears
status
----
name    count
apples  2
pears   1
"""


def test_a_scenario_whose_outcomes_are_those_of_now_stays_as_it_is() -> None:
    assert replayed(SCENARIO, counter()) == SCENARIO
    assert difference(SCENARIO, SCENARIO, "counts.txt") == ""


def test_a_changed_outcome_is_shown_as_a_diff() -> None:
    wrong = SCENARIO.replace("apples  2", "apples  3")
    now = replayed(wrong, counter())
    assert now == SCENARIO
    shown = difference(wrong, now, "counts.txt").splitlines()
    assert ("-apples  3" in shown, "+apples  2" in shown) == (True, True)


def test_commands_without_an_outcome_get_one() -> None:
    bare = "count pears\nstatus\n\ncount pears\n"
    assert replayed(bare, counter()) == "count pears\nstatus\n----\nname   count\npears  1\n\ncount pears\n----\nok\n"


def test_an_outcome_that_is_gone_or_too_long_is_replaced() -> None:
    for changed in (SCENARIO.replace("ok\n", ""), SCENARIO.replace("ok\n", "ok\nand more\n")):
        assert changed != SCENARIO
        assert replayed(changed, counter()) == SCENARIO


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("count a\n\nlose a\n", "line 3: no command 'lose'; there are: count, status"),
        ("# nothing\n----\nok\n", "line 2: an outcome without a command"),
    ],
)
def test_what_cannot_be_played_is_an_error(text: str, problem: str) -> None:
    with pytest.raises(ScenarioError, match=problem):
        replayed(text, counter())


def test_a_command_that_fails_says_where() -> None:
    with pytest.raises(ValueError, match="values to unpack") as raised:
        replayed("status\n\ncount\n", counter())
    assert raised.value.__notes__ == ["line 3: count"]


def test_options_are_apart_from_words() -> None:
    assert options_of(["a", "b=1", "c", "d=e=f"]) == (["a", "c"], {"b": "1", "d": "e=f"})
