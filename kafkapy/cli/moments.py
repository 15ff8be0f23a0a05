"""Times on the command line: 2026-01-31T12:00:00Z, so long ago (-1h, -2d12h, -PT1H), or now."""

import re
from datetime import UTC, datetime
from typing import Final

from kafkapy.errors import quoted

MS_OF_UNIT: Final = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
PART: Final = re.compile(r"([0-9]{1,9}) ?(ms|s|min|m|h|d|w)")
AGO: Final = re.compile(rf"-(?:{PART.pattern})+")
ISO_AGO: Final = re.compile(r"-P(?:([0-9]{1,6})D)?(?:T(?:([0-9]{1,7})H)?(?:([0-9]{1,8})M)?(?:([0-9]{1,9})S)?)?")
FORMS: Final = "a time (2026-01-31T12:00:00Z; without a zone, local), how long ago (-1h, -2d, -PT1H), or now"


def moment_ms(text: str, now_ms: int) -> int:
    """Return the ms since the epoch that a text names; a time without a zone is local. Raises ValueError."""
    if text == "now":
        return now_ms
    if AGO.fullmatch(text):
        return max(now_ms - sum(int(count) * MS_OF_UNIT[unit] for count, unit in PART.findall(text)), 0)
    ago = ISO_AGO.fullmatch(text)
    if ago is not None and any(ago.groups()):
        days, hours, minutes, seconds = (int(part or 0) for part in ago.groups())
        return max(now_ms - 1000 * (((days * 24 + hours) * 60 + minutes) * 60 + seconds), 0)
    try:
        return int(datetime.fromisoformat(text).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ValueError(f"{quoted(text)} is not {FORMS}") from None


def shown_time(timestamp_ms: int) -> str:
    """Return a time as text, in UTC: what moment_ms takes; the number itself if there is no such date."""
    try:
        return (
            datetime.fromtimestamp(timestamp_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        )
    except (ValueError, OverflowError, OSError):
        return str(timestamp_ms)
