"""kafkapy.named_tuple does as the standard library does: each case is tried with both."""

import copy
import pickle
import typing
from typing import Any

import pytest

from kafkapy.named_tuple import NamedTuple

BASES = [pytest.param(typing.NamedTuple, id="standard library"), pytest.param(NamedTuple, id="kafkapy")]


class Pair(NamedTuple):
    left: int
    right: int = 2


def classes(base: Any) -> dict[str, Any]:
    class Point(base):
        """A place."""

        x: int
        y: int = 2
        name: str = "p"

        @property
        def sum(self) -> int:
            return self.x + self.y

        def __str__(self) -> str:
            return "a point"

    class One(base):
        only: Any

    class Empty(base):
        pass

    class Nine(base):
        a: int
        b: int
        c: int
        d: int
        e: int
        f: int
        g: int
        h: int
        i: int = 9

    return {key: value for key, value in locals().items() if key != "base"}


@pytest.mark.parametrize("base", BASES)
def test_instances_are_tuples_with_names(base):
    made = classes(base)
    point = made["Point"](1, name="q")
    assert point == (1, 2, "q")
    assert (point.x, point.y, point.name, point.sum) == (1, 2, "q", 3)
    assert made["Point"](name="n", y=5, x=4) == (4, 5, "n")
    assert made["One"]([]) == ([],)
    assert made["Empty"]() == ()
    assert made["Nine"](*range(8)) == (*range(8), 9)
    assert made["Nine"](*range(9)).i == 8
    assert isinstance(point, tuple)
    assert hash(point) == hash((1, 2, "q"))
    assert not hasattr(point, "__dict__")


@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((), {}, "missing 1 required positional argument: 'x'"),
        ((1, 2, "p", 4), {}, "takes from 2 to 4 positional arguments but 5 were given"),
        ((1,), {"z": 3}, "got an unexpected keyword argument 'z'"),
        ((1,), {"x": 1}, "got multiple values for argument 'x'"),
    ],
)
def test_wrong_arguments_are_type_errors(base, arguments, named, words):
    with pytest.raises(TypeError, match=words):
        classes(base)["Point"](*arguments, **named)


@pytest.mark.parametrize("base", BASES)
def test_fields_are_not_set_and_no_others_added(base):
    point = classes(base)["Point"](1)
    for name in ("x", "other"):
        with pytest.raises(AttributeError):
            setattr(point, name, 1)


@pytest.mark.parametrize("base", BASES)
def test_classes_tell_their_fields(base):
    made = classes(base)
    point = made["Point"]
    assert point._fields == point.__match_args__ == ("x", "y", "name")
    assert point._field_defaults == {"y": 2, "name": "p"}
    assert list(point.__annotations__) == ["x", "y", "name"]
    assert (point.__name__, point.__module__, point.__doc__) == ("Point", __name__, "A place.")
    assert made["Nine"].__doc__ == "Nine(a, b, c, d, e, f, g, h, i)"
    assert point.__mro__ == (point, tuple, object)
    assert made["Empty"]._fields == ()


@pytest.mark.parametrize("base", BASES)
def test_instances_are_shown_replaced_and_made_of_values(base):
    made = classes(base)
    point = made["Point"](1)
    assert repr(point) == "Point(x=1, y=2, name='p')"
    assert (str(point), repr(made["Empty"]())) == ("a point", "Empty()")
    assert point._replace(y=7) == (1, 7, "p")
    assert type(point._replace(y=7)) is made["Point"]
    assert point._asdict() == {"x": 1, "y": 2, "name": "p"}
    assert made["Point"]._make(iter([3, 4, "r"])) == (3, 4, "r")
    with pytest.raises(TypeError, match="Expected 3 arguments, got 1"):
        made["Point"]._make([3])
    with pytest.raises((ValueError, TypeError), match=r"unexpected field names: .*z"):  # TypeError since Python 3.13
        point._replace(z=1)


@pytest.mark.parametrize("base", BASES)
def test_instances_match_patterns(base):
    point = classes(base)["Point"]
    match point(1, 8):
        case point(x, y, name="p"):
            assert (x, y) == (1, 8)
        case _:
            pytest.fail("no match")


@pytest.mark.parametrize("base", BASES)
def test_defaults_come_last(base):
    with pytest.raises(TypeError, match="default"):

        class _(base):
            first: int = 1
            second: int


def test_instances_are_copied_and_pickled():
    pair = Pair(1, 5)
    for each in (copy.copy(pair), copy.deepcopy(pair), pickle.loads(pickle.dumps(pair))):
        assert each == pair
        assert type(each) is Pair


@pytest.mark.parametrize("base", BASES)
def test_fields_are_those_of_the_classs_own_body(base):
    made = classes(base)
    assert made["Point"]._fields == made["Point"].__match_args__ == ("x", "y", "name")
    assert made["Empty"]._fields == ()
    assert made["Point"].__annotations__ == {"x": int, "y": int, "name": str}


def test_a_class_whose_annotations_cannot_be_evaluated_is_refused_when_it_is_made():
    with pytest.raises((NameError, TypeError), match="nowhere"):  # before Python 3.14 the body itself raises NameError

        class Unreadable(NamedTuple):
            first: nowhere  # noqa: F821


def test_annotations_given_as_such_are_read_on_each_python():
    """As a module compiled by mypyc, and `from __future__ import annotations`, leave them in the namespace."""
    made = type(NamedTuple)("Given", (NamedTuple,), {"__annotations__": {"first": "int"}, "__module__": __name__})
    assert made(1).first == 1
