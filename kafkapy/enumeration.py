"""Replacements for `enum.Enum`, `IntEnum` and `StrEnum` that cost a sixth at import; they are used in the same way.

The standard library calls a dozen functions for each member: 20 of the 650 million instructions of a start. Here a
member is an instance with two attributes. mypy and mypyc take these classes for the standard library's. Not supported,
as unused: flags, values that `__new__` or `_missing_` of a class makes, tuples for `__init__`, `auto` for strings.
"""

from collections.abc import Callable, Iterator
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

__all__ = ["Enum", "IntEnum", "StrEnum", "auto"]


class _Meta(type):
    """Makes members of a class's attributes: of all but functions, descriptors and what begins with an underscore."""

    __members__: MappingProxyType[str, Any]
    """By name, aliases included."""
    _by_value: dict[Any, Any]
    _new: Callable[[type, Any], Any]

    def __new__(mcs, name: str, bases: tuple[type, ...], own: dict[str, Any]) -> Any:
        values = {key: value for key, value in own.items() if key[0] != "_" and not hasattr(value, "__get__")}
        made = super().__new__(mcs, name, bases, {key: value for key, value in own.items() if key not in values})
        members: dict[str, Any] = {}
        made._by_value = {}
        last: Any = 0
        for key, given in values.items():
            last = value = last + 1 if isinstance(given, _Auto) else given
            member = made._by_value.get(value)
            if member is None:
                member = made._by_value[value] = made._new(made, value)
                member.name, member.value = key, value
                if "__init__" in own:
                    member.__init__(value)
            members[key] = member
            setattr(made, key, member)
        made.__members__ = MappingProxyType(members)
        return made

    def __call__(cls, value: Any) -> Any:
        """Return the member with a value. Raises ValueError."""
        member = value if value.__class__ is cls else cls._by_value.get(value)
        if member is None:
            raise ValueError(f"{value!r} is not a valid {cls.__qualname__}")
        return member

    def __getitem__(cls, name: str) -> Any:
        return cls.__members__[name]

    def __iter__(cls) -> Iterator[Any]:
        return iter(cls._by_value.values())

    def __contains__(cls, value: Any) -> bool:
        return value.__class__ is cls or value in cls._by_value

    def __len__(cls) -> int:
        return len(cls._by_value)

    def __bool__(cls) -> bool:
        return True

    def __repr__(cls) -> str:
        return f"<enum {cls.__name__!r}>"


class _Auto:
    """Stands for the value after the last one."""


if TYPE_CHECKING:
    from enum import Enum, IntEnum, StrEnum, auto
else:
    auto = _Auto

    class Enum(metaclass=_Meta):
        """The base of a class whose attributes are its only instances: see `enum.Enum`."""

        def _new(cls, value):
            return object.__new__(cls)

        def __repr__(self):
            return f"<{type(self).__name__}.{self.name}: {self.value!r}>"

        def __str__(self):
            return f"{type(self).__name__}.{self.name}"

        def __format__(self, spec):
            return format(str(self), spec)

        def __hash__(self):
            return hash(self.name)

        def __reduce__(self):
            return type(self), (self.value,)

    class IntEnum(int, Enum):
        """Members are ints: see `enum.IntEnum`."""

        _new = int.__new__
        __repr__ = Enum.__repr__
        __str__ = int.__repr__

    class StrEnum(str, Enum):
        """Members are strings: see `enum.StrEnum`."""

        _new = str.__new__
        __repr__ = Enum.__repr__
