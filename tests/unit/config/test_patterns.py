"""Patterns of users: compiled by RE2, and the entries of `match` as Java splits them."""

import pytest

from kafkapy.config.patterns import PatternError, compiled, selector_and_pattern

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
