"""Certificates' names, compared with Java's X500Principal."""

import gzip
import re
from pathlib import Path

from kafkapy.security.der import DerError, read_one
from kafkapy.security.distinguished_name import java_name

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
