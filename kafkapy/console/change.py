"""A change that somebody asked for, with what a page says before it is made."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

from starlette.requests import Request

from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

Fields: TypeAlias = Mapping[str, str]


def who_asks(request: Request) -> str:
    """Return the user, if the login has one, and the address, for the log."""
    host = request.client.host if request.client is not None else "?"
    return f"{quoted(request.state.user)} at {host}" if request.state.user else host


@dataclass(frozen=True, slots=True)
class Change:
    """A requested change. `lines`: what will happen; `type_name`: the name to be typed, "" for none.

    `run` may return what was done, in place of `done`. `asks_password`: whether the confirmation asks for one. It is in
    no line and in no form that is sent back.
    """

    title: str
    lines: tuple[str, ...]
    run: Callable[[], str | None]
    done: str
    back: str
    type_name: str = ""
    asks_password: bool = False
