"""kafkapy.enumeration does as the standard library does: each case is tried with both."""

import copy
import enum
import json
import pickle
import struct
from types import ModuleType
from typing import Any

import pytest

from kafkapy import enumeration

MODULES = [pytest.param(enum, id="standard library"), pytest.param(enumeration, id="kafkapy")]


class Level(enumeration.IntEnum):
    LOW = 1
    HIGH = 2


class Kind(enumeration.Enum):
    SOFT = "soft"
    HARD = "hard"


def classes(module: ModuleType) -> dict[str, Any]:
    class Code(module.IntEnum):
        """A number on the wire."""

        FAILED = -1
        """It went wrong."""
        NONE = 0
        MISSING = 3
        ABSENT = 3

        @property
        def is_error(self) -> bool:
            return self is not Code.NONE

        def next(self) -> int:
            return self + 1

    class State(module.Enum):
        OPEN = module.auto()
        CLOSED = module.auto()
        GONE = "gone"

        def __init__(self, value: object) -> None:
            self.shown = f"{self.name.lower()} {value}"

    class Protocol(module.StrEnum):
        PLAIN = "PLAINTEXT"
        TLS = "SSL"

        @property
        def length(self) -> int:
            return len(self)

    return {key: value for key, value in locals().items() if key != "module"}


@pytest.mark.parametrize("module", MODULES)
def test_members_are_the_only_instances(module):
    made = classes(module)
    code, state = made["Code"], made["State"]
    assert code(3) is code.MISSING is code["MISSING"] is code.ABSENT is code(code.MISSING)
    assert (code.ABSENT.name, code.ABSENT.value) == ("MISSING", 3)
    assert [*code] == [-1, 0, 3]
    assert [each.name for each in state] == ["OPEN", "CLOSED", "GONE"]
    assert [each.value for each in state] == [1, 2, "gone"]
    assert (len(code), len(state), bool(code)) == (3, 3, True)
    assert [*code.__members__] == ["FAILED", "NONE", "MISSING", "ABSENT"]
    assert code.MISSING in code
    assert isinstance(code.NONE, code)
    assert isinstance(code.NONE, module.IntEnum | module.Enum)
    assert code.__doc__ == "A number on the wire."


@pytest.mark.parametrize("module", MODULES)
@pytest.mark.parametrize(("name", "wrong"), [("Code", 7), ("Code", "x"), ("State", 3), ("Protocol", "ssl")])
def test_other_values_are_refused(module, name, wrong):
    made = classes(module)[name]
    with pytest.raises(ValueError, match=f"^{wrong!r} is not a valid classes.<locals>.{name}$"):
        made(wrong)
    with pytest.raises(KeyError, match="OTHER"):
        made["OTHER"]


@pytest.mark.parametrize("module", MODULES)
def test_members_have_methods_and_properties(module):
    made = classes(module)
    assert (made["Code"].MISSING.is_error, made["Code"].NONE.is_error, made["Code"].MISSING.next()) == (True, False, 4)
    assert made["Protocol"].TLS.length == 3
    assert [each.shown for each in made["State"]] == ["open 1", "closed 2", "gone gone"]


@pytest.mark.parametrize("module", MODULES)
def test_ints_and_strings_are_what_they_are(module):
    made = classes(module)
    code, protocol = made["Code"], made["Protocol"]
    assert (code.MISSING + 1, code.MISSING < 4, {3: "x"}[code.MISSING], {code.MISSING: "y"}[3]) == (4, True, "x", "y")
    assert not code.NONE
    assert (struct.pack(">h", code.MISSING), json.dumps([code.MISSING, protocol.TLS])) == (b"\0\x03", '[3, "SSL"]')
    assert protocol.TLS == "SSL"
    assert {"SSL": 1}[protocol.TLS] == 1
    assert made["State"].OPEN != 1


@pytest.mark.parametrize("module", MODULES)
def test_texts(module):
    made = classes(module)
    code, state, protocol = made["Code"], made["State"], made["Protocol"]
    assert (str(code.MISSING), f"{code.MISSING:03}", f"{code.NONE:d} {code.NONE}") == ("3", "003", "0 0")
    assert (str(state.OPEN), f"{state.OPEN:>12}") == ("State.OPEN", "  State.OPEN")
    assert (str(protocol.TLS), f"{protocol.TLS:>5}") == ("SSL", "  SSL")
    assert [repr(each) for each in (code.NONE, state.GONE, protocol.TLS)] == [
        "<Code.NONE: 0>",
        "<State.GONE: 'gone'>",
        "<Protocol.TLS: 'SSL'>",
    ]
    assert repr(code) == "<enum 'Code'>"


@pytest.mark.parametrize("module", MODULES)
def test_hash_depends_on_the_name_alone(module):
    """The order of a set, too, in every process with the same hash seed."""
    assert hash(classes(module)["State"].OPEN) == hash("OPEN")


@pytest.mark.parametrize("member", [Level.HIGH, Kind.HARD])
def test_copies_are_the_member_itself(member):
    assert copy.copy(member) is copy.deepcopy([member])[0] is pickle.loads(pickle.dumps(member)) is member


def test_members_match_as_patterns():
    match Kind("hard"):
        case Kind.SOFT:
            raise AssertionError("another member")
        case Kind.HARD:
            pass
