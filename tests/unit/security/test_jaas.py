"""JAAS texts are read as Apache Kafka's classes read them (tests/golden/jaas.jsonl.gz), files as Java reads them."""

import gzip
import json
import re
from pathlib import Path

import pytest

from kafkapy.security import jaas
from kafkapy.security.jaas import JaasError, check_module, expanded, option_text, parse_entry, parse_file

GOLDEN = Path(__file__).parents[2] / "golden" / "jaas.jsonl.gz"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"


def test_entries_are_read_as_apache_kafka_reads_them() -> None:
    with gzip.open(GOLDEN, "rt") as lines:
        cases = [json.loads(line) for line in lines]
    assert len(cases) > 500
    for case in cases:
        assert outcome(case["text"]) in (case["outcome"], hidden(case["outcome"])), case


def outcome(text: str) -> str | list[object]:
    try:
        entry = parse_entry(text)
    except JaasError as error:
        return str(error)
    return [entry.module, dict(entry.options)]


def hidden(reported: str | list[object]) -> str | list[object]:
    """Return what Apache Kafka tells without the word that it names, which is not always shown here."""
    return re.sub("'.*'", "'[hidden]'", reported, flags=re.DOTALL) if isinstance(reported, str) else reported


@pytest.mark.parametrize("value", ["", "a", 'say "a"', "back\\slash", "two\nlines\r", "; = // /* */", "ä 文"])
def test_a_value_that_we_write_is_read_as_it_was(value) -> None:
    entry = parse_entry(f"{MODULE} required password={option_text(value)};")
    assert entry.options == {"password": value}


def test_a_file_has_an_entry_for_each_context() -> None:
    text = f"""
    // what brokers use
    KafkaServer {{
        {MODULE} required username="b" user_b="secret"; /* one */
        other.Module optional;
    }};
    internal.KafkaServer {{ {MODULE} required; }};
    """
    contexts = parse_file(text)
    assert [len(entries) for entries in contexts.values()] == [2, 1]
    assert contexts["KafkaServer"][0].options == {"username": "b", "user_b": "secret"}
    assert list(contexts) == ["KafkaServer", "internal.KafkaServer"]


@pytest.mark.parametrize(
    "text",
    [
        "KafkaServer",
        "KafkaServer {",
        "{",
        "; ;",
        "a { b required; }",
        "a { b required }; ",
        "a { b wrong; };",
        "a { b required k=; };",
        "a { b required; }; a { b required; };",
        "a ( b required; };",
        "1 { b required; };",
    ],
)
def test_a_file_that_is_none_is_refused(text) -> None:
    with pytest.raises(JaasError):
        parse_file(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("${pw}", "secret"),
        ("a${pw}b${pw}", "asecretbsecret"),
        ("${{x}}", "${{x}}"),
        ("a${{x}}b", "a${{x}}b"),
        ("${{x}}${pw}", "${{x}}secret"),
        ("${{pw}}b${pw}", "${{pw}}bsecret"),
        ("${{x${pw}", "${{x${pw}"),
        ("${x", "${x"),
        ("${/}", "/"),
        ("a$b", "a$b"),
        ("$${pw}", "$secret"),
        ("${pw}${", "secret${"),
    ],
)
def test_properties_of_a_file_are_expanded_as_by_java(value, expected) -> None:
    assert expanded(value, {"pw": "secret"}.get) == expected


@pytest.mark.parametrize("value", ["${s3cret}", "${}", "${pw}${S3CRET}"])
def test_an_unknown_property_of_a_file_is_refused(value) -> None:
    with pytest.raises(JaasError, match=r"unable to expand a property") as error:
        expanded(value, {"pw": "secret"}.get)
    assert "s3cret" not in str(error.value).lower()


def test_only_the_login_module_of_a_mechanism_is_known() -> None:
    check_module(parse_entry(f"{MODULE} required;"), "PLAIN")
    with pytest.raises(JaasError, match=r"PLAIN must be .*PlainLoginModule, not com\.sun\.JndiLoginModule"):
        check_module(parse_entry("com.sun.JndiLoginModule required;"), "PLAIN")


def test_secrets_are_not_shown() -> None:
    entry = parse_entry(f'{MODULE} required password="s3cret";')
    assert "s3cret" not in repr(entry)


@pytest.mark.parametrize(
    ("options", "reported"),
    [
        ('password="ab"s3cret";', "Value not specified for key '[hidden]' in JAAS config"),
        ("password=ab@s3cret;", "Value not specified for key 'null' in JAAS config"),
        ("username=a password=1s3cret;", "Value not specified for key 'password' in JAAS config"),
        ('user_alice="ab"user_s3cret";', "Value not specified for key '[hidden]' in JAAS config"),
        ("user_alice", "Value not specified for key 'user_alice' in JAAS config"),
        ("password=ab;c s3cret;", "Invalid login module control flag '[hidden]' in JAAS config"),
    ],
)
def test_parts_of_a_password_that_is_not_quoted_well_are_not_shown(options, reported) -> None:
    with pytest.raises(JaasError) as error:
        parse_entry(f"{MODULE} required {options}")
    assert str(error.value) == reported


def test_a_wrong_flag_is_shown() -> None:
    with pytest.raises(JaasError, match="Invalid login module control flag 'needed' in JAAS config"):
        parse_entry(f"{MODULE} needed;")


@pytest.mark.parametrize("flag", ["required", "REQUISITE", "Sufficient", "optional"])
def test_every_control_flag_is_read_in_any_case(flag) -> None:
    assert jaas.parse_entry(f"Module {flag} a=b;").options == {"a": "b"}


def test_escapes_are_javas() -> None:
    entry = jaas.parse_entry(r'Module required a="\a\b\f\n\r\t\v\q\101\477" b="";')
    assert entry.options == {"a": "\a\b\f\n\r\t\vqA'7", "b": ""}


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ('a="b\r;', {"a": "b"}),
        ("a='b\rc=d;", {"a": "b", "c": "d"}),
        ("a\xa0=b;", {"a\xa0": "b"}),
        ("\u0100a=\u4e00;", {"\u0100a": "\u4e00"}),
    ],
)
def test_ends_of_lines_and_letters_are_javas(text, options) -> None:
    """As Apache Kafka's JaasConfig read them on the JVM."""
    assert parse_entry(f"Module required {text}").options == options


def test_a_number_has_one_point() -> None:
    assert [token.kind for token in jaas.tokenize("12.5.6")] == ["number", "number"]
