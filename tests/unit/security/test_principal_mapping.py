"""Users made of certificates' names by ssl.principal.mapping.rules, compared with Kafka's SslPrincipalMapper."""

import re

import pytest

from kafkapy.security.principal_mapping import MappingRuleError, PrincipalMapper
from tests.support.pages import ROOT

GOLDEN = ROOT / "tests/golden/principal_mappings.tsv"
CASES = [line.split("\t") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("rules", "name", "user"), CASES)
def test_users_are_kafkas(rules: str, name: str, user: str):
    assert _user(rules, name) == _unescaped(user)


def _user(rules: str, name: str) -> str:
    try:
        return PrincipalMapper(rules).name_of(name)
    except MappingRuleError:
        return "!"


def _unescaped(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("rules", ["RULE:[a-z&&[^x]]+/y/", r"RULE:\p{Alpha}+/y/", r"RULE:\Qx\E/y/"])
def test_patterns_that_python_reads_otherwise_are_refused(rules: str):
    with pytest.raises(MappingRuleError, match="Invalid rule"):
        PrincipalMapper(rules)
