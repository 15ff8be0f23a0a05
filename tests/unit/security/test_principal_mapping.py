"""Users made of certificates' names by ssl.principal.mapping.rules, compared with Kafka's SslPrincipalMapper."""

import re

import pytest

from kafkapy.security.principal_mapping import MAX_MATCHED_LENGTH, MAX_NAME_LENGTH, MappingRuleError, PrincipalMapper
from tests.support.pages import ROOT

GOLDEN = ROOT / "tests/golden/principal_mappings.tsv"
CASES = [line.split("\t") for line in GOLDEN.read_text(encoding="utf-8").splitlines()]


def test_users_are_kafkas():
    assert len(CASES) > 1500
    wrong = [(*case, found) for case in CASES if (found := _user(*map(_unescaped, case[:2]))) != _unescaped(case[2])]
    assert not wrong, f"{len(wrong)} of {len(CASES)}: {wrong[:5]}"


def _user(rules: str, name: str) -> str:
    try:
        return PrincipalMapper(rules).name_of(name)
    except MappingRuleError:
        return "!"


def test_a_name_that_is_too_long_to_be_matched_in_time_is_mapped_by_no_rule():
    mapper = PrincipalMapper("RULE:^CN=(.*)$/$1/, DEFAULT")
    assert mapper.name_of("CN=" + "x" * (MAX_MATCHED_LENGTH - 3)) == "x" * (MAX_MATCHED_LENGTH - 3)
    with pytest.raises(MappingRuleError, match="too many for the rules"):
        mapper.name_of("CN=" + "x" * (MAX_MATCHED_LENGTH - 2))
    assert PrincipalMapper("DEFAULT").name_of("x" * MAX_NAME_LENGTH) == "x" * MAX_NAME_LENGTH
    with pytest.raises(MappingRuleError, match="too many for the rules"):
        PrincipalMapper("DEFAULT").name_of("x" * (MAX_NAME_LENGTH + 1))


def test_a_crafted_subject_reaches_no_pattern():
    """Its three repetitions would take a billion steps to fail."""
    mapper = PrincipalMapper("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.=]*).*$/$1/L, DEFAULT")
    with pytest.raises(MappingRuleError, match="too many for the rules"):
        mapper.name_of("CN=" * 332 + "\n")


def _unescaped(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


@pytest.mark.parametrize("rules", ["RULE:[a-z&&[^x]]+/y/", r"RULE:\p{Alpha}+/y/", r"RULE:\Qx\E/y/"])
def test_patterns_that_python_reads_otherwise_are_refused(rules: str):
    with pytest.raises(MappingRuleError, match="Invalid rule"):
        PrincipalMapper(rules)
