"""`i64`: an int that compiled code keeps in a machine word; interpreted, it is int itself.

For functions that read many numbers from bytes. Only compiled, an i64 overflows without an error: it holds positions,
lengths and numbers whose width is bounded where they are read.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_extensions import i64 as i64
else:
    i64 = int
