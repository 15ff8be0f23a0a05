"""A replacement for `typing.NamedTuple` that costs a sixth at import; its classes are used in the same way.

The standard library makes each class twice and compiles its `__new__` from text: 40 of the 640 million instructions of
a start. Here a class is made once, and its `__new__` is the function of `_NEW` for as many fields, with their names in
it: the same bytecode. mypy and mypyc take NamedTuple for the standard library's.
"""

import sys
from collections import _tuplegetter  # type: ignore[attr-defined]
from collections.abc import Callable, Iterable
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final

__all__ = ["NamedTuple"]

_new: Final = tuple.__new__
_NEW: Final[tuple[Callable[..., Any], ...]] = (
    lambda _cls: _new(_cls, ()),
    lambda _cls, a: _new(_cls, (a,)),
    lambda _cls, a, b: _new(_cls, (a, b)),
    lambda _cls, a, b, c: _new(_cls, (a, b, c)),
    lambda _cls, a, b, c, d: _new(_cls, (a, b, c, d)),
    lambda _cls, a, b, c, d, e: _new(_cls, (a, b, c, d, e)),
    lambda _cls, a, b, c, d, e, f: _new(_cls, (a, b, c, d, e, f)),
    lambda _cls, a, b, c, d, e, f, g: _new(_cls, (a, b, c, d, e, f, g)),
)
"""By the number of fields; for more, a function is compiled."""
_GLOBALS: Final = {"_new": _new, "__builtins__": {}, "__name__": "namedtuple"}
"""What constructors see: as with the standard library, profiles and counts take none for a function of this module."""


if sys.version_info >= (3, 14):
    from annotationlib import Format, get_annotate_from_class_namespace  # imported by `dataclasses` anyway

    def _annotations(name: str, own: dict[str, Any]) -> dict[str, Any]:
        """Return the annotations of a class body's namespace. Raises TypeError if they cannot be evaluated.

        The body leaves a function that makes them (PEP 649, PEP 749), or, if its module is compiled by mypyc or has
        `from __future__ import annotations`, the annotations themselves.
        """
        annotate = get_annotate_from_class_namespace(own)
        annotations: dict[str, Any] = own.get("__annotations__", {})
        if annotate is None or "__annotations__" in own:
            return annotations
        try:
            return annotate(Format.VALUE)
        except Exception as error:
            raise TypeError(f"cannot read the annotations of {name}: {error}") from error

else:

    def _annotations(name: str, own: dict[str, Any]) -> dict[str, Any]:
        """Return the annotations of a class body's namespace, which were evaluated when the body ran."""
        return own.get("__annotations__", {})  # type: ignore[no-any-return]


class _Meta(type):
    """Makes a subclass of tuple of each class that names NamedTuple as its base."""

    def __new__(mcs, name: str, bases: tuple[type, ...], own: dict[str, Any]) -> Any:
        if not bases:
            return super().__new__(mcs, name, bases, own)  # NamedTuple itself
        fields = tuple(_annotations(name, own))
        defaults = {field: own.pop(field) for field in fields if field in own}
        if tuple(defaults) != fields[len(fields) - len(defaults) :]:
            raise TypeError(f"{name}: a field without a default follows one with a default")
        made = {
            "__doc__": f"{name}({', '.join(fields)})",
            "__slots__": (),
            "__match_args__": fields,
            "_fields": fields,
            "_field_defaults": defaults,
            "__new__": _constructor(name, fields, tuple(defaults.values())),
            "__repr__": _repr,
            "__getnewargs__": _arguments,
            "_make": _MAKE,
            "_replace": _replace,
            "_asdict": _asdict,
        }
        for index, field in enumerate(fields):
            made[field] = _tuplegetter(index, None)
        return type(name, (tuple,), made | own)


def _constructor(name: str, fields: tuple[str, ...], defaults: tuple[Any, ...]) -> FunctionType:
    """Return `__new__`; a TypeError names it and its arguments as for any function."""
    if len(fields) < len(_NEW):
        code = _NEW[len(fields)].__code__
    else:
        arguments = ", ".join(fields)
        code = eval(f"lambda _cls, {arguments}: _new(_cls, ({arguments}))").__code__
    named = code.replace(co_varnames=("_cls", *fields), co_name="__new__", co_qualname=f"{name}.__new__")
    return FunctionType(named, _GLOBALS, "__new__", defaults or None)


def _make(cls: Any, values: Iterable[Any]) -> Any:
    """Return an instance with the values of an iterable."""
    made = _new(cls, values)
    if len(made) != len(cls._fields):
        raise TypeError(f"Expected {len(cls._fields)} arguments, got {len(made)}")
    return made


_MAKE: Final = classmethod(_make)


def _replace(self: Any, /, **named: Any) -> Any:
    """Return a copy with new values of some fields."""
    made = self._make(map(named.pop, self._fields, self))
    if named:
        raise ValueError(f"Got unexpected field names: {', '.join(named)}")
    return made


def _asdict(self: Any) -> dict[str, Any]:
    """Return the values by the names of their fields."""
    return dict(zip(self._fields, self, strict=True))


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({', '.join(map('{}={!r}'.format, self._fields, self))})"


def _arguments(self: Any) -> tuple[Any, ...]:
    """Return the arguments of which copy and pickle make an instance."""
    return tuple(self)


if TYPE_CHECKING:
    from typing import NamedTuple
else:

    class NamedTuple(metaclass=_Meta):
        """The base of a class whose annotated fields are those of a tuple: see `typing.NamedTuple`."""
