"""A replacement for the standard library's `@dataclass` that costs an eighth at import.

The standard one compiles up to seven methods from text per class and makes a class with slots twice, which took 80 of
the 250 ms of a broker start. The fields here are the standard library's, so fields(), replace(), asdict() and `match`
work. Equality, hash and repr are generic functions. `__init__` is compiled from text, for speed, but only when the
third instance is created: during a start half of the classes get none, and two thirds of the others get one or two.
Not supported, as unused: order, InitVar, KW_ONLY, unsafe_hash.
"""

import dataclasses
from collections.abc import Callable
from operator import attrgetter
from reprlib import recursive_repr
from typing import Any, ClassVar, TypeVar, dataclass_transform

ClassT = TypeVar("ClassT", bound=type)
UNCOMPILED_INSTANCES = 2
"""Instances of a class for which nothing is compiled: to compile takes as long as setting the fields of thirty."""


@dataclass_transform(field_specifiers=(dataclasses.field,))
def dataclass(
    *, frozen: bool = False, slots: bool = False, kw_only: bool = False, eq: bool = True
) -> Callable[[ClassT], ClassT]:
    """Return a decorator that makes a dataclass; the arguments mean the same as in the standard library."""

    def make(cls: ClassT) -> ClassT:
        own = dict(cls.__dict__)
        fields = _fields(cls, own, kw_only)
        own["__dataclass_fields__"] = fields
        own["__match_args__"] = tuple(name for name, field in fields.items() if field.init and not field.kw_only)
        own["__doc__"] = own["__doc__"] or cls.__name__
        own.setdefault("__repr__", _repr)
        if eq:
            _add_equality(own, fields, frozen)
        if frozen:
            own["__setattr__"], own["__delattr__"] = _refuse_to_set, _refuse_to_delete
            own["__getstate__"], own["__setstate__"] = _state, _restore
        made = _with_slots(cls, own, fields) if slots else _with_attributes(cls, own)
        if "__init__" not in own:
            made.__init__ = _compile_when_called(made, frozen)
        return made  # type: ignore[no-any-return]

    return make


def _fields(cls: Any, own: dict[str, Any], kw_only: bool) -> dict[str, dataclasses.Field[Any]]:
    """Return the fields of a class, those of its bases first. Raises ValueError if a default is mutable."""
    found: dict[str, dataclasses.Field[Any]] = {}
    for base in reversed(cls.__mro__[1:]):
        found.update(base.__dict__.get("__dataclass_fields__", ()))
    for name, annotation in _annotations(cls).items():
        if _is_class_variable(annotation):
            continue
        default = own.get(name, dataclasses.MISSING)
        field: Any = default if isinstance(default, dataclasses.Field) else dataclasses.field(default=default)
        if field.default.__class__.__hash__ is None:
            raise ValueError(f"mutable default {type(field.default)} for field {name} is not allowed")
        field.name, field.type, field._field_type = name, annotation, dataclasses._FIELD  # type: ignore[attr-defined]
        if field.kw_only is dataclasses.MISSING:
            field.kw_only = kw_only
        found[name] = field
    return found


def _annotations(cls: Any) -> dict[str, Any]:
    """Return the annotations of a class's own body. Raises TypeError if they cannot be evaluated.

    Read as an attribute, not in the class's `__dict__`: since Python 3.14 the body leaves only a function there, which
    the attribute calls (PEP 649, PEP 749): 2 ms of a start's 260 ms of CPU for 181 classes, with kafkapy.named_tuple.
    """
    try:
        annotations: dict[str, Any] = cls.__annotations__
    except Exception as error:
        raise TypeError(f"cannot read the annotations of {cls.__qualname__}: {error}") from error
    return annotations


def _is_class_variable(annotation: Any) -> bool:
    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar"))
    return annotation is ClassVar or getattr(annotation, "__origin__", None) is ClassVar


def _with_slots(cls: Any, own: dict[str, Any], fields: dict[str, Any]) -> Any:
    """Return a class as `cls` with the members `own`, and slots for the fields that have none in a base."""
    assert "__slots__" not in own, f"{cls.__name__} has __slots__ already"
    inherited = {slot for base in cls.__mro__[1:] for slot in base.__dict__.get("__slots__", ())}
    for name in (*fields, "__dict__", "__weakref__"):
        own.pop(name, None)
    own["__slots__"] = tuple(name for name in fields if name not in inherited)
    own["__qualname__"] = cls.__qualname__
    return type(cls)(cls.__name__, cls.__bases__, own)


def _with_attributes(cls: Any, own: dict[str, Any]) -> Any:
    """Return `cls` itself with the members `own`, and the defaults of its fields as attributes."""
    for name, value in own.items():
        if isinstance(value, dataclasses.Field):
            if value.default is dataclasses.MISSING:
                delattr(cls, name)
            else:
                setattr(cls, name, value.default)
        elif cls.__dict__.get(name) is not value:
            setattr(cls, name, value)
    return cls


def _compile_when_called(cls: Any, frozen: bool) -> Callable[..., None]:
    """Return the first `__init__` of a class: it sets the fields of some instances, then compiles a faster one."""
    uncompiled = iter(range(UNCOMPILED_INSTANCES))

    def __init__(self: Any, *arguments: Any, **named: Any) -> None:
        if next(uncompiled, None) is None or not _maybe_set_fields(self, cls, arguments, named):
            cls.__init__ = _compiled_init(cls, frozen)
            cls.__init__(self, *arguments, **named)

    return __init__


def _maybe_set_fields(instance: Any, cls: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Set the fields of an instance. Return whether the arguments fit; if not, nothing is set."""
    given = dict(zip(cls.__match_args__, arguments, strict=False))
    if len(given) != len(arguments) or not named.keys().isdisjoint(given):
        return False
    given.update(named)
    values: dict[str, Any] = {}
    for name, field in cls.__dataclass_fields__.items():
        if field.init and name in given:
            values[name] = given.pop(name)
        elif field.default_factory is not dataclasses.MISSING:
            values[name] = field.default_factory()
        elif field.default is not dataclasses.MISSING:
            values[name] = field.default
        elif field.init:
            return False
    if given:
        return False
    for name, value in values.items():
        object.__setattr__(instance, name, value)
    if hasattr(cls, "__post_init__"):
        instance.__post_init__()
    return True


def _compiled_init(cls: Any, frozen: bool) -> Callable[..., None]:
    names: dict[str, Any] = {"MISSING": dataclasses.MISSING}
    positional, keyword, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name, value = field.name, field.name
        argument = name
        if field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
            argument = f"{name}=default_{name}"
        elif field.default_factory is not dataclasses.MISSING:
            names[f"new_{name}"] = field.default_factory
            argument = f"{name}=MISSING"
            value = f"new_{name}() if {name} is MISSING else {name}" if field.init else f"new_{name}()"
        elif not field.init:
            continue  # __post_init__ sets this field
        if field.init:
            (keyword if field.kw_only else positional).append(argument)
        elif field.default is not dataclasses.MISSING:
            value = f"default_{name}"
        names[f"set_{name}"] = _setter(cls, name)
        body.append(f"set_{name}(self, {value})" if frozen else f"self.{name} = {value}")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    arguments = ", ".join([*positional, *(["*", *keyword] if keyword else [])])
    lines = "".join(f"\n    {line}" for line in body or ["pass"])
    exec(f"def __init__({arguments}):{lines}", names)  # as the standard library does
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _setter(cls: Any, name: str) -> Callable[[Any, Any], None]:
    """Return a function that sets a field of a frozen instance, by its slot descriptor if it has one."""
    for base in cls.__mro__:
        if hasattr(base.__dict__.get(name), "__set__"):
            return base.__dict__[name].__set__  # type: ignore[no-any-return]
    return lambda instance, value: object.__setattr__(instance, name, value)


def _add_equality(own: dict[str, Any], fields: dict[str, Any], frozen: bool) -> None:
    names = [name for name, field in fields.items() if field.compare]
    values: Callable[[Any], Any] = attrgetter(*names) if names else lambda instance: ()
    has_own_hash = own.get("__hash__") is not None
    if "__eq__" not in own:

        def __eq__(self: Any, other: object) -> bool:
            return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

        own["__eq__"] = __eq__
    if not has_own_hash:
        own["__hash__"] = (lambda self: hash(values(self))) if frozen else None


@recursive_repr()
def _repr(self: Any) -> str:
    fields = ", ".join(
        f"{field.name}={getattr(self, field.name)!r}" for field in dataclasses.fields(self) if field.repr
    )
    return f"{type(self).__qualname__}({fields})"


def _refuse_to_set(self: Any, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    """Return the field values of a frozen instance, for copy and pickle."""
    return [getattr(self, field.name) for field in dataclasses.fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for field, value in zip(dataclasses.fields(self), state, strict=True):
        object.__setattr__(self, field.name, value)
