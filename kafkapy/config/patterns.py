"""Regular expressions of users, compiled by RE2, whose time is linear in the text that it is matched with.

With RE2's defaults a pattern itself may cost much: 400 letters of Unicode half a second to compile and 8 MiB to keep,
5,000 groups half a second for each match. So patterns of requests must be small, and capture nothing.
"""

from typing import Any, Final

from kafkapy.errors import KafkapyError

REQUESTED_BYTES: Final = 1 << 18
"""What a request's pattern may take, compiled (matching takes more): some milliseconds of work, and thousands of
alternatives. A deviation: Apache Kafka has no such bound."""


class PatternError(KafkapyError):
    """A pattern is not one of RE2, or google-re2 is not installed (its wheel is for the usual platforms only)."""


def compiled(pattern: str, *, is_trusted: bool = False) -> Any:
    """Return a pattern compiled by RE2. Raises PatternError.

    is_trusted: it is of this node's own configuration; it has groups, and may take RE2's default of 8 MiB.
    """
    try:
        import re2  # most nodes never need it
    except ImportError:
        raise PatternError("google-re2 is not installed here") from None
    options = re2.Options()
    options.log_errors = False
    try:
        if not is_trusted:
            options.never_capture = True
            default_bytes, options.max_mem = options.max_mem, REQUESTED_BYTES
            re2.compile(pattern, options)  # refuses one that is too large in some milliseconds
            options.max_mem = default_bytes  # for states while it matches: without them it takes 50 times as long
        found = re2.compile(pattern, options)
        re2.purge()  # it would keep 128 of them
        return found
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
