"""Certificates' names and the users made of them, compared with Java's X500Principal and Kafka's SslPrincipalMapper."""

import gzip
import re
from pathlib import Path

import pytest

from kafkapy.security.der import DerError, read_one
from kafkapy.security.distinguished_name import java_name
from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper

GOLDEN = Path(__file__).parent


def _unescaped(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def _java_name(encoded: str) -> str:
    try:
        return java_name(read_one(bytes.fromhex(encoded)))
    except DerError:
        return "!"


def test_names_are_javas():
    with gzip.open(GOLDEN / "distinguished_names.tsv.gz", "rt", encoding="utf-8", newline="\n") as lines:
        cases = [line.rstrip("\n").split("\t") for line in lines]
    assert len(cases) > 2000
    wrong = [(each, _unescaped(name), found) for each, name in cases if (found := _java_name(each)) != _unescaped(name)]
    assert not wrong, f"{len(wrong)} of {len(cases)}: {wrong[:5]}"


CASES = [line.split("\t") for line in (GOLDEN / "principal_mappings.tsv").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("rules", "name", "user"), CASES)
def test_users_are_kafkas(rules: str, name: str, user: str):
    assert _user(rules, name) == _unescaped(user)


def _user(rules: str, name: str) -> str:
    try:
        return PrincipalMapper(rules).name_of(name)
    except MappingRuleError:
        return "!"


@pytest.mark.parametrize("rules", ["RULE:[a-z&&[^x]]+/y/", r"RULE:\p{Alpha}+/y/", r"RULE:\Qx\E/y/"])
def test_patterns_that_python_reads_otherwise_are_refused(rules: str):
    with pytest.raises(MappingRuleError, match="Invalid rule"):
        PrincipalMapper(rules)
