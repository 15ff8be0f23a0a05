"""Commands whose arguments and options are the fields of a dataclass: one parameter object instead of many."""

import dataclasses
import functools
from collections.abc import Callable
from inspect import Parameter, Signature
from typing import Any, TypeVar

OptionsT = TypeVar("OptionsT")


def takes(options: type[OptionsT]) -> Callable[[Callable[[OptionsT], None]], Callable[..., None]]:
    """Return a decorator for a command of one parameter. Typer sees the fields of `options`, annotated for it, instead.

    Fields come in the order of the class, those of its bases first. One without a default is required.
    """

    def decorate(command: Callable[[OptionsT], None]) -> Callable[..., None]:
        @functools.wraps(command)
        def run(**values: Any) -> None:
            command(options(**values))

        fields = dataclasses.fields(options)  # type: ignore[arg-type]  # a dataclass: mypy cannot say so of a type
        run.__signature__ = Signature([_parameter(field) for field in fields])  # type: ignore[attr-defined]
        run.__annotations__ = {field.name: field.type for field in fields}
        return run

    return decorate


def _parameter(field: "dataclasses.Field[Any]") -> Parameter:
    default = Parameter.empty if field.default is dataclasses.MISSING else field.default
    return Parameter(field.name, Parameter.KEYWORD_ONLY, default=default, annotation=field.type)
