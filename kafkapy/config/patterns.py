"""Regular expressions of users, compiled by RE2, whose time is linear in the text that it is matched with."""

from typing import Any

from kafkapy.errors import KafkapyError


class PatternError(KafkapyError):
    """A pattern is not one of RE2, or google-re2 is not installed (its wheel is for the usual platforms only)."""


def compiled(pattern: str) -> Any:
    """Return a pattern compiled by RE2. Raises PatternError."""
    try:
        import re2  # most nodes never need it
    except ImportError:
        raise PatternError("google-re2 is not installed here") from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        detail = error.args[0] if error.args else error
        text = detail.decode("utf-8", "replace") if isinstance(detail, bytes) else str(detail)
        raise PatternError(text) from error


def selector_and_pattern(entry: str) -> tuple[str, str] | None:
    """Return the parts of an entry of `match` (selector=pattern), or None if it has not two of them.

    As Java splits at "=": empty parts at the end do not count.
    """
    parts = entry.split("=")
    while parts and not parts[-1]:
        parts.pop()
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None
