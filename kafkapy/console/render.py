"""Templates: everything that is shown passes through here, escaped."""

import json
import re
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse

from kafkapy.console.rules import in_words
from kafkapy.console.samples import COUNTER_ENDINGS

UNITS: Final = ("B", "KiB", "MiB", "GiB", "TiB")
OWN_LINK: Final = re.compile(
    r'(\s(?:href|action|hx-get|data-stream|data-points|data-load)=")/(?!(?:static|oidc|c)/|log(?:in|out)")'
)
"""The beginnings of links in templates to pages of a cluster."""
OWN_PATH: Final = re.compile(r"/(?![/\\\t\r\n])")
"""How a path on this console begins: browsers take a backslash for a slash, and leave out tabs and ends of lines."""
AFTER_SEPARATOR: Final = re.compile(r"(?<=[-._/:,@])")
UNKNOWN: Final = "–"
MAX_INDENTED: Final = 4
"""Indented JSON may be this many times longer: nested lists would fill a page with spaces."""


def new_environment() -> Environment:
    """Return the templates' environment: all of them are HTML and escaped; a missing variable is an error."""
    environment = Environment(
        loader=PackageLoader("kafkapy.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "size": size,
        "time": time,
        "duration": duration,
        "pretty": pretty,
        "unit": unit,
        "breaks": breaks,
        "hexdump": hexdump,
        "in_words": in_words,
    }
    environment.globals["link"] = link
    return environment


class Renderer:
    """Renders the pages of a cluster, below `base`; `common`: variables of every template."""

    def __init__(self, base: str = "", **common: Any) -> None:
        self.base = base
        self._environment = new_environment()
        self._environment.globals |= common | {"base": base}

    def page(self, request: Request, template: str, status: int = 200, **context: Any) -> HTMLResponse:
        """`csrf`: the token that forms of this session send."""
        state = request.state
        path = request.url.path.removeprefix(self.base) or "/"
        text = self._environment.get_template(template).render(
            context,
            csrf=state.csrf,
            path=path,
            allow_changes=state.may_change,
            why_no_change=state.why_no_change,
            user=state.user,
        )
        return HTMLResponse(self._below(text), status)

    def part(self, template: str, **context: Any) -> str:
        return self._below(self._environment.get_template(template).render(context))

    def _below(self, text: str) -> str:
        """Let the links of our own templates lead to the same cluster; what a page shows has no bare quotes."""
        return OWN_LINK.sub(rf"\1{self.base}/", text) if self.base else text


def link(path: str, **parameters: Any) -> str:
    """Return a path with parameters; names and ids may contain any character, so they are never in the path."""
    return f"{path}?{urlencode(parameters)}" if parameters else path


def own_link(path: str) -> str:
    """Return a path on this console, "" if it is none: it came with a request."""
    return path if OWN_PATH.match(path) else ""


def came_from(request: Request) -> str:
    """Return the path and the query of the page that sent a request, "" if that is not known."""
    try:
        parts = urlsplit(request.headers.get("referer", ""))
    except ValueError:
        return ""
    if "/change/" in parts.path:
        return ""
    kept = [(name, value) for name, value in parse_qsl(parts.query) if name != "done"]  # it is not done again
    return f"{parts.path}?{urlencode(kept)}" if kept else parts.path


def number(value: int | None) -> str:
    """12345 -> 12 345, with a narrow no-break space."""
    return UNKNOWN if value is None else f"{value:,}".replace(",", "\u202f")


def size(value: int | None) -> str:
    if value is None or value < 0:
        return UNKNOWN
    shown = float(value)
    for unit in UNITS[:-1]:
        if shown < 1024:
            return f"{shown:.0f}\u202f{unit}" if unit == "B" else f"{shown:.1f}\u202f{unit}"
        shown /= 1024
    return f"{shown:.1f}\u202f{UNITS[-1]}"


def time(timestamp_ms: int | None) -> str:
    """Return UTC as 2026-01-31 12:00:00.000."""
    if timestamp_ms is None or timestamp_ms < 0:
        return UNKNOWN
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.")
            + f"{timestamp_ms % 1000:03}"
        )
    except (ValueError, OverflowError, OSError):
        return f"{timestamp_ms} ms"


def duration(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    return (
        f"{seconds:.1f} s"
        if seconds < 120
        else f"{seconds / 60:.0f} min"
        if seconds < 7200
        else f"{seconds / 3600:.0f} h"
    )


def breaks(name: str) -> Markup:
    """Allow line breaks in a long name after dots, dashes and the like, not between any two letters."""
    return Markup("<wbr>").join(escape(part) for part in AFTER_SEPARATOR.split(name))


def hexdump(text: str) -> str:
    """Return hex digits as lines of 16 bytes: their position, their digits, and what is printable of them."""
    digits = text[: len(text) - len(text) % 2]
    lines = []
    for at in range(0, len(digits), 32):
        part = digits[at : at + 32]
        data = bytes.fromhex(part)
        pairs = " ".join(part[each : each + 2] for each in range(0, len(part), 2))
        shown = "".join(chr(each) if 32 <= each < 127 else "." for each in data)
        lines.append(f"{at // 2:08x}  {pairs:<47}  {shown}")
    return "\n".join(lines)


def unit(name: str) -> str:
    """Return the unit of a metric's chart, as far as its name says it; a counter is charted as its rise per second."""
    is_rate = name.endswith(COUNTER_ENDINGS)
    words = "_".join(name.lower().split("_")[-4:])
    found = "B" if "byte" in words else "s" if "seconds" in words else "ms" if words.endswith("ms") else ""
    return f"{found}/s" if is_rate and found != "s" else found if not is_rate else ""


def pretty(text: str) -> str:
    """Indent JSON; anything else, what is cut, and what would be far longer, stays as it is."""
    if text[:1] not in ("{", "["):
        return text
    parts, left = [], MAX_INDENTED * len(text) + 1000
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(text)):
            parts.append(part)
            left -= len(part)
            if left < 0:
                return text
    except (ValueError, RecursionError):
        return text
    return "".join(parts)
