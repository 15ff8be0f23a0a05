"""A requested change, with the lines that a page shows for confirmation; and the log of changes."""

import logging
from collections.abc import Callable, Mapping
from typing import TypeAlias

from starlette.requests import Request

from kafkapy.console.settings import Settings
from kafkapy.dataclass import dataclass
from kafkapy.errors import quoted

Fields: TypeAlias = Mapping[str, str]

logger = logging.getLogger("kafkapy.console.changes")


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


class ChangeLog:
    """Logs a line for each change and each refusal. It names the cluster if the console has several."""

    def __init__(self, settings: Settings) -> None:
        self._where = f" in {settings.name or settings.servers}" if settings.clusters else ""

    def changed(self, who: str, what: str) -> None:
        logger.info("Changed by %s%s: %s", who, self._where, quoted(what))

    def refused(self, who: str, what: str, reason: str) -> None:
        logger.warning("Refused, asked by %s%s: %s: %s", who, self._where, quoted(what), quoted(reason))
