"""A change that somebody asked for, with what a page says before it is made."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from kafkapy.dataclass import dataclass

Fields: TypeAlias = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change. `lines`: what will happen; `type_name`: the name to be typed, "" for none.

    `asks_password`: whether the confirmation asks for one. It is in no line and in no form that is sent back.
    """

    title: str
    lines: tuple[str, ...]
    run: Callable[[], None]
    done: str
    back: str
    type_name: str = ""
    asks_password: bool = False
