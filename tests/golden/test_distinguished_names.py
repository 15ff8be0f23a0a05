"""Certificates' names, compared with Java's X500Principal."""

import gzip
import re
from pathlib import Path

import pytest

from kafkapy.security.der import DerError, read_one
from kafkapy.security.distinguished_name import java_name
from tools.record_names import DAMAGED_NAMES

GOLDEN = Path(__file__).parent


def _unescaped(text: str) -> str:
    units = re.sub(r"\\u([0-9a-f]{4})", lambda found: chr(int(found[1], 16)), text)
    return units.encode("utf-16", "surrogatepass").decode("utf-16")


def _java_name(encoded: str) -> str:
    try:
        return java_name(read_one(bytes.fromhex(encoded)))
    except DerError:
        return "!"


@pytest.fixture(scope="module")
def cases() -> list[tuple[str, str]]:
    """Names as DER, and what Java says of them."""
    with gzip.open(GOLDEN / "distinguished_names.tsv.gz", "rt", encoding="utf-8", newline="\n") as lines:
        pairs = [line.rstrip("\n").split("\t") for line in lines]
    return [(each, _unescaped(name)) for each, name in pairs]


def test_names_are_javas(cases: list[tuple[str, str]]):
    sound = cases[:-DAMAGED_NAMES]
    assert len(sound) > 2000
    wrong = [(each, name, found) for each, name in sound if (found := _java_name(each)) != name]
    assert not wrong, f"{len(wrong)} of {len(sound)}: {wrong[:5]}"


def test_damaged_names_are_javas_or_refused(cases: list[tuple[str, str]]):
    """What Java refuses is refused, and more: Java reads a name whose last bytes are missing, or followed by others."""
    damaged = [(each, name, _java_name(each)) for each, name in cases[-DAMAGED_NAMES:]]
    wrong = [case for case in damaged if case[2] not in ("!", case[1])]
    assert not wrong, f"{len(wrong)} of {len(damaged)}: {wrong[:5]}"
    assert len([case for case in damaged if case[2] != "!"]) > 500


@pytest.mark.parametrize(
    "encoded",
    [
        "3000 00",  # a byte after the name
        "300a 3108 3006 0603550403 05",  # a value without its length
        "3009 3107 3005 0603550403",  # no value
        "300e 310c 300a 0603550403 0c0161 0500",  # two values
        "3080 310a 3008 0603550403 0c0161 0000",  # of indefinite length
        "3085000000000c 310a 3008 0603550403 0c0161",  # a length of five bytes
        "300e 310c 300a 0603550403 1f810c0161",  # a tag of several bytes
    ],
)
def test_what_is_no_name_is_refused(encoded: str):
    with pytest.raises(DerError):
        java_name(read_one(bytes.fromhex(encoded)))
