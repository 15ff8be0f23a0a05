"""Declarations for compiled code, which the interpreter does not need.

`i64`: an int that compiled code keeps in a machine word; interpreted, it is int itself. For functions that read many
numbers from bytes. Only compiled, an i64 overflows without an error: it holds positions, lengths and numbers whose
width is bounded where they are read.

`mypyc_attr(allow_interpreted_subclasses=True)`: a class of a compiled module that interpreted classes inherit from.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from mypy_extensions import i64 as i64
    from mypy_extensions import mypyc_attr as mypyc_attr
else:
    i64 = int
    ClassT = TypeVar("ClassT")

    def mypyc_attr(**_attributes: Any) -> Callable[[ClassT], ClassT]:
        return lambda cls: cls
