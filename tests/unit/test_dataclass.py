"""kafkapy.dataclass does as the standard library does: each case is tried with both."""

import copy
import dataclasses
import pickle
from dataclasses import field
from typing import Any, ClassVar

import pytest

from kafkapy.dataclass import UNCOMPILED_INSTANCES, dataclass

MAKERS = [pytest.param(dataclasses.dataclass, id="standard library"), pytest.param(dataclass, id="kafkapy")]


@dataclass(frozen=True, slots=True)
class Pair:
    left: int
    right: int = 2


@dataclass(slots=True, kw_only=True)
class Named:
    name: str
    tags: list[str] = field(default_factory=list)


def classes(make: Any) -> dict[str, Any]:
    @make(frozen=True, slots=True)
    class Frozen:
        first: int
        second: str = "two"
        hidden: int = field(default=3, repr=False, compare=False)

    @make(frozen=True)
    class FrozenWithoutSlots:
        first: int

    @make(slots=True)
    class Plain:
        first: int
        shared: ClassVar[int] = 7
        made: list[int] = field(default_factory=list)
        later: int = field(init=False)
        fixed: int = field(init=False, default=9)

        def __post_init__(self) -> None:
            self.later = self.first + 1

    @make(slots=True)
    class Derived(Plain):
        own: int = 5

    @make(slots=True, eq=False)
    class ById:
        first: int

    @make(frozen=True, slots=True)
    class OwnEquality:
        first: int

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 1

    @make(frozen=True, slots=True)
    class Empty:
        pass

    return {key: value for key, value in locals().items() if key != "make"}


@pytest.mark.parametrize("make", MAKERS)
def test_instances_are_built_with_defaults_and_factories(make):
    made = classes(make)
    for _ in range(UNCOMPILED_INSTANCES + 1):
        frozen, plain, derived = made["Frozen"](1), made["Plain"](1), made["Derived"](1, own=7)
        assert (frozen.first, frozen.second, frozen.hidden) == (1, "two", 3)
        assert (plain.made, plain.later, plain.fixed) == ([], 2, 9)
        assert made["Plain"](1).made is not plain.made
        assert (derived.first, derived.later, derived.own, derived.shared) == (1, 2, 7, 7)
        assert made["Empty"]() == made["Empty"]()
        assert made["Frozen"](first=1, second="b") == made["Frozen"](1, "b") != frozen


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("earlier", range(UNCOMPILED_INSTANCES + 1))
def test_wrong_arguments_are_type_errors(make, earlier):
    wrong = [((), {}), ((1, "a", 2, 3), {}), ((1,), {"third": 1}), ((1,), {"first": 1}), ((), {"second": "b"})]
    for arguments, named in wrong:
        frozen = classes(make)["Frozen"]
        assert len([frozen(1) for _ in range(earlier)]) == earlier
        with pytest.raises(TypeError, match="__init__"):
            frozen(*arguments, **named)


def test_nothing_is_compiled_for_the_first_instances():
    frozen = classes(dataclass)["Frozen"]
    first = frozen.__init__
    assert all(frozen(1).second == "two" for _ in range(UNCOMPILED_INSTANCES))
    assert frozen.__init__ is first
    frozen(1)
    assert frozen.__init__ is not first


@pytest.mark.parametrize("make", MAKERS)
def test_values_are_equal_by_their_compared_fields_and_class(make):
    made = classes(make)
    frozen, plain = made["Frozen"], made["Plain"]
    assert frozen(1, hidden=1) == frozen(1, hidden=2) != frozen(2)
    assert hash(frozen(1, hidden=1)) == hash(frozen(1, hidden=2))
    assert plain(1) == plain(1) != plain(2)
    assert plain(1) != made["Derived"](1)
    assert made["ById"](1) != made["ById"](1)
    assert made["OwnEquality"](1) == made["OwnEquality"](2)
    assert hash(made["OwnEquality"](1)) == 1
    with pytest.raises(TypeError, match="unhashable"):
        hash(plain(1))


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", ["Frozen", "FrozenWithoutSlots"])
def test_what_is_frozen_stays_as_it_is(make, name):
    instance = classes(make)[name](1)
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot assign to field 'first'"):
        instance.first = 2
    with pytest.raises(dataclasses.FrozenInstanceError, match="cannot delete field 'first'"):
        del instance.first


@pytest.mark.parametrize("make", MAKERS)
def test_the_standard_librarys_functions_know_them(make):
    made = classes(make)
    frozen = made["Frozen"](1)
    assert dataclasses.replace(frozen, second="2") == made["Frozen"](1, "2")
    assert dataclasses.asdict(frozen) == {"first": 1, "second": "two", "hidden": 3}
    assert [each.name for each in dataclasses.fields(made["Derived"])] == ["first", "made", "later", "fixed", "own"]
    assert repr(frozen).endswith("Frozen(first=1, second='two')")
    assert not hasattr(frozen, "__dict__")
    assert made["Frozen"].__match_args__ == ("first", "second", "hidden")


def test_keyword_only_fields_are_named():
    assert Named(name="a").tags == []
    for _ in range(UNCOMPILED_INSTANCES):
        with pytest.raises(TypeError):
            Named("a")  # type: ignore[misc]


def test_frozen_instances_are_copied_and_pickled():
    pair = Pair(1, 5)
    assert copy.copy(pair) == copy.deepcopy(pair) == pickle.loads(pickle.dumps(pair)) == pair


@pytest.mark.parametrize("make", MAKERS)
def test_a_class_without_annotations_has_the_fields_of_its_bases_only(make):
    plain = classes(make)["Plain"]

    @make(slots=True)
    class Unannotated(plain):
        pass

    assert [each.name for each in dataclasses.fields(Unannotated)] == ["first", "made", "later", "fixed"]
    assert Unannotated(1).later == 2
    assert plain.__annotations__["first"] is int


def test_a_class_whose_annotations_cannot_be_evaluated_is_refused_when_it_is_made():
    with pytest.raises((NameError, TypeError), match="nowhere"):  # before Python 3.14 the body itself raises NameError

        @dataclass()
        class Unreadable:
            first: nowhere  # noqa: F821


def test_annotations_given_as_such_are_read_on_each_python():
    """As a module compiled by mypyc, and `from __future__ import annotations`, leave them in the namespace."""
    made = dataclass(slots=True)(type("Given", (), {"__annotations__": {"first": "int"}, "__module__": __name__}))
    assert made(1).first == 1
