"""Java's .properties text, case by case as java.util.Properties.load reads it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkapy.config.properties import format_properties, parse_properties
from kafkapy.errors import ConfigError

CASES = [
    ("a=1\nb = 2\nc:3\nd : 4\ne 5\n", {"a": "1", "b": "2", "c": "3", "d": "4", "e": "5"}),
    ("# a=1\n! b=2\n   # c=3\nd=#4\n", {"d": "#4"}),
    ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
    ("a=1,\\\n    2,\\\r\n\t3\n", {"a": "1,2,3"}),
    ("a=1\\\n\nb=2\n", {"a": "1", "b": "2"}),
    ("a=1\\\n# no comment here\n", {"a": "1# no comment here"}),
    ("a=two\\\\\nb=3\n", {"a": "two\\", "b": "3"}),
    ("a=1\na=2\n", {"a": "2"}),
    ("a\n", {"a": ""}),
    ("a=\n", {"a": ""}),
    ("=b\n", {"": "b"}),
    ("a\\=b=c\n", {"a=b": "c"}),
    ("a\\:b:c\n", {"a:b": "c"}),
    ("a\\ b c d\n", {"a b": "c d"}),
    ("a==b\n", {"a": "=b"}),
    ("a : = b\n", {"a": "= b"}),
    ("a=b   \n", {"a": "b   "}),
    ("  a=b\n", {"a": "b"}),
    ('a=\\t\\n\\r\\f\\x\\"\n', {"a": '\t\n\r\fx"'}),
    ("a=\\u0041\\u00e9\n", {"a": "Aé"}),
    ("a=\\ud83d\\ude00\n", {"a": "😀"}),
    ("a=1\\", {"a": "1"}),
    ("", {}),
    ("\n\n   \n", {}),
    ("listeners=PLAINTEXT://:9092,CONTROLLER://:9093\n", {"listeners": "PLAINTEXT://:9092,CONTROLLER://:9093"}),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_text_is_read_as_java_reads_it(text, expected) -> None:
    assert parse_properties(text) == expected


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12g4", "\\uxyz1=a"])
def test_broken_unicode_escapes_are_refused(text) -> None:
    with pytest.raises(ConfigError, match="Malformed"):
        parse_properties(text)


WORDS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\u2028\x85"), max_size=20)


@given(st.dictionaries(WORDS, WORDS))
def test_what_is_written_is_read_back(entries) -> None:
    assert parse_properties(format_properties(entries)) == entries


@given(st.text())
def test_any_text_is_read_or_refused(text) -> None:
    try:
        parse_properties(text)
    except ConfigError:
        return
