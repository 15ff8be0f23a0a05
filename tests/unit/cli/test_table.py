"""Tables as text: for a screen, for a pipe, with names that anybody may have chosen."""

import pytest

from kafkapy.cli.table import table_lines


def test_a_row_is_one_line_without_blanks_at_its_end_unless_there_is_a_screen() -> None:
    lines = list(table_lines(("TOPIC", "SIZE"), [("a" * 300, "1 B"), ("b", None)]))
    assert lines == ["TOPIC" + " " * 297 + "SIZE", "a" * 300 + "  1 B", "b"]


@pytest.mark.parametrize("screen_width", [24, 40, 80])
def test_no_line_is_wider_than_the_screen_and_nothing_is_lost(screen_width: int) -> None:
    name = "orders.eu-west-1." * 8
    lines = list(table_lines(("TOPIC", "PARTITIONS"), [(name, 12)], screen_width=screen_width))
    assert max(map(len, lines)) <= screen_width
    assert "".join(line.split()[0] for line in lines[1:]) == name
    assert lines[1].endswith("12")


def test_a_small_screen_has_longer_rows_instead_of_columns_without_width() -> None:
    assert list(table_lines(("ABCDEFGH", "ABCDEFGH"), [], screen_width=3)) == ["ABCD  ABCD", "EFGH  EFGH"]


def test_wide_and_combining_characters_keep_the_columns_in_line() -> None:
    rows = [("注文", 1), ("cafe\u0301", 2), ("orders", 3)]
    assert list(table_lines(("TOPIC", "N"), rows)) == ["TOPIC   N", "注文    1", "cafe\u0301    2", "orders  3"]
    folded = list(table_lines(("T", "N"), [("注文注文注", 1)], screen_width=8))
    assert folded == ["T      N", "注文   1", "注文", "注"]


def test_a_name_does_not_move_the_cursor() -> None:
    assert list(table_lines(("CLIENT",), [("a\x1b[2J\rb\u202e",), ("two\nlines",)])) == [
        "CLIENT",
        "a\\x1b[2J\\rb\\u202e",
        "two",
        "lines",
    ]


def test_the_header_alone_is_bold() -> None:
    assert list(table_lines(("A",), [("b",)], is_bold=True)) == ["\x1b[1mA\x1b[0m", "b"]
