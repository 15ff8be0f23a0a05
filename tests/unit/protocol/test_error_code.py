"""No code of an error is written as a number anywhere but in the generated table: one was wrong once (76 for 75)."""

import re
from pathlib import Path

import kafkapy
from kafkapy.config import rules
from kafkapy.protocol.error_code import ErrorCode

NUMBERED = re.compile(r"^([A-Z][A-Z_]+)(?:: Final)?(?:\[int\])? = -?\d+$", re.MULTILINE)
SOURCES = Path(kafkapy.__file__).parent
TABLE = SOURCES / "protocol" / "error_code.py"
NO_ERROR = "NONE"
"""Others call other things so."""
CANNOT_IMPORT_THE_TABLE = SOURCES / "config" / "rules.py"


def numbered_codes(path: Path) -> list[str]:
    return [
        name
        for name in NUMBERED.findall(path.read_text(encoding="utf-8"))
        if name in ErrorCode.__members__ and name != NO_ERROR
    ]


def test_codes_are_numbered_in_their_table_only() -> None:
    found = {path: names for path in SOURCES.rglob("*.py") if path != TABLE and (names := numbered_codes(path))}
    assert found.keys() == {CANNOT_IMPORT_THE_TABLE}


def test_the_layer_below_the_table_has_its_numbers() -> None:
    names = numbered_codes(CANNOT_IMPORT_THE_TABLE)
    assert {name: getattr(rules, name) for name in names} == {name: ErrorCode[name].value for name in names}
    assert len(names) > 1
