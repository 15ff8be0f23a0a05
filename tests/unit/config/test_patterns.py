"""Patterns of users: compiled by RE2, and the entries of `match` as Java splits them."""

import pytest

from kafkapy.config.patterns import PatternError, check_sizes, compiled, selector_and_pattern

pytest.importorskip("re2")


def test_a_pattern_of_re2_matches() -> None:
    assert compiled("a+|b").fullmatch("aaa") is not None


@pytest.mark.parametrize("pattern", ["(", "(?=a)", r"(a)\1", "a{1001}", "((a{999}){999}){999}", "(" * 10_000])
def test_others_are_refused_with_a_reason(pattern: str) -> None:
    with pytest.raises(PatternError) as raised:
        compiled(pattern)
    assert str(raised.value)
    assert not str(raised.value).startswith("b'")


@pytest.mark.parametrize(
    "pattern", [r"[\pL\pN]{400}", r"(\pL|\pN|\pS){200}", "x" * 32_000, r"\pL!|" * 65 + "x", "x|" * 17_000]
)
def test_a_request_has_no_pattern_that_takes_long_to_compile_and_much_to_keep(pattern: str) -> None:
    with pytest.raises(PatternError, match="pattern too large"):
        compiled(pattern)
    assert compiled(pattern, is_trusted=True).fullmatch("a") is None


@pytest.mark.parametrize(
    ("pattern", "most"),
    [("(?:x{1000}){0}|" * 400, 255), ("(?i)" + "[a-\U0010ffff]|" * 2_000, 4_000), ("(?s-i:(?mi)" + "k" * 4_100, 4_000)],
)
def test_nor_one_that_takes_long_to_read(pattern: str, most: int) -> None:
    """RE2 would read the first two in 20 and 50 ms, and not refuse them."""
    with pytest.raises(PatternError, match="pattern too large"):
        check_sizes(pattern)
    check_sizes(pattern[:most])


def test_a_request_may_have_a_pattern_of_many_names() -> None:
    pattern = compiled("|".join(f"orders-{each}" for each in range(1_000)))
    assert pattern.fullmatch("orders-999") is not None
    assert pattern.fullmatch("orders-1000") is None


def test_only_patterns_of_the_configuration_have_groups() -> None:
    """RE2 takes time for each: 5,000 groups half a second for a match."""
    assert [compiled("(a)(b)", is_trusted=each).fullmatch("ab").groups() for each in (False, True)] == [(), ("a", "b")]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ("client_id=a.*", ("client_id", "a.*")),
        (" client_id = a ", ("client_id", "a")),
        ("client_id=a==", ("client_id", "a")),
        ("client_id= ", ("client_id", "")),
        ("client_id=", None),
        ("client_id", None),
        ("client_id=a=b", None),
        ("client_id==a", None),
        ("=", None),
        ("", None),
    ],
)
def test_an_entry_of_match_has_two_parts(entry: str, expected: tuple[str, str] | None) -> None:
    assert selector_and_pattern(entry) == expected
