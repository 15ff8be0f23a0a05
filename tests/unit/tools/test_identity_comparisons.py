from pathlib import Path

import pytest

from tools.compiled import ROOT
from tools.identity_comparisons import identity_comparisons

pytestmark = pytest.mark.long

SOURCE = """
from kafkapy.dataclass import dataclass


@dataclass(frozen=True)
class Point:
    x: int


@dataclass(frozen=True)
class Named:
    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name == other.name


def compare(here: Point, there: Point, maybe: Point | None, name: Named) -> list[bool]:
    return [
        here.x == there.x,
        here is there,
        here in (there,),
        here == maybe,
        name == Named("a"),
        here == there,
        maybe is not None and maybe != there,
    ]
"""


def test_those_of_two_values_of_one_of_our_dataclasses_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    module = tmp_path / "compared.py"
    module.write_text(SOURCE)
    found = identity_comparisons([module])
    lines = [number for number, line in enumerate(SOURCE.splitlines(), start=1) if line.strip().endswith("there,")]
    expected = [f"{module}:{line}: compiled, two values of compared.Point are compared by identity" for line in lines]
    assert found == expected[-2:]
